/* ctest: labels=quick libs=logits timeout=120 */
/* Answers of a vocabulary slice against slow references: sums bit for bit, selections by full sort,
 * draws by statistics. */
#include "base/limits.h"
#include "model/logits/row.h"

#include <math.h>
#include <stdio.h>

#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"
#include "tests/support/stats_util.h"

enum { COLS_MAX = 5003 };

static struct arena arena;
static struct error err;
static float logits[COLS_MAX];

static double uniform(uint32_t index)
{
    return rng_uniform(&(struct rng_address){.seed = 77}, RNG_WEIGHT, index);
}

/* Logits with a spread of `spread`, in steps of 1 / 8 where ties are wanted. */
static void fill(int n, double spread, bool with_ties)
{
    for (int i = 0; i < n; i++) {
        double x = (uniform((uint32_t)i) + uniform((uint32_t)i + 100000) - 1) * spread;
        logits[i] = (float)(with_ties ? floor(x * 8) / 8 : x);
    }
}

static void setup(void)
{
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
}

static void teardown(void)
{
    arena_close(&arena);
}

/* The promised order, with num_exp and scalar loops. Columns with skip[] set count as 0. */
static double reference_sum(int n, float max, float t, const bool *skip, bool times_log)
{
    double total = 0;
    for (int start = 0; start < n; start += 1024) {
        float lane[16] = {0};
        for (int i = start; i < n && i < start + 1024; i++) {
            float x = (logits[i] - max) * (1.0f / t);
            float e = skip && skip[i] ? 0 : num_exp(x);
            if (times_log) e = e > 0 ? e * x : 0;
            lane[(i - start) % 16] += e;
        }
        for (int half = 8; half > 0; half /= 2) {
            for (int l = 0; l < half; l++) {
                lane[l] += lane[l + half];
            }
        }
        total += (double)lane[0];
    }
    return total;
}

static float reference_max(int n)
{
    float max = -INFINITY;
    for (int i = 0; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    return max;
}

START_TEST(slices_cover_the_vocabulary_in_steps_of_64)
{
    const int sizes[] = {1, 63, 64, 65, 257, 4096, 32000, 128256, 151936};
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes; v++) {
        for (int n_slices = 1; n_slices <= SLICES_MAX; n_slices *= 2) {
            int32_t next = 0, first;
            int n_cols;
            for (int s = 0; s < n_slices; s++) {
                row_slice_range(sizes[v], n_slices, s, &first, &n_cols);
                ck_assert_int_eq(first, next);
                ck_assert(n_cols >= 0 && (n_cols == 0 || first % 64 == 0));
                next = first + n_cols;
            }
            ck_assert_int_eq(next, sizes[v]);
        }
    }
    int32_t first;
    int n_cols;
    row_slice_range(128256, 8, 7, &first, &n_cols);
    ck_assert_int_eq(first, 7 * 16064);
    ck_assert_int_eq(n_cols, 128256 - 7 * 16064);
}
END_TEST

/* The answer to wish for columns first_id .. first_id + n - 1, whose logits are `logits`. */
static int answer(int32_t first_id, int n, int slice, const struct row_wish *wish,
                  struct slice_row *row)
{
    const struct answer_item item = {logits, first_id, n, slice, wish};
    return row_slice_answer(&item, &arena, row, &err);
}

static void check_sums(int n, const float temperatures[2])
{
    struct row_wish wish = {.n_temperatures = 2, .entropy = true};
    memcpy(wish.temperatures, temperatures, sizeof wish.temperatures);
    struct slice_row row;
    arena_reset(&arena);
    CHECK_OK(answer(64, n, 1, &wish, &row));
    float max = reference_max(n);
    ck_assert(row.max == max);
    ck_assert(row.sum_exp[0] == reference_sum(n, max, temperatures[0], NULL, false));
    ck_assert(row.sum_exp[1] == reference_sum(n, max, temperatures[1], NULL, false));
    ck_assert(row.sum_exp_log == reference_sum(n, max, temperatures[0], NULL, true));
}

START_TEST(sums_equal_the_scalar_definition_bit_for_bit)
{
    const int sizes[] = {1, 2, 15, 16, 17, 64, 1000, 1023, 1024, 1025, 2048, COLS_MAX};
    const double spreads[] = {1e-3, 5, 60, 200};
    for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++) {
        fill(COLS_MAX, spreads[s], false);
        logits[9] = -INFINITY;
        logits[1024] = -INFINITY;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_sums(sizes[i], (float[]){1, 0.7f});
            check_sums(sizes[i], (float[]){0.01f, 3.3f});
        }
    }
}
END_TEST

START_TEST(sums_are_close_to_exact_sums)
{
    fill(COLS_MAX, 30, false);
    struct row_wish wish = {.n_temperatures = 1, .temperatures = {0.8f}};
    struct slice_row row;
    CHECK_OK(answer(0, COLS_MAX, 0, &wish, &row));
    double exact = 0;
    for (int i = 0; i < COLS_MAX; i++) {
        exact += exp(((double)logits[i] - (double)row.max) / (double)0.8f);
    }
    ck_assert(fabs(row.sum_exp[0] / exact - 1) < 1e-6);
}
END_TEST

