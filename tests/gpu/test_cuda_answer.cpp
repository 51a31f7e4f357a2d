/* ctest: labels=gpu libs=model timeout=600 */
/* Row wishes answered on the device and by row_slice_answer on the same logits: equal bit for bit.
 * Runs on a GPU, and with CUDA_EMULATED on the CPU. --small: fewer trials, for a sanitizer. */
#include "tests/gpu/answer_util.h"

#ifdef CUDA_EMULATED
#include "model/backend/cuda/answer_math.cuh"
enum { WIDE = 40000 };
static int n_trials = 1000;
static uint32_t n_noise_seeds = 6;
#else
enum { WIDE = 152064 };
static int n_trials = 10000;
static uint32_t n_noise_seeds = 200;
#endif
enum { IDS_MAX = 4096 };

/* --- Each wish by itself --- */

static const int sizes[] = {1, 2, 15, 16, 17, 63, 64, 511, 512, 513, 1023, 1024, 1025, 2048, 5003};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

START_TEST(sums_are_equal_at_every_size_and_temperature)
{
    const float temperatures[][2] = {{1, 0.7f}, {0.01f, 3.3f}, {1e-30f, 1e30f}};
    const double spreads[] = {1e-3, 5, 60, 200};
    for (int s = 0; s < N_SIZES; s++) {
        for (int k = 0; k < 4; k++) {
            struct row_wish wish = {};
            fill(k % 2 ? FILL_SPREAD : FILL_MASKED_TAIL, sizes[s], spreads[k]);
            memcpy(wish.temperatures, temperatures[k % 3], sizeof wish.temperatures);
            for (wish.n_temperatures = 0; wish.n_temperatures <= 2; wish.n_temperatures++) {
                wish.entropy = wish.n_temperatures > 0;
                same_answer(sizes[s], &wish);
            }
        }
    }
}
END_TEST

START_TEST(best_is_equal_for_every_count_and_kind_of_logits)
{
    const int counts[] = {1, 2, 3, 20, 64, 300, 512, 513, 1024, 1025, 2000};
    const int columns[] = {1, 3, 70, 600, 4500};
    for (int kind = 0; kind < FILL_KINDS; kind++) {
        for (size_t s = 0; s < sizeof columns / sizeof *columns; s++) {
            fill((enum fill_kind)kind, columns[s], 9);
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                struct row_wish wish = {};
                wish.n_best = counts[k];
                same_answer(columns[s], &wish);
            }
        }
    }
}
END_TEST

START_TEST(best_is_equal_when_one_thread_has_them_all)
{
    const int counts[] = {2, 64, 500, 1000};
    fill(FILL_ONE_LANE, WIDE, 9);
    for (int i = 7 * 512; i < WIDE; i++) {
        logits[i] = i % 512 < 300 ? 20.0f + (float)(i % 13) : logits[i];
    }
    upload(WIDE);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        struct row_wish wish = {};
        wish.n_best = counts[k];
        same_answer(WIDE, &wish);
    }
}
END_TEST

START_TEST(noisy_best_is_equal)
{
    const float temperatures[] = {1e-30f, 0.05f, 0.8f, 1, 10, 1e30f};
    for (uint32_t i = 0; i < 48; i++) {
        int n = sizes[i % N_SIZES];
        struct row_wish wish = {};
        wish.noisy_best = true;
        wish.n_temperatures = 1;
        wish.temperatures[0] = temperatures[i % 6];
        wish.n_best = (int)(i % 3);
        wish.at = {.seed = i * 0x123456789abcull, .position = i, .round = 0};
        fill((enum fill_kind)(i % FILL_KINDS), n, i % 2 ? 4 : 60);
        for (int32_t first_id = 0; first_id <= 67; first_id += 67) { /* fours are cut */
            struct answer_item item = item_of(0, n, 0, first_id, &wish);
            same_answers(&item, 1);
        }
    }
}
END_TEST

/* Every score is 0, so the lowest column wins, unless the noise of any column is too large by a
 * bit, or that of the lowest too small. */
