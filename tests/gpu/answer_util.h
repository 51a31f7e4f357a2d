/* Inputs and checks of test_cuda_answer.cpp: logits of many kinds, on the host and on the device,
 * and a bit for bit comparison of the device's answers with those of row_slice_answer. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend/cuda/internal.cuh"

extern "C" {
#include "model/logits/row.h"
#include "model/numerics/numerics.h"
}

#include "tests/support/check_util.h"

enum { COLS_MAX = 300000, ITEMS_MAX = 12, ARENA_BYTES = 8 << 20 };

static struct backend *be;
static struct arena arena, reference_arena;
static struct error err;
static float logits[COLS_MAX];
static float *device_logits;
static uint64_t n_random;

static uint32_t random_below(uint32_t n)
{
    struct rng_address at = {.seed = 4711, .position = (uint32_t)(n_random >> 32), .round = 0};
    return (uint32_t)(rng_uniform(&at, RNG_WEIGHT, (uint32_t)n_random++) * n);
}

static double random_uniform(void)
{
    return random_below(1u << 30) * 0x1p-30;
}

static void setup(void)
{
    struct backend_cuda_options options = {};
    CHECK_OK(backend_cuda_open(&be, &options, &err));
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    CHECK_OK(arena_open(&reference_arena, ARENA_BYTES, &err));
    ck_assert(cudaMalloc((void **)&device_logits, sizeof logits) == cudaSuccess);
}

static void teardown(void)
{
    cudaFree(device_logits);
    arena_close(&arena);
    arena_close(&reference_arena);
    be->ops->close(be);
}

/* --- Logits --- */

enum fill_kind {
    FILL_SPREAD,
    FILL_TIES,
    FILL_MASKED_TAIL,
    FILL_ALL_MASKED,
    FILL_EQUAL,
    FILL_ASCENDING,
    FILL_ZEROS,    /* +0, -0 and a few others */
    FILL_ONE_LANE, /* the best ones are all at one column modulo 512 */
    FILL_KINDS
};

static float logit_of(enum fill_kind kind, int i, int n, double spread)
{
    double x = (random_uniform() + random_uniform() - 1) * spread;
    switch (kind) {
    case FILL_TIES:
        return (float)(floor(x * 4) / 4);
    case FILL_MASKED_TAIL:
        return i > n / 3 ? -INFINITY : (float)x;
    case FILL_ALL_MASKED:
        return -INFINITY;
    case FILL_EQUAL:
        return (float)spread;
    case FILL_ASCENDING:
        return (float)(i * 0.01);
    case FILL_ZEROS:
        return random_below(9) == 0 ? (float)-fabs(x) : random_below(2) ? -0.0f : 0.0f;
    case FILL_ONE_LANE:
        return (float)(i % 512 == 7 ? 10 + x * 0.01 : x * 0.01);
    default:
        return (float)x;
    }
}

/* The backend's stream does not wait for this copy, and a copy from memory that is not pinned may
 * still run when the call returns. */
static void upload(int n)
{
    ck_assert(cudaMemcpy(device_logits, logits, (size_t)n * sizeof *logits,
                         cudaMemcpyHostToDevice) == cudaSuccess);
    ck_assert(cudaDeviceSynchronize() == cudaSuccess);
}

static void fill(enum fill_kind kind, int n, double spread)
{
    for (int i = 0; i < n; i++) {
        logits[i] = logit_of(kind, i, n, spread);
    }
    upload(n);
}

/* --- Equality --- */

static void same_bytes(const void *a, const void *b, size_t bytes, const char *what, int item)
{
    ck_assert_msg(memcmp(a, b, bytes) == 0, "item %d: %s differs", item, what);
}

static void same_row(const struct slice_row *row, const struct slice_row *wanted, int item)
{
    size_t n_best = (size_t)wanted->n_best, n_ids = (size_t)wanted->n_ids;
    ck_assert_int_eq(row->code, wanted->code);
    ck_assert_int_eq(row->n_bad, wanted->n_bad);
    ck_assert_int_eq(row->slice, wanted->slice);
    ck_assert_int_eq(row->first_id, wanted->first_id);
    ck_assert_int_eq(row->n_cols, wanted->n_cols);
    ck_assert_int_eq(row->n_best, wanted->n_best);
    ck_assert_int_eq(row->n_ids, wanted->n_ids);
    ck_assert((row->full == NULL) == (wanted->full == NULL));
    if (n_best) same_bytes(row->best_ids, wanted->best_ids, n_best * sizeof(int32_t), "id", item);
    if (n_best) same_bytes(row->best_logits, wanted->best_logits, n_best * 4, "best", item);
    if (n_ids) same_bytes(row->id_logits, wanted->id_logits, n_ids * 4, "listed logit", item);
    same_bytes(&row->max, &wanted->max, sizeof row->max, "max", item);
    same_bytes(row->sum_exp, wanted->sum_exp, sizeof row->sum_exp, "sum_exp", item);
    same_bytes(&row->sum_exp_log, &wanted->sum_exp_log, sizeof(double), "sum_exp_log", item);
    same_bytes(&row->outside_sum, &wanted->outside_sum, sizeof(double), "outside_sum", item);
    ck_assert_int_eq(row->outside_id, wanted->outside_id);
    same_bytes(&row->outside_logit, &wanted->outside_logit, 4, "outside_logit", item);
    ck_assert_int_eq(row->noisy_id, wanted->noisy_id);
    same_bytes(&row->noisy_logit, &wanted->noisy_logit, 4, "noisy_logit", item);
    ck_assert_int_eq(row->n_buckets, wanted->n_buckets);
    size_t n_buckets = (size_t)wanted->n_buckets;
    if (n_buckets) same_bytes(row->buckets, wanted->buckets, n_buckets * 4, "bucket", item);
    if (wanted->full) same_bytes(row->full, wanted->full, (size_t)row->n_cols * 4, "full", item);
}

/* An item over columns first .. first + n - 1 of logits. Its logits are host memory until `answer`
 * replaces them. */
static struct answer_item item_of(int first, int n, int slice, int32_t first_id,
                                  const struct row_wish *wish)
{
    return (struct answer_item){logits + first, first_id, n, slice, wish};
}

static int answer(const struct answer_item *items, int n, struct slice_row *out)
{
    struct answer_item there[ITEMS_MAX];
    for (int i = 0; i < n; i++) {
        there[i] = items[i];
        there[i].logits = device_logits + (items[i].logits - logits);
    }
    arena_reset(&arena);
    return cuda_answer(be, there, n, &arena, out, &err);
}

/* Every item has the answer of row_slice_answer, or is refused as by it. Returns which are refused,
 * as bits. */
static unsigned same_answers_or_refusals(const struct answer_item *items, int n)
{
    struct slice_row rows[ITEMS_MAX], wanted;
    unsigned refused = 0;
    CHECK_OK(answer(items, n, rows));
    for (int i = 0; i < n; i++) {
        arena_reset(&reference_arena);
        int rc = row_slice_answer(&items[i], &reference_arena, &wanted, &err);
        ck_assert_int_eq(rc, wanted.code);
        same_row(&rows[i], &wanted, i);
        if (rc) refused |= 1u << i;
    }
    return refused;
}

static void same_answers(const struct answer_item *items, int n)
{
    ck_assert_uint_eq(same_answers_or_refusals(items, n), 0);
}

static void same_answer(int n, const struct row_wish *wish)
{
    struct answer_item item = item_of(0, n, 3, 640, wish);
    same_answers(&item, 1);
}
