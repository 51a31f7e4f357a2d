/* The n best columns of a slice by logit, and the best by noisy score, found on the device in the
 * order of model/logits/select.h: highest first, ties to the lowest column. All threads of a block
 * call these functions. */
#pragma once

#include "model/backend/cuda/answer_math.cuh"

/* The number of columns that can be kept and sorted in shared memory. It is at least 2 *
 * ANSWER_BEST_MAX, so that the bisection soon finds a floor that between n and this many columns
 * reach. A power of two. */
enum { KEPT_MAX = 2048 };

static_assert(KEPT_MAX / ANSWER_BEST_MAX >= 2 && KEPT_MAX / ANSWER_THREADS >= 1, "room to sort in");

/* One thread's results of the first pass over the slice. */
struct answer_scan {
    int32_t max_key; /* order_key of the largest logit */
    int32_t n_bad;
    uint64_t best;
};

static __device__ __forceinline__ void scan_slice(const struct answer_job *job,
                                                  struct answer_scan *scan)
{
    const float *logits = job->logits;
    int n_cols = job->n_cols;
    *scan = {INT32_MIN, 0, 0};
#pragma unroll 8
    for (int c = static_cast<int>(threadIdx.x); c < n_cols; c += ANSWER_THREADS) {
        float logit = logits[c];
        int32_t key = order_key(logit);
        uint64_t rank = rank_of(logit, c);
        scan->max_key = key > scan->max_key ? key : scan->max_key;
        scan->n_bad += !(logit < __uint_as_float(0x7f800000u));
        scan->best = rank > scan->best ? rank : scan->best;
    }
}

/* Sorts ranks[n], highest first, by a bitonic sort; n is a power of two. Begins and ends with a
 * barrier. */
static __device__ __forceinline__ void sort_ranks(uint64_t *ranks, int n)
{
    __syncthreads();
    for (int run = 2; run <= n; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            for (int pair = static_cast<int>(threadIdx.x); pair < n / 2; pair += ANSWER_THREADS) {
                int low = 2 * pair - (pair & (step - 1)), high = low + step;
                bool is_falling = (low & run) == 0;
                uint64_t a = ranks[low], b = ranks[high];
                if ((a < b) == is_falling) {
                    ranks[low] = b;
                    ranks[high] = a;
                }
            }
            __syncthreads();
        }
    }
}

static __device__ __forceinline__ int count_at_least(const struct answer_job *job, uint64_t floor,
                                                     struct block_room *room)
{
    const float *logits = job->logits;
    int n_cols = job->n_cols, n = 0;
#pragma unroll 8
    for (int c = static_cast<int>(threadIdx.x); c < n_cols; c += ANSWER_THREADS) {
        n += rank_of(logits[c], c) >= floor;
    }
    return block_sum(n, room);
}

/* A rank that at least n columns reach. Each thread's best column is a different column, so the
 * n-th best of these will do. With n up to 300 of 512 threads few more than n columns reach it. */
static __device__ __forceinline__ uint64_t first_floor(const struct answer_job *job, uint64_t own,
                                                       uint64_t *ranks)
{
    if (job->n_best > ANSWER_THREADS) return 0;
    ranks[threadIdx.x] = own;
    sort_ranks(ranks, ANSWER_THREADS);
    uint64_t floor = ranks[job->n_best - 1];
    __syncthreads();
    return floor;
}

/* Raises floor by bisection until n_best .. KEPT_MAX columns reach it. It ends because no two ranks
 * are equal. */
static __device__ __forceinline__ uint64_t raise_floor(const struct answer_job *job, uint64_t floor,
                                                       uint64_t best, struct block_room *room)
{
    uint64_t too_high = best + 1;
    while (too_high - floor > 1) {
        uint64_t middle = floor + (too_high - floor) / 2;
        int n = count_at_least(job, middle, room);
        if (n < job->n_best) {
            too_high = middle;
        } else {
            floor = middle;
            if (n <= KEPT_MAX) break;
        }
    }
    return floor;
}

/* Puts the ranks from floor on into ranks, in no particular order. Returns how many there are, even
 * if that is more than KEPT_MAX. *n_kept is shared. */
static __device__ __forceinline__ int gather_ranks(const struct answer_job *job, uint64_t floor,
                                                   uint64_t *ranks, int *n_kept)
{
    const float *logits = job->logits;
    int n_cols = job->n_cols;
    if (threadIdx.x == 0) *n_kept = 0;
    __syncthreads();
#pragma unroll 8
    for (int c = static_cast<int>(threadIdx.x); c < n_cols; c += ANSWER_THREADS) {
        uint64_t rank = rank_of(logits[c], c);
        if (rank < floor) continue;
        int at = atomicAdd(n_kept, 1);
        if (at < KEPT_MAX) ranks[at] = rank;
    }
    __syncthreads();
    int n = *n_kept;
    __syncthreads();
    return n;
}

/* words: [n_best] columns, then [n_best] logits. */
static __device__ __forceinline__ void put_best(const struct answer_job *job, int i, int column,
                                                uint32_t *words)
{
    words[i] = static_cast<uint32_t>(column);
    words[job->n_best + i] = __float_as_uint(job->logits[column]);
}

