/* Attention for a tile of many query vectors: 64 of one lane and kv head, of which each of four
 * warps has 16. K and V go through a ring of tiles in shared memory that the warps share, so that
 * they are read once for 64 vectors. A warp goes through the four spans of a partition by itself:
 * it keeps the scores of all 256 positions in registers, where they become weights in place, and
 * adds up the spans' weighted values in ascending order, 64 e at a time. The running total of the
 * partitions lies in shared memory; each thread has its own part of it.
 *
 * The bits are those of attention_few.cuh: the same chains of products in the same order, the same
 * exp, sum and merge.
 *
 * K in a tile: 64 positions of 128 e (or all e, if that is less). V: 64 e of whole spans, in fours
 * of positions as they lie in memory. Units of 16 bytes are so placed that eight threads that read
 * together find theirs in different banks. */
#pragma once

#include "model/backend/cuda/attention/attention_tile.cuh"

enum {
    SPANS = ATTENTION_PARTITION / WARP_POSITIONS,
    UNIT = 8,                   /* bf16 values of 16 bytes */
    CHUNK = 2 * RUN,            /* e of values that are added up at once */
    V_UNITS = 4 * CHUNK / UNIT, /* of four positions in a tile */
    SPAN_V_BYTES = WARP_POSITIONS / 4 * V_UNITS * 16,
    PARTITION_BLOCKS = ATTENTION_PARTITION / KV_BLOCK_TOKENS
};

template <int E_MAX, bool ALL> struct wide_form {
    static const bool EXACT = ALL;
    enum {
        WIDTH = E_MAX,
        K_WIDTH = WIDTH < 128 ? WIDTH : 128, /* e of a tile of K */
        K_UNITS = K_WIDTH / UNIT,
        K_PARTS = WIDTH / K_WIDTH,
        K_TILES = SPANS * K_PARTS,
        CHUNKS = WIDTH / CHUNK,
        V_SPANS = K_WIDTH / CHUNK, /* of a tile of V */
        V_PARTS = SPANS / V_SPANS,
        TILES = K_TILES + CHUNKS * V_PARTS, /* of a partition */
        TILE_BYTES = WARP_POSITIONS * K_WIDTH * 2,
        STAGES = WIDTH <= 64    ? 8
                 : WIDTH <= 128 ? 4
                                : 3,
        SHARED_BYTES = STAGES * TILE_BYTES + STEP_WIDE_QUERIES * WIDTH * 4
    };
};

/* A block's tile of queries, and how far it is with its tiles of K and V. */
struct wide_block {
    tile_view view;
    const uint16_t *kv;  /* of the kv head in block 0 */
    size_t block_stride; /* of KV blocks */
    int width;           /* head_dim */
    int partition, last_partition;
    int block, next_block; /* lane i < 16 of a warp: KV block i of this partition, of the next */
    uint8_t *ring;
    int stage; /* of the tile that is next to be used */
};

/* Positions that a warp's 16 vectors see. */
struct wide_rows {
    int first;                 /* vector */
    int begin, last;           /* seen by some of them; last < 0: the warp has no vectors */
    int all_begin, all_last;   /* seen by all */
    int q_first[2], q_last[2]; /* seen by vectors g and g + 8 */
    bool is_out[2];            /* past the tile's end */
};

/* A thread's running sums of vectors g and g + 8. */
struct wide_sums {
    float max[2], sum[2];
};

/* Tells what becomes of the values of a partition: total = part, total * a + part * b, or total. */
struct wide_merge {
    bool sees[2], is_first[2];
    float a[2], b[2];
};

static __device__ __forceinline__ bool span_is_seen(int first, int n, int begin, int last)
{
    return first <= last && first + n > begin;
}

