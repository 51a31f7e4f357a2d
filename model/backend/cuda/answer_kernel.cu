/* The kernel that answers row wishes: one block of threads for one slice. Its phases are those of
 * row_slice_answer (model/logits/answer.c), each in the same order of operations. */
#include "model/backend/cuda/answer_best.cuh"

enum {
    LANES = 16, /* model/logits/sums.c: float sums of a chunk, then a binary tree */
    CHUNK = 1024,
    CHUNKS_AT_ONCE = ANSWER_THREADS / LANES,
    MASK_BITS = 32,
    WALK_STEP = 16
};

/* Dynamic shared memory: ranks[KEPT_MAX] while the best are found; later e[CHUNK], then chunk sums
 * [ANSWER_SUMS][n_chunks], then the mask of the listed columns. */
struct sum_places {
    float *e;
    float *chunk_sums;
    uint32_t *mask;
    int n_chunks;
    unsigned long long *buckets; /* [ROW_BUCKETS] */
};

static size_t shared_bytes(int max_columns)
{
    size_t n_chunks = (static_cast<size_t>(max_columns) + CHUNK - 1) / CHUNK;
    size_t n_words = (static_cast<size_t>(max_columns) + MASK_BITS - 1) / MASK_BITS;
    size_t sums = (CHUNK + ANSWER_SUMS * n_chunks + n_words) * sizeof(float);
    size_t ranks = KEPT_MAX * sizeof(uint64_t);
    return sums > ranks ? sums : ranks;
}

static __device__ __forceinline__ bool is_listed(const uint32_t *mask, int column)
{
    return mask[column / MASK_BITS] >> (column % MASK_BITS) & 1;
}

static __device__ __forceinline__ void mask_columns(const struct answer_job *job,
                                                    const int32_t *columns, uint32_t *mask)
{
    int n_words = (job->n_cols + MASK_BITS - 1) / MASK_BITS;
    for (int i = static_cast<int>(threadIdx.x); i < n_words; i += ANSWER_THREADS) {
        mask[i] = 0;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < job->n_columns; i += ANSWER_THREADS) {
        int column = columns[job->first_column + i];
        atomicOr(&mask[column / MASK_BITS], 1u << (column % MASK_BITS));
    }
    __syncthreads();
}

/* chunk_buckets of model/logits/sums.c for one column. Sums of integers have no order. */
static __device__ __forceinline__ void add_to_bucket(const struct answer_job *job, float logit,
                                                     float above, float e,
                                                     unsigned long long *buckets)
{
    int32_t most = __float_as_int(static_cast<float>(ROW_BUCKETS));
    int32_t bits = __float_as_int(above - logit * job->steps_per_unit);
    bits = bits < most ? bits : most;
    bits = bits > 0 ? bits : 0;
    int place = static_cast<int>(__int_as_float(bits));
    if (place == ROW_BUCKETS) return;
    bool is_mass = job->buckets == ROW_BUCKETS_MASS;
    int32_t mass = static_cast<int32_t>(e * static_cast<float>(1 << ROW_MASS_BITS));
    atomicAdd(&buckets[place], static_cast<unsigned long long>(is_mass ? mass : 1));
}

/* One lane's part of all sums over chunk c. A sum that is not wished costs one branch, which all
 * threads take alike. */
static __device__ __forceinline__ void lane_sums(const struct answer_job *job,
                                                 const struct sum_places *places, float max, int c,
                                                 int lane, float sum[ANSWER_SUMS])
{
    const uint32_t *mask = places->mask;
    float above = floorf(max * job->steps_per_unit) + 1.0f;
    const float *logits = job->logits;
    float inverse = job->inverse[0], inverse_second = job->inverse[1];
    bool has_second = job->n_temperatures > 1, entropy = job->entropy, outside = job->outside;
    int end = min((c + 1) * CHUNK, job->n_cols);
#pragma unroll 4
    for (int i = c * CHUNK + lane; i < end; i += LANES) {
        float gap = logits[i] - max;
        float x = gap * inverse;
        float e = device_exp(x);
        sum[ANSWER_EXP] += e;
        if (has_second) sum[ANSWER_EXP_SECOND] += device_exp(gap * inverse_second);
        if (entropy) sum[ANSWER_EXP_LOG] += e * (x >= EXP_LEAST ? x : EXP_LEAST);
        if (outside && !is_listed(mask, i)) sum[ANSWER_OUTSIDE] += e;
        if (job->buckets) add_to_bucket(job, logits[i], above, e, places->buckets);
    }
}