/* The n_best >= 2 highest logits. own is the thread's best rank and best the block's;
 * ranks[KEPT_MAX] and n_kept are shared. */
static __device__ __forceinline__ void best_logits(const struct answer_job *job, uint64_t own,
                                                   uint64_t best, uint64_t *ranks, int *n_kept,
                                                   struct block_room *room, uint32_t *words)
{
    uint64_t floor = first_floor(job, own, ranks);
    int n = gather_ranks(job, floor, ranks, n_kept);
    if (n > KEPT_MAX) {
        floor = raise_floor(job, floor, best, room);
        n = gather_ranks(job, floor, ranks, n_kept);
    }
    int n_sorted = 2;
    while (n_sorted < n) {
        n_sorted *= 2;
    }
    for (int i = n + static_cast<int>(threadIdx.x); i < n_sorted; i += ANSWER_THREADS) {
        ranks[i] = 0;
    }
    sort_ranks(ranks, n_sorted);
    for (int i = static_cast<int>(threadIdx.x); i < job->n_best; i += ANSWER_THREADS) {
        put_best(job, i, rank_column(ranks[i]), words);
    }
}

/* A column and its noisy score. {-inf, INT32_MAX} means none and ranks after every column. */
struct scored {
    double score;
    int32_t column;
};

static __device__ __forceinline__ bool is_ahead(struct scored a, struct scored b)
{
    return a.score > b.score || (a.score == b.score && a.column < b.column);
}

/* The foremost column among those of a warp's threads. */
static __device__ __forceinline__ struct scored warp_foremost(struct scored mine)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct scored other = {__shfl_xor_sync(ALL_LANES, mine.score, step),
                               __shfl_xor_sync(ALL_LANES, mine.column, step)};
        if (is_ahead(other, mine)) mine = other;
    }
    return mine;
}

static __device__ __forceinline__ struct scored block_foremost(struct scored mine,
                                                               struct block_room *room)
{
    mine = warp_foremost(mine);
    if (threadIdx.x % WARP == 0) {
        room->bits[threadIdx.x / WARP] = static_cast<uint64_t>(__double_as_longlong(mine.score));
        room->column[threadIdx.x / WARP] = mine.column;
    }
    __syncthreads();
    for (int i = 0; i < ANSWER_WARPS; i++) {
        struct scored other = {__longlong_as_double(static_cast<long long>(room->bits[i])),
                               room->column[i]};
        if (is_ahead(other, mine)) mine = other;
    }
    __syncthreads();
    return mine;
}

/* Takes column c if it is ahead of *found. An upper bound comes first, because it saves two
 * logarithms and a division in double for every column that cannot be ahead of *found; `inverse` is
 * 1 / temperature, and the bound allows for what rounding may add. A bound that is NaN (-inf + inf)
 * rules nothing out. */
static __device__ __forceinline__ void consider(const struct answer_job *job, int c, uint32_t noise,
                                                double inverse, struct scored *found)
{
    double logit = static_cast<double>(job->logits[c]);
    double scaled = logit * inverse;
    if (scaled + fabs(scaled) * 1e-14 + noise_bound(noise) < found->score) return;
    struct scored item = {logit / static_cast<double>(job->temperature) +
                              static_cast<double>(device_gumbel(noise)),
                          c};
    if (is_ahead(item, *found)) *found = item;
}

/* The highest column by row_noisy_score among those whose bit is not set in mask (NULL: all). Each
 * thread takes the four tokens of one Philox call. The
 * warp shares the best column it has found after each call, because that lets most threads skip
 * most of theirs. */
static __device__ __forceinline__ void best_noisy(const struct answer_job *job,
                                                  const uint32_t *mask, struct block_room *room,
                                                  struct answer_result *result)
{
    struct scored found = {-__longlong_as_double(0x7ff0000000000000ll), INT32_MAX};
    double inverse = 1.0 / static_cast<double>(job->temperature);
    int first_group = job->first_id / 4;
    int n_groups = (job->first_id + job->n_cols - 1) / 4 - first_group + 1;
    for (int first = 0; first < n_groups; first += ANSWER_THREADS) {
        int group = first_group + first + static_cast<int>(threadIdx.x);
        uint32_t noise[4];
        coupled_four(job->seed, job->position, static_cast<uint32_t>(group), noise);
        for (int i = 0; i < 4; i++) {
            int c = group * 4 + i - job->first_id;
            if (c < 0 || c >= job->n_cols) continue;
            bool is_listed = mask && mask[c / 32] >> (c % 32) & 1;
            if (is_listed || !(job->logits[c] > -__uint_as_float(0x7f800000u))) continue;
            consider(job, c, noise[i], inverse, &found);
        }
        found = warp_foremost(found);
    }
    found = block_foremost(found, room);
    if (threadIdx.x == 0 && found.column != INT32_MAX) {
        result->noisy_column = found.column;
        result->noisy_logit = job->logits[found.column];
    }
}