static __device__ __forceinline__ wide_rows wide_rows_of(const attend_args *args,
                                                         const tile_view *view)
{
    wide_rows rows = {};
    int warp = static_cast<int>(threadIdx.x) / WARP, g = static_cast<int>(threadIdx.x) % WARP / 4;
    rows.first = view->first + STEP_TILE_QUERIES * warp;
    int end =
        rows.first + STEP_TILE_QUERIES < view->end ? rows.first + STEP_TILE_QUERIES : view->end;
    for (int i = 0; i < 2; i++) {
        int vector = rows.first + g + 8 * i;
        rows.is_out[i] = vector >= view->end;
        int position = vector_position(view, rows.is_out[i] ? view->end - 1 : vector);
        rows.q_first[i] = first_seen(position, args->window);
        rows.q_last[i] = last_seen(args, &view->lane, position);
    }
    int low = vector_position(view, rows.first), high = vector_position(view, end - 1);
    rows.begin = first_seen(low, args->window);
    rows.last = rows.first < view->end ? last_seen(args, &view->lane, high) : -1;
    rows.all_begin = first_seen(high, args->window);
    rows.all_last = last_seen(args, &view->lane, low);
    return rows;
}

/* The KV block that this lane keeps for a partition. Those before and past what the tile sees
 * repeat the nearest. */
static __device__ __forceinline__ int wide_kv_block(const attend_args *args, const tile_view *view,
                                                    int partition)
{
    int lane = static_cast<int>(threadIdx.x) % PARTITION_BLOCKS;
    int block = partition * PARTITION_BLOCKS + lane;
    if (block > view->last / KV_BLOCK_TOKENS) block = view->last / KV_BLOCK_TOKENS;
    if (block < view->begin / KV_BLOCK_TOKENS) block = view->begin / KV_BLOCK_TOKENS;
    return args->inputs.blocks[view->lane.first_block + block];
}

static __device__ __forceinline__ const uint16_t *wide_kv(const wide_block *b, int block)
{
    return b->kv + static_cast<size_t>(block) * b->block_stride;
}

/* Copies 64 positions of K from e = K_WIDTH * part on: row r has unit u at u ^ 4 (r % 2). */
template <typename FORM>
static __device__ __forceinline__ void wide_copy_k(const wide_block *b, int blocks, int span,
                                                   int part, uint8_t *to)
{
    const int ROWS = ATTEND_THREADS / FORM::K_UNITS; /* at once */
    int unit = static_cast<int>(threadIdx.x) % FORM::K_UNITS;
    int row = static_cast<int>(threadIdx.x) / FORM::K_UNITS;
    int e = part * FORM::K_WIDTH + unit * UNIT;
    to += (row * FORM::K_UNITS + (unit ^ (row % 2 * 4))) * 16;
    const int from = row * b->width + e;
#pragma unroll
    for (int i = 0; i < WARP_POSITIONS / ROWS; i++) {
        int in_span = i * ROWS / KV_BLOCK_TOKENS;
        int block = __shfl_sync(ALL_LANES, blocks, span * WARP_BLOCKS + in_span);
        const uint16_t *k = wide_kv(b, block) + i * ROWS % KV_BLOCK_TOKENS * b->width + from;
        if (e < b->width) copy_async_16(to + i * ROWS * FORM::K_UNITS * 16, k, true);
    }
}

/* Copies 64 e of V for V_SPANS spans: row r, four positions, has unit u at u ^ 2 (r % 4). */
template <typename FORM>
static __device__ __forceinline__ void wide_copy_v(const wide_block *b, int blocks, int first_span,
                                                   int chunk, uint8_t *to)
{
    int unit = static_cast<int>(threadIdx.x) % V_UNITS;
    int row = static_cast<int>(threadIdx.x) / V_UNITS; /* of the four of a block */
    int at = 4 * chunk * CHUNK + unit * UNIT;
    to += (row * V_UNITS + (unit ^ (row * 2))) * 16;
    const int from = (KV_BLOCK_TOKENS + 4 * row) * b->width + at;
#pragma unroll
    for (int i = 0; i < FORM::V_SPANS * WARP_BLOCKS; i++) {
        int block = __shfl_sync(ALL_LANES, blocks, first_span * WARP_BLOCKS + i);
        const uint16_t *v = wide_kv(b, block) + from;
        if (at < 4 * b->width) copy_async_16(to + i * 4 * V_UNITS * 16, v, true);
    }
}