START_TEST(noise_is_equal_to_the_last_bit)
{
    const int n = 4096;
    for (uint32_t seed = 0; seed < n_noise_seeds; seed++) {
        struct row_wish wish = {};
        wish.noisy_best = true;
        wish.n_temperatures = 1;
        wish.temperatures[0] = 1;
        wish.at = {.seed = seed + 0x700000000ull, .position = 9, .round = 0};
        for (int i = 0; i < n; i++) {
            logits[i] = -num_gumbel(rng_coupled_bits(wish.at.seed, 9, (uint32_t)(640 + i)));
        }
        upload(n);
        struct answer_item item = item_of(0, n, 0, 640, &wish);
        struct slice_row row;
        CHECK_OK(answer(&item, 1, &row));
        ck_assert_int_eq(row.noisy_id, 640);
    }
}
END_TEST

START_TEST(listed_logits_come_in_the_order_of_the_wish)
{
    const int32_t ids[] = {9000, 700, 641, 640, 639, 1663, 1664, -5, 800};
    struct row_wish wish = {};
    wish.n_ids = 9;
    wish.ids = ids;
    fill(FILL_SPREAD, 1024, 5);
    same_answer(1024, &wish);
    same_answer(1, &wish);
}
END_TEST

/* A position whose coin of slice 3 is at least `low` and below `high`. */
static struct rng_address address_of_coin(double low, double high)
{
    struct rng_address at = {.seed = 99, .position = 0, .round = 4};
    for (;; at.position++) {
        double u = rng_uniform(&at, RNG_OUTSIDE, 3);
        if (u >= low && u < high) return at;
    }
}

START_TEST(draws_outside_are_equal_also_at_the_ends)
{
    static int32_t ids[IDS_MAX];
    const struct rng_address coins[] = {address_of_coin(0, 1e-5), address_of_coin(0.49, 0.51),
                                        address_of_coin(1 - 1e-5, 1)};
    const int columns[] = {1, 17, 1024, 1025, 4000};
    const int strides[] = {1, 2, 7, 5000}; /* 1: the whole slice is listed; 5000: one id */
    for (int trial = 0; trial < 5 * 4 * 3; trial++) {
        int n = columns[trial % 5];
        struct row_wish wish = {};
        wish.n_temperatures = 1;
        wish.temperatures[0] = trial % 2 ? 1.3f : 0.02f;
        wish.outside = true;
        wish.at = coins[trial % 3];
        wish.ids = ids;
        fill(trial % 7 ? FILL_SPREAD : FILL_MASKED_TAIL, n, 12);
        same_answer(n, &wish); /* nothing is listed */
        for (int i = 0; i < n; i += strides[trial % 4]) {
            ids[wish.n_ids++] = 640 + n - 1 - i;
        }
        same_answer(n, &wish);
    }
}
END_TEST

START_TEST(wide_slices_and_whole_ones_are_equal)
{
    struct row_wish wish = {};
    wish.n_best = 64;
    wish.n_temperatures = 2;
    wish.temperatures[0] = 0.9f;
    wish.temperatures[1] = 1;
    wish.entropy = wish.outside = true;
    fill(FILL_SPREAD, COLS_MAX, 25);
    same_answer(WIDE, &wish);
    same_answer(262144, &wish);
    same_answer(262145, &wish); /* more than the mask has room for, so the host answers */
    wish.full = true;
    same_answer(5000, &wish);
}
END_TEST

START_TEST(empty_and_masked_slices_are_equal)
{
    const int32_t ids[] = {640};
    struct row_wish wish = {};
    wish.n_best = 3;
    wish.n_ids = 1;
    wish.ids = ids;
    wish.n_temperatures = 2;
    wish.temperatures[0] = wish.temperatures[1] = 1;
    wish.entropy = wish.outside = true;
    fill(FILL_ALL_MASKED, 3000, 1);
    same_answer(0, &wish);
    same_answer(1, &wish);
    same_answer(3000, &wish);
    struct answer_item items[] = {item_of(0, 0, 0, 0, &wish), item_of(0, 0, 1, 0, &wish)};
    same_answers(items, 0);
    same_answers(items, 2);
}
END_TEST