/* The sums of all chunks. 16 threads work on a chunk, and their lanes are added by the tree lane[l]
 * += lane[l + 8], then 4, 2, 1. Threads past the last chunk add nothing but take part, because the
 * shuffles need whole warps. */
static __device__ __forceinline__ void sum_chunks(const struct answer_job *job,
                                                  const struct sum_places *places, float max)
{
    int lane = static_cast<int>(threadIdx.x) % LANES;
    for (int first = 0; first < places->n_chunks; first += CHUNKS_AT_ONCE) {
        int c = first + static_cast<int>(threadIdx.x) / LANES;
        float sum[ANSWER_SUMS] = {0, 0, 0, 0};
        if (c < places->n_chunks) lane_sums(job, places, max, c, lane, sum);
        for (int k = 0; k < ANSWER_SUMS; k++) {
            for (int half = LANES / 2; half > 0; half /= 2) {
                sum[k] += __shfl_down_sync(ALL_LANES, sum[k], half, LANES);
            }
            if (lane == 0 && c < places->n_chunks) {
                places->chunk_sums[k * places->n_chunks + c] = sum[k];
            }
        }
    }
    __syncthreads();
}

/* Adds the chunks in double, in ascending order; one thread for each kind of sum. Ends with a
 * barrier. */
static __device__ __forceinline__ void add_chunks(const struct sum_places *places,
                                                  struct answer_result *result, double *outside_sum)
{
    if (threadIdx.x < ANSWER_SUMS) {
        const float *sums = places->chunk_sums + static_cast<int>(threadIdx.x) * places->n_chunks;
        double total = 0;
        for (int c = 0; c < places->n_chunks; c++) {
            total += static_cast<double>(sums[c]);
        }
        result->sums[threadIdx.x] = total;
        if (threadIdx.x == ANSWER_OUTSIDE) *outside_sum = total;
    }
    __syncthreads();
}

/* The chunk in which the draw ends, -1 if no chunk has mass; *left becomes what is left of the draw
 * in that chunk. */
static __device__ __forceinline__ int outside_chunk(const struct sum_places *places, double *left)
{
    const float *mass = places->chunk_sums + ANSWER_OUTSIDE * places->n_chunks;
    int chosen = -1;
    for (int c = 0; c < places->n_chunks; c++) {
        if (!(mass[c] > 0)) continue;
        if (chosen >= 0) *left -= static_cast<double>(mass[chosen]);
        chosen = c;
        if (*left < static_cast<double>(mass[c])) break;
    }
    return chosen;
}

/* The first column of the chunk at which the running sum exceeds left, or else the last column with
 * mass. A column without mass adds 0, which changes nothing, so the sum may run WALK_STEP columns
 * ahead. */
static __device__ __forceinline__ int outside_walk(const float *e, double left)
{
    double sum = 0;
    for (int first = 0; first < CHUNK; first += WALK_STEP) {
        double before = sum;
        for (int i = 0; i < WALK_STEP; i++) {
            sum += static_cast<double>(e[first + i]);
        }
        if (!(left < sum)) continue;
        for (int i = first;; i++) {
            before += static_cast<double>(e[i]);
            if (left < before) return i;
        }
    }
    int last = CHUNK - 1;
    while (last > 0 && !(e[last] > 0)) {
        last--;
    }
    return last;
}

/* outside_draw of model/logits/sums.c. outside_sum and chosen are shared. */
static __device__ __forceinline__ void draw_outside(const struct answer_job *job,
                                                    const struct sum_places *places, float max,
                                                    double outside_sum, int *chosen,
                                                    struct answer_result *result)
{
    double left = 0; /* of thread 0 */
    if (threadIdx.x == 0) {
        left = outside_coin(job) * outside_sum;
        *chosen = outside_chunk(places, &left);
    }
    __syncthreads();
    if (*chosen < 0) return;
    int first = *chosen * CHUNK;
    for (int i = static_cast<int>(threadIdx.x); i < CHUNK; i += ANSWER_THREADS) {
        int c = first + i;
        bool counts = c < job->n_cols && !is_listed(places->mask, c);
        places->e[i] = counts ? device_exp((job->logits[c] - max) * job->inverse[0]) : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        result->outside_column = first + outside_walk(places->e, left);
        result->outside_logit = job->logits[result->outside_column];
    }
}