/* Copies a tile of this partition or, from TILES on, of the next one; nothing if no vector of the
 * block needs it. */
template <typename FORM>
static __device__ __forceinline__ void wide_copy(const wide_block *b, int tile, uint8_t *to)
{
    int ahead = tile / FORM::TILES, i = tile % FORM::TILES;
    int blocks = ahead ? b->next_block : b->block;
    int first = (b->partition + ahead) * ATTENTION_PARTITION;
    if (i < FORM::K_TILES) {
        int span = i / FORM::K_PARTS, part = i % FORM::K_PARTS;
        first += span * WARP_POSITIONS;
        if (part * FORM::K_WIDTH >= b->width) return;
        if (!span_is_seen(first, WARP_POSITIONS, b->view.begin, b->view.last)) return;
        wide_copy_k<FORM>(b, blocks, span, part, to);
    } else {
        int chunk = (i - FORM::K_TILES) / FORM::V_PARTS;
        int span = (i - FORM::K_TILES) % FORM::V_PARTS * FORM::V_SPANS;
        first += span * WARP_POSITIONS;
        if (chunk * CHUNK >= b->width) return;
        if (!span_is_seen(first, FORM::V_SPANS * WARP_POSITIONS, b->view.begin, b->view.last)) {
            return;
        }
        wide_copy_v<FORM>(b, blocks, span, chunk, to);
    }
}

/* Waits for a tile of this partition, and has the one copied that takes the place of the tile
 * before it. */
template <typename FORM>
static __device__ __forceinline__ const uint8_t *wide_take(wide_block *b, int tile)
{
    const int AHEAD = FORM::STAGES - 1;
    const uint8_t *taken = b->ring + b->stage * FORM::TILE_BYTES;
    int free_stage = b->stage == 0 ? AHEAD : b->stage - 1;
    copy_async_wait<FORM::STAGES - 2>();
    __syncthreads();
    wide_copy<FORM>(b, tile + AHEAD, b->ring + free_stage * FORM::TILE_BYTES);
    copy_async_commit();
    b->stage = b->stage == AHEAD ? 0 : b->stage + 1;
    return taken;
}

/* 16 bytes of a row, or for the last half run 8 bytes and zeros: share c of run j. */
static __device__ __forceinline__ uint4 shared_run(const uint8_t *row, int unit, int flip,
                                                   int share, bool is_half)
{
    uint4 out = make_uint4(0, 0, 0, 0);
    if (!is_half) {
        out = *reinterpret_cast<const uint4 *>(row + ((unit + share) ^ flip) * 16);
    } else {
        uint2 half = *reinterpret_cast<const uint2 *>(row + ((unit + share / 2) ^ flip) * 16 +
                                                      share % 2 * 8);
        out.x = half.x;
        out.y = half.y;
    }
    return out;
}

/* s[tile][4] += q k over the e of one tile of K: score_positions of attention_kv.cuh. */
template <typename FORM>
static __device__ __forceinline__ void wide_scores(const uint8_t *tile_k, int part, int width,
                                                   const uint4 q[FORM::WIDTH / RUN][2],
                                                   float s[SCORE_TILES][4])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
    width = FORM::EXACT ? static_cast<int>(FORM::WIDTH) : width;
    const uint8_t *rows = tile_k + g * FORM::K_UNITS * 16;
#pragma unroll
    for (int j = 0; j < FORM::K_WIDTH / RUN; j++) {
        int r = part * FORM::K_WIDTH / RUN + j;
        if (r * RUN >= width) break;
        bool is_half = (r + 1) * RUN > width;
        uint4 low = q[r][0], high = q[r][1];
        const uint32_t a[4] = {low.x, high.x, low.y, high.y};
        const uint32_t a_next[4] = {low.z, high.z, low.w, high.w};
        uint4 k[SCORE_TILES];
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            k[tile] =
                shared_run(rows + tile * 8 * FORM::K_UNITS * 16, 4 * j, g % 2 * 4, c, is_half);
        }
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            const uint32_t b[2] = {k[tile].x, k[tile].y};
            mma_bf16_16x8x16(s[tile], a, b);
        }
        if (is_half) break;
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            const uint32_t b[2] = {k[tile].z, k[tile].w};
            mma_bf16_16x8x16(s[tile], a_next, b);
        }
    }
}

