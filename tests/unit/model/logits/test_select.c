/* ctest: labels=quick libs=logits timeout=120 */
/* The n best of a row, with a threshold in front of the heap, against a sort of the whole row. */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "model/logits/select.h"
#include "tests/support/check_util.h"

enum {
    ROW = 140003,
    KEPT_MAX = 5000
}; /* more than the blocks that are looked at once, and a tail */

static float row[ROW];
static struct select_item sorted[ROW], kept[KEPT_MAX];

/* How element i of n is made; u is uniform in [0, 1). */
typedef float element_fn(int i, int n, double u);

static float spread(int i, int n, double u)
{
    (void)i;
    (void)n;
    return (float)(u * 20 - 10);
}

/* Some hundred values in all: ties everywhere, also at the last that is kept. */
static float few_values(int i, int n, double u)
{
    (void)i;
    (void)n;
    return (float)floor(u * 100);
}

static float rising(int i, int n, double u)
{
    (void)n;
    (void)u;
    return (float)i;
}

static float falling(int i, int n, double u)
{
    (void)u;
    return (float)(n - i);
}

static float constant(int i, int n, double u)
{
    (void)i;
    (void)n;
    (void)u;
    return -3.5f;
}

/* 0 and -0 are equal: the lowest ids win, whichever zero they are. */
static float zeros(int i, int n, double u)
{
    (void)u;
    return i < n / 2 ? -0.0f : 0.0f;
}

static float negative_and_zeros(int i, int n, double u)
{
    (void)n;
    return u < 0.001 ? (i % 2 ? 0.0f : -0.0f) : (float)-u;
}

/* Masked but for a few. */
static float masked(int i, int n, double u)
{
    (void)i;
    (void)n;
    return u < 0.0005 ? (float)u : -INFINITY;
}

static float all_masked(int i, int n, double u)
{
    (void)i;
    (void)n;
    (void)u;
    return -INFINITY;
}

/* All that is best lies in the last block. */
static float in_one_block(int i, int n, double u)
{
    return i >= n - 64 ? 100.0f + (float)u : (float)-u;
}

/* Whole blocks of NaN of both signs, which must neither be kept nor hide what is. */
static float with_nans(int i, int n, double u)
{
    (void)n;
    if (i / 64 % 3 == 0) return i % 2 ? NAN : -NAN;
    return (float)(u * 3);
}

static float with_endless(int i, int n, double u)
{
    (void)n;
    return i % 1001 == 0 ? INFINITY : (float)u;
}

/* Subnormal numbers: their keys lie beside that of 0. */
static float subnormal(int i, int n, double u)
{
    (void)i;
    (void)n;
    return num_bits_to_float((uint32_t)(u * 5000) |
                             (u * 1e5 - floor(u * 1e5) < 0.5 ? 1u << 31 : 0));
}

static const struct {
    const char *name;
    element_fn *fn;
    bool has_nan;
} rows[] = {
    {"spread", spread, false},
    {"few values", few_values, false},
    {"rising", rising, false},
    {"falling", falling, false},
    {"constant", constant, false},
    {"zeros", zeros, false},
    {"negative and zeros", negative_and_zeros, false},
    {"masked", masked, false},
    {"all masked", all_masked, false},
    {"in one block", in_one_block, false},
    {"NaN", with_nans, true},
    {"endless", with_endless, false},
    {"subnormal", subnormal, false},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int by_rank(const void *a, const void *b)
{
    const struct select_item *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The first n of a stable sort of what may be offered. */
static int sort_row(int n, bool with_masked)
{
    int n_sorted = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(row[i]) || (!with_masked && row[i] == -INFINITY)) continue;
        sorted[n_sorted++] = (struct select_item){(double)row[i], i};
    }
    qsort(sorted, (size_t)n_sorted, sizeof *sorted, by_rank);
    return n_sorted;
}

/* n_sorted: what sort_row said. */
static void check_row(const char *name, int n, int n_sorted, int capacity, bool with_masked)
{
    struct select_heap heap = {.items = kept, .capacity = capacity};
    select_offer_logits(&heap, row, n, with_masked);
    select_sort_best(&heap);
    int wanted = n_sorted < capacity ? n_sorted : capacity;
    ck_assert_msg(heap.n == wanted, "%s, %d of %d: kept %d", name, wanted, n, heap.n);
    for (int i = 0; i < wanted; i++) {
        ck_assert_msg(kept[i].id == sorted[i].id && kept[i].score == sorted[i].score,
                      "%s, %d of %d: place %d has id %d (%g), wanted %d (%g)", name, capacity, n, i,
                      kept[i].id, kept[i].score, sorted[i].id, sorted[i].score);
    }
}

static void check_capacities(int row_index, int n, bool with_masked)
{
    static const int capacities[] = {1, 2, 64, 65, 300, KEPT_MAX};
    int n_sorted = sort_row(n, with_masked);
    for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++) {
        check_row(rows[row_index].name, n, n_sorted, capacities[c], with_masked);
    }
}

START_TEST(the_best_are_those_of_a_sort)
{
    static const int lengths[] = {1, 63, 64, 65, 4096, 32000, 131072, ROW};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l];
        for (int i = 0; i < n; i++) {
            const struct rng_address at = {(uint64_t)_i + 17, (uint32_t)i, (uint32_t)l};
            row[i] = rows[_i].fn(i, n, rng_uniform(&at, RNG_DRAFT, 0));
        }
        check_capacities(_i, n, false);
        if (!rows[_i].has_nan) check_capacities(_i, n, true);
    }
}
END_TEST

/* Few and many items, also with ids that occur twice, as a peer might send them: none gets lost. */
START_TEST(ids_are_sorted_whatever_they_are)
{
    static const int lengths[] = {0, 1, 2, 17, 64, 65, KEPT_MAX};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int n = lengths[l];
        double sum = 0, sum_sorted = 0;
        for (int i = 0; i < n; i++) {
            const struct rng_address at = {31, (uint32_t)i, (uint32_t)l};
            double u = rng_uniform(&at, RNG_DRAFT, 0);
            kept[i] = (struct select_item){(double)(1 << i % 20), (int32_t)(u * n * 0.7)};
            sum += kept[i].score * (1 + kept[i].id);
        }
        select_sort_ids(kept, n);
        for (int i = 0; i < n; i++) {
            sum_sorted += kept[i].score * (1 + kept[i].id);
            ck_assert(i == 0 || kept[i].id >= kept[i - 1].id);
        }
        ck_assert(sum == sum_sorted);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("select");
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, the_best_are_those_of_a_sort, 0, N_ROWS);
    tcase_add_test(tcase, ids_are_sorted_whatever_they_are);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
