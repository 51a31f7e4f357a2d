/* ctest: labels=quick,threads libs=logits timeout=120 */
/* The wishes that take short cuts (bounds, noise, buckets) against slow references, and answers
 * that are shared out over a team against those of one thread. */
#include <math.h>
#include <stdio.h>

#include "model/logits/answer.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

enum { COLS_MAX = 5003, WIDE = 40000, ITEMS_MAX = 24, IDS_MAX = 200, ARENA_BYTES = 32 << 20 };

static struct arena arena, reference_arena;
static struct error err;
static float logits[WIDE * 3];
static uint32_t n_random;

static double uniform(uint32_t index)
{
    return rng_uniform(&(struct rng_address){.seed = 78}, RNG_WEIGHT, index);
}

static int random_below(int n)
{
    return (int)(uniform(1000000 + n_random++) * n);
}

/* Logits with a spread of `spread`, in steps of 1 / 8 where ties are wanted. */
static void fill(int n, double spread, bool with_ties)
{
    for (int i = 0; i < n; i++) {
        double x = (uniform((uint32_t)i) + uniform((uint32_t)i + 300000) - 1) * spread;
        logits[i] = (float)(with_ties ? floor(x * 8) / 8 : x);
    }
}

static void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    CHECK_OK(arena_open(&reference_arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&arena);
    arena_close(&reference_arena);
}