/* Turns the scores into what the softmax takes, one after the other, because a cap of all at once
 * would be much code for few models. */
static __device__ __forceinline__ void wide_cap(float scale, float softcap, float s[SCORE_TILES][4])
{
    float out[SCORE_TILES * 4];
#pragma unroll
    for (int i = 0; i < SCORE_TILES * 4; i++) {
        out[i] = s[i / 4][i % 4];
    }
#pragma unroll 1
    for (int i = 0; i < SCORE_TILES * 4; i++) {
        out[i] = scaled_score(out[i], scale, softcap);
    }
#pragma unroll
    for (int i = 0; i < SCORE_TILES * 4; i++) {
        s[i / 4][i % 4] = out[i];
    }
}

/* Masks the positions of a span that a vector must not see, and takes the maxima along. */
static __device__ __forceinline__ void wide_mask(const wide_rows *rows, int first,
                                                 float s[SCORE_TILES][4], float max[2])
{
    int c = static_cast<int>(threadIdx.x) % 4;
    if (first < rows->all_begin || first + WARP_POSITIONS - 1 > rows->all_last) {
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int position = first + 8 * tile + 2 * c + i % 2;
                bool sees = position >= rows->q_first[i / 2] && position <= rows->q_last[i / 2];
                if (!sees) s[tile][i] = MINUS_INFINITY;
            }
        }
    }
#pragma unroll
    for (int tile = 0; tile < SCORE_TILES; tile++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            max[i / 2] = fmaxf(max[i / 2], s[tile][i]);
        }
    }
}

/* Two weights as bf16. None is NaN where that matters (wide_weigh). */
static __device__ __forceinline__ uint32_t weights_pair(float low, float high)
{
#ifndef CUDA_EMULATED
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#else
    return bf16_pair(low, high);
#endif
}

/* device_exp(scale * s - max), which is not above 0, bit for bit, unless it is NaN: the result is
 * NaN or above 1 then. n LN2 is exact, so the first subtraction can be fused; the power of two is
 * added to the exponent, because no result is subnormal (EXP_LEAST). */
static __device__ __forceinline__ float wide_weight(float s, float scale, float max)
{
    float x = scale * s - max;
    float shifted = x * EXP_LOG2_E + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = __fmaf_rn(n, -EXP_LN2, x);
    r = r - n * EXP_LN2_LOW;
    float y;
    EXP_POLYNOMIAL(y, r);
    float out = __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
    return x < EXP_LEAST ? 0.0f : out;
}

/* Weights of a span as weigh_scores has them, and their sums. */
static __device__ __forceinline__ void wide_weigh(const float s[SCORE_TILES][4], float scale,
                                                  const float max[2], float sum[2],
                                                  uint32_t p[WARP_BLOCKS][4])
{
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int tile = 0; tile < SCORE_TILES; tile++) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float low = wide_weight(s[tile][2 * row], scale, max[row]);
            float high = wide_weight(s[tile][2 * row + 1], scale, max[row]);
            sum[row] += low;
            sum[row] += high;
            p[tile / 2][tile % 2 * 2 + row] = weights_pair(low, high);
        }
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
        for (int distance = 1; distance < 4; distance *= 2) {
            sum[row] += __shfl_xor_sync(ALL_LANES, sum[row], distance);
        }
        /* more than 64 weights can sum up to: one was NaN, and so is the result */
        if (!(sum[row] <= 2.0f * WARP_POSITIONS)) sum[row] = __uint_as_float(0x7fffffffu);
    }
}

