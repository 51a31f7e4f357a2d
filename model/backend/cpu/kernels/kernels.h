/* The CPU's inner loops as a table, which each variant fills from one source: AVX-512 with bf16 dot
 * products or with fma, AVX2 with fma, NEON, plain C. All give the same bits (arithmetic
 * `cpu-bf16`): each output is one chain of fused steps over ascending k, in each pair first the odd
 * k and then the even k. Denormals going in and coming out are flushed to zero, as vdpbf16ps
 * does. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/backend/cpu/kernels/fp8_matrix.h"
#include "model/backend/cpu/kernels/packed_matrix.h"
#include "model/backend/cpu/kernels/quant/quant.h"

enum {
    QUERY_LEN_MAX = 256, /* the width of a head, or a partition of attention */
};

/* The rows that one or more matrices are multiplied with. Most variants do not read them as they
 * are but as panels, which are made once for all columns and all threads. Panels hold what a tile
 * of rows needs together: tile by tile, [n_in / 2][rows of the tile] pairs of k. */
struct matmul_rows {
    const uint16_t *in; /* [n][stride] bf16 */
    size_t stride;
    int n, n_in;      /* n >= 1; n_in is even */
    uint32_t *panels; /* [panel_words(n, n_in)]; unused if that is 0 */
};

/* One call of matmul: its rows, and the blocks of columns that it computes. */
struct matmul_call {
    const struct matmul_rows *rows;
    int first_k; /* the matrix takes k first_k .. first_k + w->n_in of the rows; even */
    float *out;  /* [rows->n][out_stride] */
    size_t out_stride;
    int first_block, end_block;
};

/* The input of each of n queries to a product with KV: its elements, or the weights of its
 * positions, QUERY_LEN_MAX at most. */
struct query_rows {
    const uint16_t *data; /* [n][stride] bf16 */
    size_t stride;
    int n;
};

/* KV blocks that queries of one kv head attend to, all of them K-parts or all V-parts. */
struct kv_parts {
    const uint16_t *const *at; /* [n] */
    /* [n] parts of the same size that are read soon and later: prefetched beside at[i] into the
     * first- and the second-level cache. */
    const uint16_t *const *ahead, *const *far;
    int n;
};

/* Parts that are read soon. Of their lines, counted over all of them, first_line .. + n_lines are
 * prefetched. */
struct kv_ahead {
    const uint16_t *const *parts;
    int part_lines; /* of 64 bytes */
    int first_line, n_lines;
};

/* True if memory is streamed in two hops: into the second-level cache from far ahead, and from
 * there into the first-level cache. An Intel core needs that: its first-level cache has too few
 * requests in flight, so that one hop reaches only 0.85 of the bandwidth. A Zen core reaches 0.95
 * in one hop, straight into the first level, and 0.84 in two. */
bool kernels_two_hops(void);
/* For tests, which run both ways on every CPU: 1 or 2 hops, 0 what the CPU wants. */
void kernels_force_hops(int hops);

struct kernels {
    const char *name; /* as kernels_find knows it */

    /* Words of the panels of n rows; 0: matmul reads the rows as they are. */
    size_t (*panel_words)(int n, int n_in);

    /* Fills the panels of all rows for the pairs of k first_pair .. end_pair, which may be done in
     * parts and by several threads. Call it if panel_words is not 0, before matmul. */
    void (*fill_panels)(const struct matmul_rows *rows, int first_pair, int end_pair);

    /* out[row][column] = sum over k of row[first_k + k] * w[column][k] for all rows and the
     * 64-column blocks first_block .. end_block. Writes only columns < n_out. Each output is one
     * chain, whatever the rows and the blocks are. Never allocates. */
    void (*matmul)(const struct packed_matrix *w, const struct matmul_call *call);

    /* As matmul, on fp8 weights: of each run of k the chain from zero, then out = fma(chain, scale,
     * out), one run after the other. Panels are the same. */
    void (*fp8_matmul)(const struct fp8_matrix *w, const struct matmul_call *call);

