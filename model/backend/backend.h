/* The dozen operations that the forward pass is written over; backend_cpu.c and backend_cuda.cu each
 * fill the table. Memory behind `void *` and data pointers belongs to the backend; what is host memory
 * says so. Operations between `begin` and `end` return nothing: they cannot fail once buffers exist
 * (a device reports what went wrong at `end` or `answer`). Owned by the engine thread.
 *
 * Letters: N rows (tokens) of a step, D model width, H heads, K kv heads, E head width, F ffn width,
 * all of this rank's shard. Tolerances are against exact arithmetic on the same bf16 inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "comm/comm.h"
#include "model/checkpoint/checkpoint.h"
#include "model/logits/row.h"

enum {
    WIDTH_UNIT = 16,           /* what the model's width and the head's width are multiples of */
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
 * of a checkpoint tensor, or chosen rows, and a run of its columns. Rows past the tensor (vocabulary
 * tail) and past the chosen ones are zero. */
struct matrix_part {
    struct weight weight;
    int first_row, n_rows;   /* output columns of the matrix */
    int first_col;           /* k offset, for row-parallel slices */
    const int32_t *row_list; /* [n_listed] rows of the tensor; NULL: the run from first_row on */
    int n_listed;            /* at most n_rows */
};

/* The tensor's row behind output column `column` of the part; -1: zeros. */
static inline int matrix_part_row(const struct matrix_part *part, int column)
{
    if (part->row_list) return column < part->n_listed ? (int)part->row_list[column] : -1;
    int row = part->first_row + column;
    return row < part->weight.n_rows ? row : -1;
}

struct matrix_source {
    int n_in;
    int n_parts;
    bool is_gate_up; /* two parts of as many rows, which matmul_swiglu multiplies */
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
    int n_blocks;                      /* of the whole KV */
};

/* What one step is about. All of it is host memory, lent from `begin` to `end`. */
struct backend_step {
    const struct weight *embedding;
    const int32_t *tokens; /* [n] */
    int n;                 /* rows fed, over all lanes */
    const struct attention_lane *lanes;
    int n_lanes;
    const struct attention_shape *shape;
    const float *cos, *sin; /* [n][E / 2] of the rows' positions */
    const int *rows;        /* [n_rows] those whose logits are wanted */
    int n_rows;
};

/* What happens to the raw projections before attention; NULL pointers are left out. */
struct attention_input {
    const float *qkv_bias;        /* [(H + 2K) E] */
    const float *q_norm, *k_norm; /* [E] */
    float norm_eps;
};

/* Sums of a row-parallel matrix that the fixed tree has still to add: part i at data + i * stride,
 * each [N][D]. n_parts is a power of two. */
struct slice_sums {
    float *data;
    size_t stride;
    int n_parts;
};

struct backend;
struct pack_cache; /* pack_cache.h */

struct backend_ops {
    const char *name;       /* "cpu" */
    const char *arithmetic; /* "cpu-bf16", "cpu-int8" */
    enum weight_form form;  /* of its matrices, where it is stored so; bf16 stands for the rest */
    bool is_host;           /* its memory is host memory */
    /* What runs it: "avx512", "sm90", ... */
    const char *(*kernels)(const struct backend *be);

    /* Rows that buffers must have for steps of up to n rows: a device pads. */
    int (*capacity)(const struct backend *be, int n);
    /* Zeroed memory of the backend. Errors: ERR_NO_MEMORY. */
    int (*buffer_open)(struct backend *be, void *buffer, size_t bytes, struct error *err);
    void (*buffer_close)(struct backend *be, void *buffer, size_t bytes);
    /* Copies from host memory; complete when it returns. */
    void (*upload)(struct backend *be, void *buffer, const void *host, size_t bytes);
    /* The last step's data as host memory, until the next call; NULL: the device is lost. */
    const float *(*read)(struct backend *be, const float *data, size_t n);

    int (*matrix_open)(struct backend *be, struct matrix *m, const struct matrix_source *source,
                       struct error *err);
    void (*matrix_close)(struct backend *be, struct matrix *m);