/* acc += p v over one span: add_values of attention_kv.cuh, for 64 e. `WHOLE`: the warp's vectors
 * see all positions of the span. */
template <typename FORM, bool WHOLE>
static __device__ __forceinline__ void
wide_values(const uint8_t *tile_v, int chunk, int width, int first, const wide_rows *rows,
            const uint32_t p[WARP_BLOCKS][4], value_sums acc[CHUNK / SUM_RUN])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
    width = FORM::EXACT ? static_cast<int>(FORM::WIDTH) : width;
    attend_span span = {};
    span.begin = rows->begin;
    span.last = rows->last;
    const uint8_t *row = tile_v + (c * V_UNITS + (g ^ (2 * c))) * 16;
#pragma unroll
    for (int block = 0; block < WARP_BLOCKS; block++) {
        int position = first + block * KV_BLOCK_TOKENS + 2 * c;
        const uint32_t mask[2] = {pair_mask(&span, position), pair_mask(&span, position + 8)};
#pragma unroll
        for (int i = 0; i < CHUNK / SUM_RUN; i++) {
            if (chunk * CHUNK + i * SUM_RUN >= width) break;
            uint4 v = *reinterpret_cast<const uint4 *>(row + (block * 4 * V_UNITS + i * 8) * 16);
            if (!WHOLE) v = mask_values(v, mask);
            multiply_values(acc[i], p[block], v);
        }
    }
}

/* Takes the partition's maxima and sums into the running ones. */
static __device__ __forceinline__ wide_merge wide_add_sums(const wide_rows *rows, int partition,
                                                           const float max[2], const float sum[2],
                                                           wide_sums *total)
{
    wide_merge merge = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int first = rows->q_first[i] / ATTENTION_PARTITION;
        merge.is_first[i] = partition == first;
        merge.sees[i] = partition >= first && partition * ATTENTION_PARTITION <= rows->q_last[i];
        if (!merge.sees[i]) continue;
        if (merge.is_first[i]) {
            total->max[i] = max[i];
            total->sum[i] = sum[i];
            continue;
        }
        float both = total->max[i] > max[i] ? total->max[i] : max[i];
        merge.a[i] = device_exp(total->max[i] - both);
        merge.b[i] = device_exp(max[i] - both);
        total->sum[i] = total->sum[i] * merge.a[i] + sum[i] * merge.b[i];
        total->max[i] = both;
    }
    return merge;
}

static __device__ __forceinline__ float merge_value(const wide_merge *merge, int row, float total,
                                                    float part)
{
    float merged = total * merge->a[row] + part * merge->b[row];
    merged = merge->is_first[row] ? part : merged;
    return merge->sees[row] ? merged : total;
}

/* Merges the values of 64 e of a partition into the total, which stays in part. */
static __device__ __forceinline__ void wide_merge_values(const wide_merge *merge, float4 *total,
                                                         bool is_last,
                                                         value_sums part[CHUNK / SUM_RUN])
{
    bool has_total = !merge->is_first[0] || !merge->is_first[1];
#pragma unroll
    for (int i = 0; i < CHUNK / SUM_RUN * 2; i++) {
        float *mine = part[i / 2][i % 2];
        float4 old = make_float4(0, 0, 0, 0);
        if (has_total) old = total[i * ATTEND_THREADS];
        mine[0] = merge_value(merge, 0, old.x, mine[0]);
        mine[1] = merge_value(merge, 0, old.y, mine[1]);
        mine[2] = merge_value(merge, 1, old.z, mine[2]);
        mine[3] = merge_value(merge, 1, old.w, mine[3]);
        if (!is_last) total[i * ATTEND_THREADS] = make_float4(mine[0], mine[1], mine[2], mine[3]);
    }
}