/* --- All of them together --- */

static void random_wish(struct row_wish *wish, int32_t *ids, int32_t n_vocab)
{
    static const float temperatures[] = {1e-6f, 0.05f, 0.7f, 1, 1.5f, 40, 1e20f};
    static const int counts[] = {1, 1, 2, 8, 20, 64, 300, 700, 2000};
    *wish = {};
    wish->n_temperatures = (int)random_below(3);
    for (int k = 0; k < 2; k++) {
        wish->temperatures[k] = temperatures[random_below(7)];
    }
    wish->n_best = random_below(3) ? counts[random_below(9)] : 0;
    if (wish->n_temperatures > 0) {
        wish->noisy_best = random_below(3) == 0;
        wish->buckets = (enum row_buckets)random_below(ROW_BUCKETS_KINDS);
        wish->entropy = random_below(2);
        wish->outside = random_below(2);
    }
    wish->full = random_below(12) == 0;
    wish->has_least = random_below(12) == 0;
    wish->least = (float)(random_uniform() * 10 - 5);
    int stride = 1 + (int)random_below(random_below(2) ? 4 : 400);
    wish->ids = ids;
    for (int id = (int)random_below(9); id < n_vocab && wish->n_ids < 300; id += stride) {
        ids[wish->n_ids++] = id;
    }
    wish->at = {.seed = n_random * 0x9e3779b97f4a7c15ull,
                .position = random_below(5000),
                .round = random_below(100)};
}

START_TEST(random_wishes_over_rows_and_slices_are_equal)
{
    static int32_t ids[3][300];
    for (int trial = 0; trial < n_trials; trial++) {
        struct row_wish wishes[3];
        struct answer_item items[ITEMS_MAX];
        int n_rows = 1 + (int)random_below(3), n_slices = 1 << random_below(3), n = 0;
        int n_vocab = 1 + (int)random_below(random_below(4) ? 1500 : 9000);
        fill((enum fill_kind)random_below(FILL_KINDS), n_rows * n_vocab, 1 + random_uniform() * 40);
        for (int r = 0; r < n_rows; r++) {
            random_wish(&wishes[r], ids[r], n_vocab);
            for (int s = 0; s < n_slices; s++) {
                int32_t first_id;
                int n_cols;
                row_slice_range(n_vocab, n_slices, s, &first_id, &n_cols);
                items[n++] = item_of(r * n_vocab + first_id, n_cols, s, first_id, &wishes[r]);
            }
        }
        same_answers(items, n);
    }
}
END_TEST

/* --- Refusals --- */

START_TEST(a_slice_with_what_is_no_number_is_refused_alone)
{
    const float wrong[] = {NAN, -NAN, INFINITY};
    const int at[] = {0, 511, 512, 1023, 1999};
    struct row_wish wish = {}, whole = {};
    wish.n_best = 2;
    whole.full = true;
    for (int i = 0; i < 15; i++) {
        fill(FILL_SPREAD, 6000, 5);
        logits[2000 + at[i % 5]] = wrong[i % 3];
        logits[2000 + at[(i + 1) % 5]] = wrong[(i + 1) % 3];
        logits[5000] = NAN;
        upload(6000);
        struct answer_item items[] = {item_of(0, 2000, 0, 0, &wish),
                                      item_of(2000, 2000, 1, 2048, i % 2 ? &wish : &whole),
                                      item_of(4000, 2000, 2, 4096, &wish)};
        ck_assert_uint_eq(same_answers_or_refusals(items, 3), 1u << 1 | 1u << 2);
    }
}
END_TEST