/* All sums of the answer. A slice of nothing but -inf has no mass. */
static __device__ __forceinline__ void answer_sums(const struct answer_job *job,
                                                   const int32_t *columns, float *shared, float max,
                                                   double *outside_sum, int *chosen,
                                                   unsigned long long *buckets,
                                                   struct answer_result *result)
{
    if (job->n_temperatures == 0 || !(max > -__uint_as_float(0x7f800000u))) return;
    int n_chunks = (job->n_cols + CHUNK - 1) / CHUNK;
    struct sum_places places = {
        shared, shared + CHUNK,
        reinterpret_cast<uint32_t *>(shared + CHUNK + ANSWER_SUMS * n_chunks), n_chunks, buckets};
    if (job->outside) mask_columns(job, columns, places.mask);
    sum_chunks(job, &places, max);
    add_chunks(&places, result, outside_sum);
    if (job->outside) draw_outside(job, &places, max, *outside_sum, chosen, result);
}

/* n_best >= 1. Ends with a barrier, because the shared memory gets another use afterwards. */
static __device__ __forceinline__ void answer_best(const struct answer_job *job, uint64_t own,
                                                   uint64_t best, uint64_t *ranks, int *n_kept,
                                                   struct block_room *room, uint32_t *words)
{
    if (job->n_best > 1) {
        best_logits(job, own, best, ranks, n_kept, room, words);
    } else if (threadIdx.x == 0) {
        put_best(job, 0, rank_column(best), words);
    }
    __syncthreads();
}

static __device__ __forceinline__ void answer_columns(const struct answer_job *job,
                                                      const int32_t *columns, uint32_t *words)
{
    for (int i = static_cast<int>(threadIdx.x); i < job->n_columns; i += ANSWER_THREADS) {
        words[i] = __float_as_uint(job->logits[columns[job->first_column + i]]);
    }
}

/* The sums have ended with a barrier. */
static __device__ __forceinline__ void
put_buckets(const struct answer_job *job, const unsigned long long *buckets, uint64_t *bucket_words)
{
    if (!job->buckets) return;
    for (int b = static_cast<int>(threadIdx.x); b < ROW_BUCKETS; b += ANSWER_THREADS) {
        bucket_words[b] = buckets[b];
    }
}

__global__ void __launch_bounds__(ANSWER_THREADS) answer_slices(struct answer_places places)
{
    CUDA_DYNAMIC_SHARED(uint64_t, shared);
    __shared__ struct block_room room;
    __shared__ double outside_sum;
    __shared__ unsigned long long buckets[ROW_BUCKETS];
    __shared__ int one; /* a number that the threads of the block share for a while */
    grid_dependency_launch();
    grid_dependency_wait();
    const struct answer_job job = places.jobs[blockIdx.x];
    struct answer_result *result = &places.results[blockIdx.x];
    uint32_t *words = places.words + job.first_word;
    struct answer_scan scan;
    scan_slice(&job, &scan);
    int n_bad = block_sum(scan.n_bad, &room);
    uint64_t best = block_max(scan.best, &room);
    uint64_t max_key = block_max(static_cast<uint32_t>(scan.max_key) ^ 0x80000000u, &room);
    float max = order_float(static_cast<int32_t>(static_cast<uint32_t>(max_key) ^ 0x80000000u));
    if (threadIdx.x == 0) *result = {{0, 0, 0, 0}, max, n_bad, -1, -1, 0, 0};
    for (int b = static_cast<int>(threadIdx.x); b < ROW_BUCKETS; b += ANSWER_THREADS) {
        buckets[b] = 0;
    }
    __syncthreads();
    if (n_bad) return;
    uint64_t *bucket_words = reinterpret_cast<uint64_t *>(words);
    words += answer_bucket_words(&job);
    if (job.noisy_best) {
        uint32_t *mask = job.n_columns ? reinterpret_cast<uint32_t *>(shared) : nullptr;
        if (mask) mask_columns(&job, places.columns, mask);
        best_noisy(&job, mask, &room, result);
    }
    if (job.n_best > 0) answer_best(&job, scan.best, best, shared, &one, &room, words);
    answer_columns(&job, places.columns, words + 2 * job.n_best);
    answer_sums(&job, places.columns, reinterpret_cast<float *>(shared), max, &outside_sum, &one,
                buckets, result);
    put_buckets(&job, buckets, bucket_words);
}

void answer_launch(struct backend_cuda *be, struct answer_places places, int n_jobs,
                   int max_columns)
{
    cuda_launch(be, "answers to row wishes", answer_slices, dim3(static_cast<unsigned>(n_jobs)),
                dim3(ANSWER_THREADS), shared_bytes(max_columns), places);
}

void cuda_answer_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, answer_slices, shared_bytes(ANSWER_COLUMNS_MAX));
}