/* Stores 64 e of the finished totals of vectors g and g + 8 as output. */
static __device__ __forceinline__ void wide_store(const attend_args *args, const wide_block *b,
                                                  const wide_rows *rows, int chunk,
                                                  const wide_sums *sums,
                                                  const value_sums total[CHUNK / SUM_RUN])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (rows->is_out[half]) continue;
        size_t index = vector_index(&b->view, rows->first + g + 8 * half, args->n_heads);
        uint16_t *row = args->out + index * static_cast<size_t>(b->width) + 4 * c;
#pragma unroll
        for (int i = 0; i < CHUNK / SUM_RUN; i++) {
            int e = chunk * CHUNK + i * SUM_RUN;
            if (e >= b->width) break;
            store_out(row + e, row_values(total[i], half), sums->sum[half]);
        }
    }
}

/* Scores, maxima and weights of a partition; p = 0 for spans that the warp's vectors do not see. */
template <typename FORM>
static __device__ __forceinline__ void
wide_weights(const attend_args *args, wide_block *b, const wide_rows *rows,
             const uint4 q[FORM::WIDTH / RUN][2], float max[2], float sum[2],
             uint32_t p[SPANS][WARP_BLOCKS][4])
{
    float s[SPANS][SCORE_TILES][4], scale = args->scale;
    int first = b->partition * ATTENTION_PARTITION;
    /* with a scale above 0 the largest score is the largest after scaling, too */
    bool is_scaled = args->softcap != 0 || !(scale > 0);
    max[0] = max[1] = MINUS_INFINITY;
#pragma unroll
    for (int span = 0; span < SPANS; span++) {
        int at = first + span * WARP_POSITIONS;
        bool is_seen = span_is_seen(at, WARP_POSITIONS, rows->begin, rows->last);
#pragma unroll
        for (int i = 0; i < SCORE_TILES * 4; i++) {
            s[span][i / 4][i % 4] = 0;
        }
#pragma unroll
        for (int part = 0; part < FORM::K_PARTS; part++) {
            const uint8_t *k = wide_take<FORM>(b, span * FORM::K_PARTS + part);
            if (is_seen) wide_scores<FORM>(k, part, b->width, q, s[span]);
        }
        if (is_seen && is_scaled) wide_cap(scale, args->softcap, s[span]);
        if (is_seen) wide_mask(rows, at, s[span], max);
    }
    if (is_scaled) scale = 1;
    float least[2], sums[SPANS][2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        for (int distance = 1; distance < 4; distance *= 2) {
            max[i] = fmaxf(max[i], __shfl_xor_sync(ALL_LANES, max[i], distance));
        }
        max[i] = scale * max[i];
        least[i] = max[i] == MINUS_INFINITY ? 0.0f : max[i];
    }
#pragma unroll
    for (int span = 0; span < SPANS; span++) {
        int at = first + span * WARP_POSITIONS;
        sums[span][0] = sums[span][1] = 0;
        if (span_is_seen(at, WARP_POSITIONS, rows->begin, rows->last)) {
            wide_weigh(s[span], scale, least, sums[span], p[span]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] = ((sums[0][i] + sums[1][i]) + sums[2][i]) + sums[3][i];
    }
}

/* One partition of the block's 64 vectors. */
template <typename FORM>
static __device__ __forceinline__ void
wide_partition(const attend_args *args, wide_block *b, const wide_rows *rows,
               const uint4 q[FORM::WIDTH / RUN][2], float4 *total, wide_sums *sums)
{
    uint32_t p[SPANS][WARP_BLOCKS][4];
    float max[2], sum[2];
    int first = b->partition * ATTENTION_PARTITION;
    bool is_needed = span_is_seen(first, ATTENTION_PARTITION, rows->begin, rows->last);
    bool is_last = b->partition == rows->last / ATTENTION_PARTITION;
    const uint8_t *v = NULL;
    b->next_block = wide_kv_block(args, &b->view, b->partition + 1);
    wide_weights<FORM>(args, b, rows, q, max, sum, p);
    wide_merge merge = wide_add_sums(rows, b->partition, max, sum, sums);
#pragma unroll
    for (int chunk = 0; chunk < FORM::CHUNKS; chunk++) {
        value_sums part[CHUNK / SUM_RUN];
#pragma unroll
        for (int span = 0; span < SPANS; span++) {
            int at = first + span * WARP_POSITIONS, in_tile = span % FORM::V_SPANS;
            value_sums acc[CHUNK / SUM_RUN] = {};
            if (in_tile == 0) {
                v = wide_take<FORM>(b,
                                    FORM::K_TILES + chunk * FORM::V_PARTS + span / FORM::V_SPANS);
            }
            if (at >= rows->begin && at + WARP_POSITIONS - 1 <= rows->last) {
                wide_values<FORM, true>(v + in_tile * SPAN_V_BYTES, chunk, b->width, at, rows,
                                        p[span], acc);
            } else if (span_is_seen(at, WARP_POSITIONS, rows->begin, rows->last)) {
                wide_values<FORM, false>(v + in_tile * SPAN_V_BYTES, chunk, b->width, at, rows,
                                         p[span], acc);
            }
#pragma unroll
            for (int i = 0; i < CHUNK / SUM_RUN * 8; i++) {
                float *to = &part[i / 8][i / 4 % 2][i % 4], value = acc[i / 8][i / 4 % 2][i % 4];
                *to = span == 0 ? value : *to + value;
            }
        }
        if (!is_needed || chunk * CHUNK >= b->width) continue;
        wide_merge_values(&merge, total + chunk * CHUNK / SUM_RUN * 2 * ATTEND_THREADS, is_last,
                          part);
        if (is_last) wide_store(args, b, rows, chunk, sums, part);
    }
}

/* Reads the warp's query vectors; those past the tile's end repeat the last one. */
template <typename FORM>
static __device__ __forceinline__ void wide_queries(const attend_args *args, const wide_block *b,
                                                    const wide_rows *rows,
                                                    uint4 q[FORM::WIDTH / RUN][2])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int vector = rows->is_out[i] ? b->view.end - 1 : rows->first + g + 8 * i;
        size_t index = vector_index(&b->view, vector, args->n_heads);
        const uint16_t *row = args->q + index * static_cast<size_t>(b->width);
#pragma unroll
        for (int r = 0; r < FORM::WIDTH / RUN; r++) {
            q[r][i] = make_uint4(0, 0, 0, 0);
            if (r * RUN < b->width) q[r][i] = load_run(row, r * RUN, RUN, c, b->width);
        }
    }
}