    /* One dot step for tests: acc[16] <- acc + w(odd) * x(odd), then + w(even) * x(even). */
    void (*dot_step)(float acc[16], const uint16_t w[32], uint32_t x_pair);

    /* h[n] = bf16(x * weight / sqrt(mean(x^2) + eps)); the squares are summed in 16 lanes, then by
     * a fixed tree. n % 16 == 0. */
    void (*rmsnorm)(const float *x, const float *weight, float eps, int n, uint16_t *h);

    /* As rmsnorm, on fp32 in place, for q/k norm over a head. n is any even number. */
    void (*rmsnorm_head)(float *x, const float *weight, float eps, int n);

    /* The sum of x[n]^2, in 16 lanes and then by a fixed tree, as rmsnorm sums them. */
    float (*squares)(const float *x, int n);

    /* h[n] = bf16(silu(gate[n]) * up[n]). */
    void (*swiglu)(const float *gate, const float *up, int n, uint16_t *h);

    /* As swiglu, with num_gelu_tanh in place of silu. */
    void (*geglu)(const float *gate, const float *up, int n, uint16_t *h);

    /* x[n] = cap * tanh(x * factor), with num_tanh. */
    void (*softcap)(float *x, int n, float factor, float cap);

    /* Scores of queries that share K blocks of 16 positions: out[query * out_stride + 16 * i +
     * position] = sum over e of q[query][e] * k->at[i][e][position], one chain each;
     * at[i] is [head_dim / 2][16][2]. */
    void (*scores)(const struct query_rows *q, const struct kv_parts *k, int head_dim, float *out,
                   size_t out_stride);

    /* The largest of s[n], n % 16 == 0. NaN is passed over; -inf when there is nothing else; of
     * zeros +0. */
    float (*max)(const float *s, int n);

    /* p[n] = bf16(exp(s[n] * scale - max)) with n % 16 == 0; returns the sum before the rounding
     * (16 lanes, then a fixed tree). Entries of -inf give 0. The memory is idle meanwhile, so
     * `ahead` is prefetched evenly over the time this takes, unless it is NULL. */
    float (*exp_sum)(const float *s, float scale, float max, int n, uint16_t *p,
                     const struct kv_ahead *ahead);

    /* For queries that share their values: acc[query * acc_stride + e] += sum over n_pairs pairs of
     * positions of each of the blocks of p * v. at[i] is [pair][head_dim][2] with head_dim % 16 ==
     * 0; p holds 2 * n_pairs * v->n positions for each query. Each output is one chain over the
     * blocks in their order. */
    void (*weighted_sum)(const struct query_rows *p, const struct kv_parts *v, int n_pairs,
                         int head_dim, float *acc, size_t acc_stride);

    const struct kernels_quant *quant; /* of the same instruction set */
};

/* The tables. Which of them a build has, and what a CPU needs for them, is in kernels.c. */
extern const struct kernels kernels_avx512, kernels_avx512fma, kernels_avxvnni, kernels_avx2,
    kernels_neon, kernels_plain;

/* For tests: the variant of this name does not pass the check; NULL: none is singled out. */
void kernels_force_wrong(const char *name);

enum {
    KERNELS_MAX = 8,         /* variants at most */
    KERNELS_TEXT_BYTES = 200 /* for the texts below */
};

/* "auto" takes the first variant that this machine can run, that is not slower here and that
 * passes the check of its dot step (step_check.h). Errors: ERR_ARGUMENT unknown name (lists them),
 * ERR_UNSUPPORTED this CPU or build lacks what the variant needs, or the variant does not pass;
 * *kernels is NULL then. */
int kernels_find(const struct kernels **kernels, const char *name, struct error *err);

/* The name of variant i, the best first, whether or not this machine can run it; NULL: there are no
 * more. */
const char *kernels_name(int i);
/* "auto, avx512, ... or plain". */
void kernels_names(char *text, size_t size);

/* Why kernels_find takes what it takes for `name`: "asked for", "the best of this build", or why
 * not the variants before it. */
void kernels_reason(char *text, size_t size, const char *name);