/* Every reported token must be the best of those not yet reported. */
static void check_best(int n, int32_t first_id, const struct row_wish *wish)
{
    static bool taken[COLS_MAX];
    memset(taken, 0, sizeof taken);
    struct slice_row row;
    arena_reset(&arena);
    CHECK_OK(answer(first_id, n, 0, wish, &row));
    ck_assert_int_eq(row.n_best, wish->n_best < n ? wish->n_best : n);
    for (int k = 0; k < row.n_best; k++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (taken[i]) continue;
            if (best < 0 || logits[i] > logits[best]) best = i;
        }
        taken[best] = true;
        ck_assert_int_eq(row.best_ids[k], first_id + best);
        ck_assert(row.best_logits[k] == logits[best]);
    }
}

START_TEST(best_equals_a_full_sort_and_ties_go_to_the_lowest_id)
{
    const int wished[] = {1, 2, 7, 64, 300, 5000};
    for (int ties = 0; ties <= 1; ties++) {
        fill(700, 4, ties);
        logits[3] = logits[650] = -INFINITY;
        for (size_t i = 0; i < sizeof wished / sizeof *wished; i++) {
            check_best(700, 640, &(struct row_wish){.n_best = wished[i]});
            check_best(33, 0, &(struct row_wish){.n_best = wished[i]});
        }
    }
    for (int i = 0; i < 100; i++) {
        logits[i] = -INFINITY;
    }
    check_best(100, 0, &(struct row_wish){.n_best = 5});
}
END_TEST

START_TEST(ids_come_in_the_order_of_the_wish)
{
    fill(200, 5, false);
    const int32_t ids[] = {700, 130, 64, 263, 264, 63, 65};
    struct row_wish wish = {.n_ids = 7, .ids = ids};
    struct slice_row row;
    CHECK_OK(answer(64, 200, 0, &wish, &row));
    ck_assert_int_eq(row.n_ids, 4);
    ck_assert(row.id_logits[0] == logits[66] && row.id_logits[1] == logits[0]);
    ck_assert(row.id_logits[2] == logits[199] && row.id_logits[3] == logits[1]);
}
END_TEST

START_TEST(outside_sum_leaves_out_the_list_and_nothing_else)
{
    static bool skip[COLS_MAX];
    static int32_t ids[COLS_MAX];
    struct row_wish wish = {.n_temperatures = 1, .temperatures = {1.3f}, .outside = true};
    wish.ids = ids;
    for (int stride = 1; stride < 1500; stride = stride * 3 + 1) {
        fill(COLS_MAX, 12, false);
        memset(skip, 0, sizeof skip);
        wish.n_ids = 0;
        for (int i = COLS_MAX - 1; i >= 0; i -= stride) {
            skip[i] = true;
            ids[wish.n_ids++] = 64 + i;
        }
        struct slice_row row;
        arena_reset(&arena);
        CHECK_OK(answer(64, COLS_MAX, 0, &wish, &row));
        ck_assert(row.outside_sum == reference_sum(COLS_MAX, row.max, 1.3f, skip, false));
        ck_assert(row.outside_id < 0 || row.outside_logit == logits[row.outside_id - 64]);
        if (stride == 1) {
            ck_assert(row.outside_sum == 0 && row.outside_id == -1);
        } else {
            ck_assert(row.outside_id >= 64 && row.outside_id < 64 + COLS_MAX);
            ck_assert(!skip[row.outside_id - 64]);
        }
    }
}
END_TEST

/* Chunk boundaries and the list matter here, hence more than one chunk of unequal mass. */
START_TEST(outside_draws_follow_the_distribution)
{
    enum { N = 2100, DRAWS = 40000 };
    static int64_t seen[N];
    static double wanted[N];
    const int32_t ids[] = {0, 5, 1023, 1024, 2099};
    fill(N, 8, false);
    logits[7] = -INFINITY;
    double total = 0;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < N; i++) {
        bool is_listed = i == 0 || i == 5 || i == 1023 || i == 1024 || i == 2099;
        wanted[i] = is_listed ? 0 : exp((double)logits[i]);
        total += wanted[i];
    }
    for (int i = 0; i < N; i++) {
        wanted[i] /= total;
    }
    struct row_wish wish = {
        .n_ids = 5, .ids = ids, .n_temperatures = 1, .temperatures = {1}, .outside = true};
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        struct slice_row row;
        wish.at = (struct rng_address){.seed = 5, .position = draw, .round = 3};
        arena_reset(&arena);
        CHECK_OK(answer(0, N, 0, &wish, &row));
        seen[row.outside_id]++;
    }
    struct stats_result result = stats_chi_square(seen, wanted, N);
    printf("outside: %d cells, chi-square %.1f, p %.4f\n", result.n_cells, result.chi_square,
           result.p_value);
    ck_assert(result.p_value > 1e-4);
}
END_TEST