static float reference_max(int n)
{
    float max = -INFINITY;
    for (int i = 0; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    return max;
}

/* The answer to wish for columns first_id .. first_id + n - 1, whose logits are `logits`. */
static int answer(int32_t first_id, int n, int slice, const struct row_wish *wish,
                  struct slice_row *row)
{
    const struct answer_item item = {logits, first_id, n, slice, wish};
    return row_slice_answer(&item, &arena, row, &err);
}

/* With a bound, only logits that reach it, and no more than wished. */
START_TEST(best_with_a_bound_equals_the_head_of_a_full_sort)
{
    static int32_t ids[COLS_MAX];
    const float bounds[] = {-INFINITY, -3, -0.0f, 0, 1.5f, 1e6f};
    for (int ties = 0; ties <= 1; ties++) {
        fill(COLS_MAX, 4, ties);
        logits[3] = logits[650] = -INFINITY;
        logits[4] = 0, logits[100] = -0.0f;
        struct slice_row all;
        CHECK_OK(answer(64, COLS_MAX, 0, &(struct row_wish){.n_best = COLS_MAX}, &all));
        memcpy(ids, all.best_ids, sizeof ids);
        for (int i = 0; i < 12; i++) {
            struct row_wish wish = {.n_best = i % 2 ? 700 : COLS_MAX, .has_least = true};
            struct slice_row row;
            int n = 0;
            wish.least = bounds[i / 2];
            while (n < wish.n_best && logits[ids[n] - 64] >= wish.least) {
                n++;
            }
            arena_reset(&arena);
            CHECK_OK(answer(64, COLS_MAX, 0, &wish, &row));
            ck_assert_int_eq(row.n_best, n);
            ck_assert(n == 0 || memcmp(row.best_ids, ids, (size_t)n * sizeof *ids) == 0);
            for (int k = 0; k < n; k++) {
                ck_assert(row.best_logits[k] == logits[ids[k] - 64]);
            }
        }
        arena_reset(&arena);
    }
}
END_TEST

static void check_noisy(int n, int32_t first_id, const struct row_wish *wish)
{
    struct slice_row row;
    double best = -HUGE_VAL;
    int column = -1; /* a column without mass never wins */
    for (int i = 0; i < n; i++) {
        uint32_t token = (uint32_t)(first_id + i);
        uint32_t bits = rng_coupled_bits(wish->at.seed, wish->at.position, token);
        double score = row_noisy_score(logits[i], wish->temperatures[0], bits);
        if (score > best) column = i;
        best = score > best ? score : best;
    }
    arena_reset(&arena);
    CHECK_OK(answer(first_id, n, 0, wish, &row));
    ck_assert_int_eq(row.noisy_id, column < 0 ? -1 : first_id + column);
    ck_assert(column < 0 || row.noisy_logit == logits[column]);
    ck_assert_int_eq(row.n_best, wish->n_best);
}

START_TEST(noisy_best_equals_scoring_every_token)
{
    struct row_wish wish = {.noisy_best = true, .n_temperatures = 1};
    const float temperatures[] = {1e-30f, 1e-6f, 0.05f, 0.8f, 1, 10, 1e6f, 1e30f};
    const double spreads[] = {0, 1e-3, 4, 12, 60, 1e4};
    for (uint32_t seed = 0; seed < 4000; seed++) {
        int n = seed % 10 ? 300 : COLS_MAX;
        fill(n, spreads[seed % 6], seed % 5 == 0);
        logits[2] = -INFINITY;
        wish.at = (struct rng_address){.seed = seed * 0x123456789u, .position = seed};
        wish.temperatures[0] = temperatures[seed % 8];
        wish.n_best = (int)(seed % 3);
        check_noisy(n, 64, &wish);
        check_noisy(n, 67, &wish); /* noise does not depend on how slices lie */
        check_noisy(3, 1, &wish);
    }
    for (int i = 0; i < 100; i++) {
        logits[i] = -INFINITY;
    }
    check_noisy(100, 64, &wish);
    /* one column is far above the others, so that most have no noise */
    for (int i = 0; i < COLS_MAX; i++) {
        logits[i] = i == 3000 ? 0 : -30;
    }
    wish.temperatures[0] = 1;
    check_noisy(COLS_MAX, 64, &wish);
}
END_TEST

START_TEST(buckets_hold_the_mass_and_the_number_of_their_logits)
{
    const float temperatures[] = {0.05f, 1, 7};
    for (int i = 0; i < 18; i++) {
        double wanted[ROW_BUCKETS + 1] = {0}, counts[ROW_BUCKETS + 1] = {0};
        float t = temperatures[i % 3];
        int n = i % 2 ? COLS_MAX : 100;
        fill(n, 0.01 * pow(10, i / 3), false);
        logits[7] = -INFINITY;
        float max = reference_max(n);
        struct slice_row mass, count;
        struct row_wish wish = {.n_temperatures = 1, .temperatures = {t}};
        for (int c = 0; c < n; c++) {
            double place = row_bucket(max, t) - row_bucket(logits[c], t);
            int b = place < ROW_BUCKETS ? (int)place : ROW_BUCKETS;
            wanted[b] += (double)num_exp((logits[c] - max) * (1.0f / t));
            counts[b]++;
        }
        arena_reset(&arena);
        wish.buckets = ROW_BUCKETS_MASS;
        CHECK_OK(answer(64, n, 0, &wish, &mass));
        wish.buckets = ROW_BUCKETS_COUNT;
        CHECK_OK(answer(64, n, 0, &wish, &count));
        ck_assert(count.n_buckets == 0 || count.buckets[count.n_buckets - 1] > 0);
        for (int b = 0; b < ROW_BUCKETS; b++) {
            double m = b < mass.n_buckets ? (double)mass.buckets[b] : 0;
            double k = b < count.n_buckets ? (double)count.buckets[b] : 0;
            ck_assert_msg(fabs(k - counts[b]) <= 1, "bucket %d: %g, not %g", b, k, counts[b]);
            ck_assert(k != counts[b] || fabs(m - wanted[b]) <= 1e-6 * wanted[b] + n * 0x1p-30);
        }
    }
}
END_TEST

static void same_bytes(const void *a, const void *b, int n, size_t size, const char *what)
{
    ck_assert_msg(n == 0 || memcmp(a, b, (size_t)n * size) == 0, "%s differs", what);
}

static void same_row(const struct slice_row *a, const struct slice_row *b)
{
    ck_assert(a->code == b->code && a->n_bad == b->n_bad && a->slice == b->slice);
    ck_assert(a->first_id == b->first_id && a->n_cols == b->n_cols);
    ck_assert(a->n_best == b->n_best && a->n_ids == b->n_ids && a->n_buckets == b->n_buckets);
    same_bytes(a->best_ids, b->best_ids, a->n_best, sizeof(int32_t), "best id");
    same_bytes(a->best_logits, b->best_logits, a->n_best, sizeof(float), "best logit");
    same_bytes(a->id_logits, b->id_logits, a->n_ids, sizeof(float), "listed logit");
    same_bytes(a->buckets, b->buckets, a->n_buckets, sizeof(float), "bucket");
    ck_assert((a->full == NULL) == (b->full == NULL));
    same_bytes(a->full, b->full, a->full ? a->n_cols : 0, sizeof(float), "full");
    ck_assert(a->noisy_id == b->noisy_id && a->noisy_logit == b->noisy_logit);
    same_bytes(&a->max, &b->max, 1, sizeof a->max, "max");
    same_bytes(a->sum_exp, b->sum_exp, ROW_TEMPERATURES_MAX, sizeof(double), "sum_exp");
    same_bytes(&a->sum_exp_log, &b->sum_exp_log, 1, sizeof(double), "sum_exp_log");
    same_bytes(&a->outside_sum, &b->outside_sum, 1, sizeof(double), "outside_sum");
    ck_assert(a->outside_id == b->outside_id && a->outside_logit == b->outside_logit);
}

static void random_wish(struct row_wish *wish, int32_t *ids, int n_vocab)
{
    const int counts[] = {0, 1, 20, 64, 700, WIDE};
    *wish = (struct row_wish){.n_temperatures = 1 + random_below(2),
                              .temperatures = {0.7f, 1},
                              .n_best = counts[random_below(6)],
                              .noisy_best = random_below(2),
                              .entropy = random_below(2),
                              .outside = random_below(2),
                              .buckets = (enum row_buckets)random_below(ROW_BUCKETS_KINDS),
                              .has_least = random_below(3) == 0,
                              .full = random_below(6) == 0,
                              .at = {.seed = n_random, .position = n_random / 7},
                              .ids = ids};
    for (int id = random_below(9); id < n_vocab && wish->n_ids < IDS_MAX;) {
        ids[wish->n_ids++] = id;
        id += 1 + random_below(500);
    }
}

/* Rows of slices with wishes of all kinds, among them some that nobody can answer. */
static int random_items(struct answer_item *items, struct row_wish wishes[3],
                        int32_t ids[3][IDS_MAX])
{
    int n = 0, n_rows = 1 + random_below(3), n_slices = 1 << random_below(4);
    int n_vocab = random_below(4) ? WIDE : 1 + random_below(WIDE);
    fill(n_rows * n_vocab, 1 + random_below(30), random_below(3) == 0);
    if (random_below(4) == 0) logits[random_below(n_rows * n_vocab)] = NAN;
    for (int r = 0; r < n_rows; r++) {
        random_wish(&wishes[r], ids[r], n_vocab);
        if (random_below(12) == 0) wishes[r].n_best = -1;
        for (int s = 0; s < n_slices; s++) {
            struct answer_item *item = &items[n++];
            *item = (struct answer_item){.slice = s, .wish = &wishes[r]};
            row_slice_range(n_vocab, n_slices, s, &item->first_id, &item->n_cols);
            item->logits = logits + (size_t)r * (size_t)n_vocab + item->first_id;
        }
    }
    return n;
}

START_TEST(answers_do_not_depend_on_the_number_of_threads)
{
    static int32_t ids[3][IDS_MAX];
    struct team *team;
    CHECK_OK(team_open(&team, _i, 0, &err));
    for (int trial = 0; trial < 60; trial++) {
        struct answer_item items[ITEMS_MAX];
        struct row_wish wishes[3];
        struct slice_row rows[ITEMS_MAX], wanted;
        int n = random_items(items, wishes, ids);
        arena_reset(&arena);
        answer_items(team, items, n, &arena, rows);
        for (int i = 0; i < n; i++) {
            arena_reset(&reference_arena);
            ck_assert_int_eq(row_slice_answer(&items[i], &reference_arena, &wanted, &err),
                             wanted.code);
            same_row(&rows[i], &wanted);
        }
    }
    team_close(team);
}
END_TEST

/* With room for the arrays but not for every member's scratch, one thread does all of it. */
START_TEST(a_small_arena_costs_threads_and_then_rows_but_no_bits)
{
    struct team *team;
    struct answer_item items[8];
    struct slice_row rows[8], wanted;
    const struct row_wish wish = {
        .n_best = WIDE, .noisy_best = true, .n_temperatures = 1, .temperatures = {1}};
    int n_refused = 0;
    fill(WIDE, 8, false);
    for (int s = 0; s < 8; s++) {
        items[s] = (struct answer_item){.slice = s, .wish = &wish};
        row_slice_range(WIDE, 8, s, &items[s].first_id, &items[s].n_cols);
        items[s].logits = logits + items[s].first_id;
    }
    CHECK_OK(team_open(&team, 4, 0, &err));
    for (size_t bytes = 64; bytes < 1 << 20; bytes += 20000) {
        struct arena small = {.base = arena.base, .size_bytes = bytes};
        answer_items(team, items, 8, &small, rows);
        for (int s = 0; s < 8; s++) {
            n_refused += rows[s].code == ERR_NO_MEMORY;
            if (rows[s].code) continue;
            arena_reset(&reference_arena);
            CHECK_OK(row_slice_answer(&items[s], &reference_arena, &wanted, &err));
            same_row(&rows[s], &wanted);
        }
    }
    ck_assert_int_gt(n_refused, 8);
    ck_assert_int_eq(rows[7].code, 0);
    team_close(team);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answer");
    TCase *tcase = tcase_create("answer");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, best_with_a_bound_equals_the_head_of_a_full_sort);
    tcase_add_test(tcase, noisy_best_equals_scoring_every_token);
    tcase_add_test(tcase, buckets_hold_the_mass_and_the_number_of_their_logits);
    tcase_add_loop_test(tcase, answers_do_not_depend_on_the_number_of_threads, 1, 4);
    tcase_add_loop_test(tcase, answers_do_not_depend_on_the_number_of_threads, 16, 17);
    tcase_add_test(tcase, a_small_arena_costs_threads_and_then_rows_but_no_bits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