/* All partitions of one tile. */
template <typename FORM>
static __device__ __forceinline__ void attend_wide(const attend_args *args, int slot, int kv_head,
                                                   uint8_t *shared)
{
    wide_block b = {};
    wide_sums sums = {};
    uint4 q[FORM::WIDTH / RUN][2];
    b.view = view_tile(args, slot, kv_head, STEP_WIDE_QUERIES);
    b.width = FORM::EXACT ? static_cast<int>(FORM::WIDTH) : args->head_dim;
    b.kv = args->kv + kv_head_offset(0, kv_head, args->n_kv_heads, b.width);
    b.block_stride = kv_head_offset(1, 0, args->n_kv_heads, b.width);
    b.partition = b.view.begin / ATTENTION_PARTITION;
    b.last_partition = b.view.last / ATTENTION_PARTITION;
    b.ring = shared;
    b.block = wide_kv_block(args, &b.view, b.partition);
    wide_rows rows = wide_rows_of(args, &b.view);
    float4 *total = reinterpret_cast<float4 *>(shared + FORM::STAGES * FORM::TILE_BYTES);
    grid_dependency_wait();
    wide_queries<FORM>(args, &b, &rows, q);
#pragma unroll
    for (int i = 0; i < FORM::STAGES - 1; i++) {
        wide_copy<FORM>(&b, i, shared + i * FORM::TILE_BYTES);
        copy_async_commit();
    }
    for (; b.partition <= b.last_partition; b.partition++) {
        wide_partition<FORM>(args, &b, &rows, q, total + threadIdx.x, &sums);
        b.block = b.next_block;
    }
}