START_TEST(outside_coins_differ_by_slice)
{
    fill(64, 0.1, false);
    struct row_wish wish = {.n_temperatures = 1, .temperatures = {1}, .outside = true};
    int n_equal = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        struct slice_row a, b;
        arena_reset(&arena);
        wish.at.seed = seed;
        CHECK_OK(answer(0, 64, 0, &wish, &a));
        CHECK_OK(answer(64, 64, 1, &wish, &b));
        n_equal += a.outside_id == b.outside_id - 64;
    }
    ck_assert_int_lt(n_equal, 20);
}
END_TEST

START_TEST(empty_and_masked_slices_have_no_mass)
{
    struct row_wish wish = {.n_best = 3,
                            .n_temperatures = 2,
                            .temperatures = {1, 1},
                            .entropy = true,
                            .outside = true,
                            .full = true};
    struct slice_row row;
    for (int n = 0; n <= 70; n += 70) {
        for (int i = 0; i < n; i++) {
            logits[i] = -INFINITY;
        }
        CHECK_OK(answer(512, n, 7, &wish, &row));
        ck_assert(row.slice == 7 && row.first_id == 512 && row.n_cols == n);
        ck_assert(row.max == -INFINITY && row.sum_exp[0] == 0 && row.sum_exp[1] == 0);
        ck_assert(row.sum_exp_log == 0 && row.outside_sum == 0 && row.outside_id == -1);
        ck_assert_int_eq(row.n_best, n ? 3 : 0);
    }
}
END_TEST

START_TEST(a_full_row_is_a_copy_of_the_logits)
{
    fill(100, 5, false);
    struct slice_row row;
    CHECK_OK(answer(0, 100, 0, &(struct row_wish){.full = true}, &row));
    ck_assert(row.full != logits && memcmp(row.full, logits, 100 * sizeof *logits) == 0);
}
END_TEST

START_TEST(logits_that_are_no_numbers_are_refused)
{
    struct row_wish wish = {.n_best = 1};
    struct slice_row row;
    const int at[] = {0, 15, 16, 95, 96, 99};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        fill(100, 5, false);
        logits[at[i]] = i % 2 ? NAN : -NAN;
        CHECK_ERR(answer(0, 100, 0, &wish, &row), ERR_FORMAT, "1 of the logits");
        logits[at[i]] = INFINITY;
        CHECK_ERR(answer(0, 100, 0, &wish, &row), ERR_FORMAT, "NaN or +inf");
    }
}
END_TEST

START_TEST(senseless_wishes_and_small_arenas_are_refused)
{
    fill(100, 5, false);
    struct slice_row row;
    const struct row_wish bad[] = {{.n_best = -1},
                                   {.n_ids = -1},
                                   {.n_temperatures = 3},
                                   {.n_temperatures = 1, .temperatures = {0}},
                                   {.n_temperatures = 1, .temperatures = {-1}},
                                   {.n_temperatures = 1, .temperatures = {NAN}},
                                   {.n_temperatures = 1, .temperatures = {1e-45f}},
                                   {.outside = true},
                                   {.noisy_best = true},
                                   {.buckets = ROW_BUCKETS_MASS},
                                   {.n_best = 1, .has_least = true, .least = NAN},
                                   {.buckets = ROW_BUCKETS_KINDS}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(answer(0, 100, 0, &bad[i], &row), ERR_ARGUMENT, "row wish");
    }
    const int32_t ids[] = {1, 2};
    const struct row_wish large[] = {
        {.n_best = 90},
        {.full = true},
        {.n_ids = 2, .ids = ids},
        {.n_temperatures = 1, .temperatures = {1}, .outside = true},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct arena tiny;
        CHECK_OK(arena_open(&tiny, 32, &err));
        const struct answer_item item = {logits, 0, 100, 0, &large[i]};
        CHECK_ERR(row_slice_answer(&item, &tiny, &row, &err), ERR_NO_MEMORY, "no room");
        arena_close(&tiny);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("row");
    TCase *tcase = tcase_create("row");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, slices_cover_the_vocabulary_in_steps_of_64);
    tcase_add_test(tcase, sums_equal_the_scalar_definition_bit_for_bit);
    tcase_add_test(tcase, sums_are_close_to_exact_sums);
    tcase_add_test(tcase, best_equals_a_full_sort_and_ties_go_to_the_lowest_id);
    tcase_add_test(tcase, ids_come_in_the_order_of_the_wish);
    tcase_add_test(tcase, outside_sum_leaves_out_the_list_and_nothing_else);
    tcase_add_test(tcase, outside_draws_follow_the_distribution);
    tcase_add_test(tcase, outside_coins_differ_by_slice);
    tcase_add_test(tcase, empty_and_masked_slices_have_no_mass);
    tcase_add_test(tcase, a_full_row_is_a_copy_of_the_logits);
    tcase_add_test(tcase, logits_that_are_no_numbers_are_refused);
    tcase_add_test(tcase, senseless_wishes_and_small_arenas_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