    /* A step begins. *replayed: the backend knows a step of this size by heart and has set it going;
     * the operations up to `end` must then be left out. Operations of equal sizes must be called
     * with the same arguments in every step. Errors: ERR_UNAVAILABLE the device is lost. */
    int (*begin)(struct backend *be, const struct backend_step *step, bool *replayed,
                 struct error *err);
    /* The step's operations have all been given; a device may still be at work. *again: nothing of the
     * step has run, since the device could not record it; the same operations must be given once more,
     * without `begin`, and ended. That happens once at most for a step, and never to a replayed one. */
    int (*end)(struct backend *be, bool *again, struct error *err);

    /* x[N][D] = embedding rows of the step's tokens, exact. */
    void (*embed)(struct backend *be, const struct backend_step *step, float *x);
    /* h[N][D] = bf16(rmsnorm(x) * weight); relative error < 2^-8 (the bf16 rounding). */
    void (*rmsnorm)(struct backend *be, const float *x, const float *weight, float eps, int n,
                    int dim, uint16_t *h);
    /* The same for the step's wanted rows of x alone: h[n_rows][D]. */
    void (*rmsnorm_rows)(struct backend *be, const struct backend_step *step, const float *x,
                         const float *weight, float eps, int dim, uint16_t *h);
    /* out[N][out_stride] = in[N][in_stride] * m; fp32 sums in one order per output. */
    void (*matmul)(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                   float *out, size_t out_stride, int n);
    /* Slice s takes columns s * slices[s].n_in and on of `in`; sums->data has room for n_slices
     * [N][D], stride and n_parts are set. */
    void (*matmul_slices)(struct backend *be, const struct matrix *slices, int n_slices,
                          const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums);
    /* h[N][F] = bf16(silu(gate + gate_bias) * (up + up_bias)) with gate and up = in[N][D] * m;
     * bias [2 F] or NULL; gate_up [N][2 F] is scratch. */
    void (*matmul_swiglu)(struct backend *be, const struct matrix *m, const float *bias,
                          const uint16_t *in, int n, float *gate_up, uint16_t *h);
    /* Bias, q/k norm, rope on qkv[N][(H + 2K) E]; q to q[N][H E] as bf16, k and v into the KV blocks
     * of layer `kv`. */
    void (*attention_store)(struct backend *be, const struct attention_shape *shape,
                            const struct attention_input *input, const struct backend_step *step,
                            float *qkv, uint16_t *q, uint16_t *kv);
    /* out[N][H E] = attention of q over the KV of each lane, causal; relative error about 2^-8. */
    void (*attention)(struct backend *be, const struct attention_shape *shape,
                      const struct backend_step *step, const uint16_t *q, const uint16_t *kv,
                      uint16_t *out);
    /* The sums of all ranks by the fixed tree: n_parts becomes 1, every rank has the same bits.
     * Errors: ERR_UNAVAILABLE a rank is gone. */
    int (*tree_sum)(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                    struct error *err);
    /* x[N][D] += the tree's sum of sums (+ bias[D], NULL = none), then, unless h is NULL, h = rmsnorm
     * of x. */
    void (*residual_norm)(struct backend *be, float *x, const struct slice_sums *sums,
                          const float *bias, const float *weight, float eps, int n, int dim,
                          uint16_t *h);
    /* Answers wishes on slices of the last step's logits (row.h): out[n_items], arrays from arena. On
     * failure *bad is the item at fault. Errors: row_slice_answer's, ERR_UNAVAILABLE. */
    int (*answer)(struct backend *be, const struct answer_item *items, int n_items,
                  struct arena *arena, struct slice_row *out, int *bad, struct error *err);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    const char *pack_folder;  /* "auto", a folder, or NULL: packed weights are not kept on disk; set
                               * by backend_open, used when a model is opened */
    struct pack_cache *cache; /* set by weights.c while a model of this backend is open */
};

/* Bytes of one layer's KV: a K-part and a V-part for every block and kv head. */
size_t kv_layer_bytes(const struct attention_shape *shape);
