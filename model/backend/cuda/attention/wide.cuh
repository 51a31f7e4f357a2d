/* Attention for a tile of many query vectors: 64 of one lane and kv head, of which each of four
 * warps has 16. K and V come through a ring of tiles in shared memory (ring.cuh). A warp goes
 * through the four spans of a partition by itself: it keeps the scores of all 256 positions in
 * registers, where they become weights in place, and adds up the spans' weighted values in
 * ascending order, 64 e at a time. The running total of the partitions lies in shared memory; each
 * thread has its own part of it.
 *
 * The bits are those of few.cuh: the same chains of products in the same order, the same exp, sum
 * and merge. With 32 heads of 128 e some 45 instructions of a thread go with a score, 27 of them
 * for its exp, so that issuing them is the limit: on a multiprocessor of sm_90 0.35 clocks a score,
 * while mma.sync takes 0.2 and shared memory 0.25. */
#pragma once

#include "model/backend/cuda/attention/ring.cuh"

/* How far a warp's 16 vectors see. */
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

/* How the values of a partition go into the total: it becomes part, total * a + part * b, or
 * stays. */
struct wide_merge {
    bool sees[2], is_first[2];
    float a[2], b[2];
};

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

/* s[tile][4] += q k over the e of one tile of K: score_positions of layout.cuh. */
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

/* acc += p v over one span: add_values of layout.cuh, for 64 e. `WHOLE`: the warp's vectors see
 * all positions of the span. */
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

/* Takes the partition's maxima and sums into the running ones; or puts them there, if it is a
 * block's only one. */
static __device__ __forceinline__ wide_merge wide_add_sums(const wide_rows *rows, int partition,
                                                           bool is_only, const float max[2],
                                                           const float sum[2], wide_sums *total)
{
    wide_merge merge = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int first = rows->q_first[i] / ATTENTION_PARTITION;
        merge.is_first[i] = is_only || partition == first;
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

/* Stores 64 e of the totals of vectors g and g + 8 as output, or as partials of the partition. */
static __device__ __forceinline__ void wide_store(const attend_args *args, const wide_block *b,
                                                  const wide_rows *rows, int chunk,
                                                  const wide_merge *merge, const wide_sums *sums,
                                                  const value_sums total[CHUNK / SUM_RUN])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (rows->is_out[half] || (args->values && !merge->sees[half])) continue;
        size_t index = vector_index(&b->view, rows->first + g + 8 * half, args->n_heads);
        if (args->values) {
            index *= static_cast<size_t>(args->n_partitions);
            index += static_cast<size_t>(b->partition);
            if (chunk == 0 && c == 0) {
                args->sums[index] = make_float2(sums->max[half], sums->sum[half]);
            }
        }
        index = index * static_cast<size_t>(b->width) + static_cast<size_t>(4 * c);
#pragma unroll
        for (int i = 0; i < CHUNK / SUM_RUN; i++) {
            int e = chunk * CHUNK + i * SUM_RUN;
            float4 values = row_values(total[i], half);
            if (e >= b->width) break;
            if (args->values) {
                *reinterpret_cast<float4 *>(args->values + index + e) = values;
            } else {
                store_out(args->out + index + e, values, sums->sum[half]);
            }
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
    bool is_last = args->values || b->partition == rows->last / ATTENTION_PARTITION;
    const uint8_t *v = NULL;
    b->next_block = wide_kv_block(args, &b->view, b->partition + 1);
    wide_weights<FORM>(args, b, rows, q, max, sum, p);
    wide_merge merge = wide_add_sums(rows, b->partition, args->values != NULL, max, sum, sums);
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
        if (is_last) wide_store(args, b, rows, chunk, &merge, sums, part);
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

/* One partition of a tile, or all of them. */
template <typename FORM>
static __device__ __forceinline__ void attend_wide(const attend_args *args, int slot, int kv_head,
                                                   int partition, uint8_t *shared)
{
    wide_block b = {};
    wide_sums sums = {};
    uint4 q[FORM::WIDTH / RUN][2];
    b.view = view_tile(args, slot, kv_head, STEP_WIDE_QUERIES);
    b.width = FORM::EXACT ? static_cast<int>(FORM::WIDTH) : args->head_dim;
    b.kv = reinterpret_cast<const uint8_t *>(args->kv +
                                             kv_head_offset(0, kv_head, args->n_kv_heads, b.width));
    b.block_stride = static_cast<uint32_t>(2 * kv_head_offset(1, 0, args->n_kv_heads, b.width));
    b.partition = b.view.begin / ATTENTION_PARTITION;
    b.last_partition = b.view.last / ATTENTION_PARTITION;
    if (args->values) {
        if (partition > b.partition) b.partition = partition;
        if (partition < b.last_partition) b.last_partition = partition;
    }
    b.ring = shared;
    b.block = wide_kv_block(args, &b.view, b.partition);
    wide_rows rows = wide_rows_of(args, &b.view);
    float4 *total = reinterpret_cast<float4 *>(shared + FORM::STAGES * FORM::TILE_BYTES);
    grid_dependency_wait();
    if (b.partition > b.last_partition) return;
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