START_TEST(a_senseless_wish_is_refused_alone)
{
    struct row_wish sound = {}, bad[9] = {};
    bad[0].n_best = -1;
    bad[1].n_ids = -1;
    bad[2].n_temperatures = 3;
    bad[3].n_temperatures = 1;
    bad[4].n_temperatures = 1, bad[4].temperatures[0] = -1;
    bad[5].n_temperatures = 1, bad[5].temperatures[0] = 1e-45f;
    bad[6].outside = true;
    bad[7].entropy = true;
    bad[8].noisy_best = true;
    fill(FILL_SPREAD, 300, 5);
    for (int i = 0; i < 9; i++) {
        struct answer_item items[] = {item_of(0, 100, 0, 0, &sound),
                                      item_of(100, i % 2 ? 0 : 100, 1, 128, &bad[i]),
                                      item_of(200, 100, 2, 256, &sound)};
        ck_assert_uint_eq(same_answers_or_refusals(items, 3), 1u << 1);
    }
}
END_TEST

START_TEST(a_full_arena_is_refused)
{
    const int32_t ids[] = {1, 2};
    struct row_wish wishes[3] = {};
    wishes[0].n_best = 90;
    wishes[1].n_ids = 2, wishes[1].ids = ids;
    wishes[2].full = true;
    fill(FILL_SPREAD, 100, 5);
    for (int i = 0; i < 3; i++) {
        struct answer_item item = {device_logits, 0, 100, 0, &wishes[i]};
        struct arena tiny;
        struct slice_row row;
        CHECK_OK(arena_open(&tiny, 32, &err));
        CHECK_OK(cuda_answer(be, &item, 1, &tiny, &row, &err));
        CHECK_ERR(row_slice_failure(&row, &wishes[i], &err), ERR_NO_MEMORY, "no room");
        ck_assert(row.n_best == 0 && row.outside_id == -1);
        arena_close(&tiny);
    }
}
END_TEST

#ifdef CUDA_EMULATED
START_TEST(elementary_functions_are_equal)
{
    for (uint32_t i = 0; i < 3000000; i++) {
        uint32_t bits = i < 1000 ? i : i < 2000 ? UINT32_MAX - (i - 1000) : i * 2654435761u;
        float noise = num_gumbel(bits), x = -100.0f * (float)bits * 0x1p-32f;
        double u = ((double)bits + 0.5) * 0x1p-32;
        ck_assert(device_log(u) == num_log(u) && device_log(-num_log(u)) == num_log(-num_log(u)));
        ck_assert(num_float_to_bits(device_gumbel(bits)) == num_float_to_bits(noise));
        ck_assert((double)noise <= noise_bound(bits));
        ck_assert(num_float_to_bits(device_exp(x)) == num_float_to_bits(num_exp(x)));
    }
}
END_TEST
#endif

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--small") == 0) {
        n_trials = 100;
        n_noise_seeds = 2;
    }
    Suite *suite = suite_create("cuda_answer");
    TCase *tcase = tcase_create("cuda_answer");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, sums_are_equal_at_every_size_and_temperature);
    tcase_add_test(tcase, best_is_equal_for_every_count_and_kind_of_logits);
    tcase_add_test(tcase, best_is_equal_when_one_thread_has_them_all);
    tcase_add_test(tcase, noisy_best_is_equal);
    tcase_add_test(tcase, noise_is_equal_to_the_last_bit);
    tcase_add_test(tcase, listed_logits_come_in_the_order_of_the_wish);
    tcase_add_test(tcase, draws_outside_are_equal_also_at_the_ends);
    tcase_add_test(tcase, wide_slices_and_whole_ones_are_equal);
    tcase_add_test(tcase, empty_and_masked_slices_are_equal);
    tcase_add_test(tcase, random_wishes_over_rows_and_slices_are_equal);
    tcase_add_test(tcase, a_slice_with_what_is_no_number_is_refused_alone);
    tcase_add_test(tcase, a_senseless_wish_is_refused_alone);
    tcase_add_test(tcase, a_full_arena_is_refused);
#ifdef CUDA_EMULATED
    tcase_add_test(tcase, elementary_functions_are_equal);
#endif
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
