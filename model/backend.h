/* The dozen operations that the forward pass is written over. backend_cpu fills the table here; a GPU
 * fills it in its own file. Memory behind `void *` belongs to the backend; what is host memory says
 * so. Operations that run in a step return nothing: they cannot fail once buffers exist (a device
 * reports what went wrong at `finish`). Owned by the engine thread.
 *
 * Letters: N rows (tokens) of a step, D model width, H heads, K kv heads, E head width, F ffn width,
 * all of this rank's shard. Tolerances are against exact arithmetic on the same bf16 inputs. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "model/checkpoint.h"
#include "model/kernels.h"
#include "model/row.h"

enum {
    KV_BLOCK_TOKENS = 16,      /* positions of a KV block */
    ATTENTION_PARTITION = 256, /* positions of an attention partition: part of the arithmetic */
    MATRIX_PARTS_MAX = 3
};

/* A weight matrix in the backend's own layout. */
struct matrix {
    void *data;
    size_t bytes;
    int n_in, n_out;
};

/* Where a matrix's columns come from: up to three tensors side by side (q, k, v), each a run of rows
 * of a checkpoint tensor and a run of its columns. Rows past the tensor (vocabulary tail) are zero. */
struct matrix_part {
    struct weight weight;
    int first_row, n_rows; /* output columns of the matrix */
    int first_col;         /* k offset, for row-parallel slices */
};

struct matrix_source {
    int n_in;
    int n_parts;
    struct matrix_part parts[MATRIX_PARTS_MAX];
};

/* One lane's view for rope and attention: rows first_row .. first_row + n_rows of the step stand at
 * positions position .. position + n_rows. */
struct attention_lane {
    int first_row, n_rows;
    int position;
    const int32_t *blocks; /* block table: position / 16 -> block */
};

struct attention_shape {
    int n_heads, n_kv_heads, head_dim; /* of this rank */
};

/* What happens to the raw projections before attention; NULL pointers are left out. */
struct attention_input {
    const float *qkv_bias;        /* [(H + 2K) E] */
    const float *q_norm, *k_norm; /* [E] */
    float norm_eps;
    const float *cos, *sin; /* [N][E / 2] of the rows' positions */
};

struct backend;

struct backend_ops {
    const char *name;       /* "cpu" */
    const char *arithmetic; /* "cpu-bf16" */

    /* Zeroed memory of the backend. Errors: ERR_NO_MEMORY. */
    int (*buffer_open)(struct backend *be, void *buffer, size_t bytes, struct error *err);
    void (*buffer_close)(struct backend *be, void *buffer, size_t bytes);
    /* Copies from host memory. */
    void (*upload)(struct backend *be, void *buffer, const void *host, size_t bytes);

    int (*matrix_open)(struct backend *be, struct matrix *m, const struct matrix_source *source,
                       struct error *err);
    void (*matrix_close)(struct backend *be, struct matrix *m);

    /* x[N][D] = embedding rows of tokens (host memory), exact. */
    void (*embed)(struct backend *be, const struct weight *table, const int32_t *tokens, int n,
                  float *x);
    /* h[N][D] = bf16(rmsnorm(x) * weight); relative error < 2^-8 (the bf16 rounding). rows (host
     * memory, NULL = 0..n) picks rows of x. */
    void (*rmsnorm)(struct backend *be, const float *x, const float *weight, float eps, int n,
                    int dim, const int *rows, uint16_t *h);
    /* out[N][out_stride] = in[N][in_stride] * m; fp32 sums, one chain per output. */
    void (*matmul)(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                   float *out, size_t out_stride, int n);
    /* Bias, q/k norm, rope on qkv[N][(H + 2K) E]; q to q[N][H E] as bf16, k and v into the KV blocks
     * of layer `kv`. */
    void (*attention_store)(struct backend *be, const struct attention_shape *shape,
                            const struct attention_input *input, const struct attention_lane *lanes,
                            int n_lanes, float *qkv, uint16_t *q, uint16_t *kv);
    /* out[N][H E] = attention of q over the KV of each lane, causal; relative error about 2^-8. */
    void (*attention)(struct backend *be, const struct attention_shape *shape,
                      const struct attention_lane *lanes, int n_lanes, const uint16_t *q,
                      const uint16_t *kv, uint16_t *out);
    /* h[N][F] = bf16(silu(gate + gate_bias) * (up + up_bias)), gate_up[N][2 F]; bias [2 F] or NULL. */
    void (*swiglu)(struct backend *be, float *gate_up, const float *bias, int n, int ffn_dim,
                   uint16_t *h);
    /* parts[n_parts][count] summed by the fixed binary tree into parts[0]. n_parts: power of two. */
    void (*tree_add)(struct backend *be, float *parts, int n_parts, size_t count);
    /* x[N][D] += y[N][D] (+ bias[D], NULL = none). */
    void (*residual_add)(struct backend *be, float *x, const float *y, const float *bias, int n,
                         int dim);
    /* Answers a wish on one slice's logits (row.h). */
    int (*answer)(struct backend *be, const float *logits, int32_t first_id, int n_cols, int slice,
                  const struct row_wish *wish, struct arena *arena, struct slice_row *out,
                  struct error *err);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
};

/* Bytes of one layer's KV: n_blocks blocks of [K][K-part | V-part]. */
size_t kv_layer_bytes(const struct attention_shape *shape, int n_blocks);

struct backend_cpu_options {
    const char *kernels; /* "auto", "avx512", "avx2", "plain" */
    int n_threads;       /* >= 1 */
};

int backend_cpu_open(struct backend **be, const struct backend_cpu_options *options,
                     struct error *err);
/* "avx512", ... : what was chosen. */
const char *backend_cpu_kernels(const struct backend *be);
