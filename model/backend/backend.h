/* The dozen operations that the forward pass is written over. model/backend/cpu and
 * model/backend/cuda each fill the table. The memory that `void *` and data pointers point to
 * belongs to the backend, except where a comment says that it is host memory. Operations between
 * `begin` and `end` return nothing because they cannot fail once the buffers exist (a device
 * reports what went wrong at `end` or `answer`). Owned by the engine thread.
 *
 * Letters: N rows (tokens) of a step, D model width, H heads, K kv heads, E head width, F ffn
 * width, all of this rank's shard. Tolerances are against exact arithmetic on the same bf16
 * inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "model/backend/attention_lane.h"
#include "model/checkpoint/checkpoint.h"
#include "model/logits/row.h"

enum {
    WIDTH_UNIT = 16,           /* the model's width and the head's width are multiples of it */
    ATTENTION_PARTITION = 256, /* positions of an attention partition: part of the arithmetic */
    MATRIX_PARTS_MAX = 3
};

/* Neighbouring columns of a matrix that have the same form. */
struct matrix_section {
    enum weight_form form;
    int first, n_out; /* columns */
    size_t offset;    /* of its data in that of the matrix */
    /* WEIGHTS_FP8: k that share a scale, 0 for all of them, and how many of the first ones do. */
    int run, first_run;
};

/* A weight matrix in the backend's own layout. A model that is stored in blocks may have parts of
 * several kinds in one matrix; each run of parts of the same form is a section. */
struct matrix {
    void *data;
    size_t bytes;
    int n_in, n_out;
    enum weight_form form; /* of its elements in data; WEIGHTS_BLOCKS: each section's own */
    int first_group;       /* WEIGHTS_BLOCKS: where n_in begins in a super-block, 0..7 groups */
    int n_sections;        /* WEIGHTS_BLOCKS; otherwise 0 */
    /* [n_ordered] WEIGHTS_BLOCKS: the k of n_in that are packed one after the other, -1 for one of
     * zeros; sections of integers have n_ordered k then. NULL: those of n_in. */
    int32_t *order;
    int n_ordered;
    struct matrix_section sections[MATRIX_PARTS_MAX];
};

/* Where a matrix's columns come from: up to three tensors side by side (q, k, v). Of each, the
 * matrix takes a run of rows, or chosen rows, and a run of columns. Rows past the end of the tensor
 * (the vocabulary's tail) and past the chosen ones are zero. */
struct matrix_part {
    struct weight weight;
    int first_row, n_rows;   /* output columns of the matrix */
    int first_col;           /* offset along k, for row-parallel slices */
    const int32_t *row_list; /* [n_listed] rows of the tensor; NULL: the run from first_row on */
    int n_listed;            /* at most n_rows */
};

/* Returns the tensor's row that output column `column` of the part is computed from; -1: zeros. */
static inline int matrix_part_row(const struct matrix_part *part, int column)
{
    if (part->row_list) return column < part->n_listed ? (int)part->row_list[column] : -1;
    int row = part->first_row + column;
    return row < part->weight.n_rows ? row : -1;
}

struct matrix_source {
    int n_in;
    int n_parts;
    bool is_gate_up;     /* two parts with the same number of rows, which matmul_gated multiplies */
    int slice, n_slices; /* which of the slices of this rank, side by side; 0 of 0: it is none */
    bool *is_expected;   /* of all slices: the hint was given; NULL: it is no slice */
    struct matrix_part parts[MATRIX_PARTS_MAX];
    /* [n_parts] To each is added the digest of what is read of the part, whose units are rows of
     * n_in elements (model/checkpoint/digest.h). NULL: not wanted. */
    uint64_t *digests;
};

/* The part that holds output column `column` of the matrix; *row is the row of its tensor. NULL:
 * the column is zero. */
static inline const struct matrix_part *matrix_source_part(const struct matrix_source *source,
                                                           int column, int *row)
{
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        if (column < part->n_rows) {
            *row = matrix_part_row(part, column);
            return *row < 0 ? NULL : part;
        }
        column -= part->n_rows;
    }
    return NULL;
}

/* A hint that all of it will be read now, and nothing beside it (weight_expect). The slices of a
 * rank are read one after the other, so the first one that is read, because no kept pack has it,
 * names the later ones too: their columns are one run of each row, and a hint costs as much for a
 * short run as for a long one. */
void matrix_source_expect(const struct matrix_source *source);

/* Adds the digests of what columns first .. end of the matrix are made of to digests[n_parts]. */
void matrix_source_digest(const struct matrix_source *source, int first, int end,
                          uint64_t *digests);

struct attention_shape {
    int n_heads, n_kv_heads, head_dim; /* of this rank */
    int n_blocks;                      /* of the whole KV */
};

enum { STEP_NO_TOKEN = -1 }; /* a row without a token, whose embedding is zero */

/* The inputs of a step. All of it is host memory, lent from `begin` to `end`. */
struct backend_step {
    const struct weight *embedding; /* NULL: no row is embedded */
    const int32_t *tokens;          /* [n] ids, or STEP_NO_TOKEN */
    /* Embeddings of look-ahead tokens (model/look_ahead.h), which have the ids from
     * look_ahead_first on; NULL: there are none. Equal in all steps of a model. */
    const struct weight *look_ahead;
    int look_ahead_first;
    /* Copies of both in the backend's memory, as they are stored, bf16, fp16 or fp32. NULL: there
     * is no copy of the embedding, and rows are read in host memory. */
    const void *embedding_copy, *look_ahead_copy;
    int n; /* rows fed, over all lanes */
    const struct attention_lane *lanes;
    int n_lanes;
    const struct attention_shape *shape;
    const float *cos, *sin; /* [n][n_ropes][E / 2] of the rows' positions, by each table */
    const int *rows;        /* [n_rows] the rows whose logits are wanted */
    int n_rows;
    int n_ropes;              /* >= 1 */
    float embedding_scale;    /* of the embedding's rows; 0: none */
    const float *query_scale; /* [n] what q is multiplied with after the rotation; NULL: nothing */
    /* Number of the operations between begin and end: equal for steps that have the same ones with
     * the same buffers. */
    int variant;
    /* [n][feature_width] bf16, a row's features; NULL: the rows have none. recycled [n] is 1
     * where they are the head's own output, in the first elements, and otherwise 0. */
    const uint16_t *features;
    const int32_t *recycled;
    int feature_width; /* a multiple of WIDTH_UNIT */
};

/* The embedding of a row's token, without the step's scale: [D] elements, exact, zeros where there
 * is none. */
void backend_step_embed(const struct backend_step *step, int row, float *out);

/* The parameters of the operations between the raw projections and attention. A NULL pointer leaves
 * its step out. */
struct attention_input {
    const float *qkv_bias;        /* [(H + 2K) E] */
    const float *q_norm, *k_norm; /* [E]; with squares [H E] and [K E] */
    float norm_eps;
    /* [N][2] the sums of the squares of all of q, q_width elements, and of all of k; NULL: the
     * norms are of each head alone. */
    const struct slice_sums *squares;
    int q_width, k_width; /* over all ranks */
    int rope;             /* which of the step's tables rotates */
    int rope_half;        /* pairs (i, i + rope_half) rotate, i < rope_half; 0: nothing does */
};

/* The buffers of qk_squares. Slice i of this rank's n_slices has columns i * q_len and on of q, and
 * k_first + i * k_len and on of k; qkv is without biases. */
struct qk_squares {
    const float *qkv; /* [N][(H + 2K) E] */
    int n, n_slices, q_len, k_len, k_first;
};

/* How the scores of a layer become weights. */
struct attention_rule {
    int window;    /* 0: none */
    float scale;   /* of the scores */
    float softcap; /* c: a scaled score s becomes c tanh(s / c); 0: it stays */
    /* The rows of a lane see each other: all up to the lane's last row. Only without trees. */
    bool sees_lane;
};

/* A matrix of gate and up, and what follows it. */
struct gated_mlp {
    const struct matrix *matrix;
    const float *bias; /* [2 F]; NULL: none */
    enum activation activation;
    const uint16_t *in; /* [N][D] */
    int n;
    float *gate_up; /* [N][2 F] scratch */
    uint16_t *h;    /* [N][F] */
};

/* Sums of a row-parallel matrix that the fixed tree has not added yet: part i is at data + i *
 * stride, each [N][D]. n_parts is 1 to 8; a backend may add the parts in matmul_slices, and then it
 * is 1. tree_sum and residual_norm take what the backend's own matmul_slices gives. */
struct slice_sums {
    float *data;
    size_t stride;
    int n_parts;
};

/* The buffers that residual_norm reads and writes, for N rows of width D. */
struct residual_norm {
    float *x; /* [N][D] the residual stream */
    const struct slice_sums *sums;
    const float *bias;   /* [D]; NULL: none */
    const float *weight; /* [D] of the norm */
    float eps;
    int n, dim;
    uint16_t *h;              /* [N][D]; NULL: no norm */
    const float *post_weight; /* [D] of the norm of what is added; NULL: it is added as it is */
    float scale;              /* of what is added; 0: none */
};

/* A function of single elements: none, x times its sigmoid, or the larger of x and 0. */
enum part_function { PART_AS_IS, PART_SILU, PART_RELU };

/* The buffers of norm_part: the first dim columns of N rows. */
struct norm_part {
    float *x; /* [N][x_stride] */
    size_t x_stride;
    const float *bias; /* [dim]; NULL: none */
    enum part_function function;
    const float *weight; /* [dim] of the norm; NULL: no norm */
    float eps;
    int n, dim;
    uint16_t *h; /* [N][h_stride]; NULL: neither norm nor h */
    size_t h_stride;
    bool keeps; /* x becomes h */
};

struct backend;
struct pack_cache; /* pack_cache.h */

/* The memory of a device that steps may take while they run: scratch memory, inputs, recordings. */
enum { BACKEND_STEPS_BYTES = 1 << 30 };

struct backend_ops {
    const char *name;       /* "cpu" */
    const char *arithmetic; /* "cpu-bf16", "cpu-int8" */
    enum weight_form form;  /* stored weights that it uses as they are; bf16 on a GPU */
    bool is_host;           /* its memory is host memory */
    /* The instruction set that its kernels are made for: "avx512", "sm90", ... */
    const char *(*kernels)(const struct backend *be);

    /* Rows that buffers must have for steps of up to n rows, because a device pads them. */
    int (*capacity)(const struct backend *be, int n);
    /* As capacity, for steps that want the logits of up to n rows. */
    int (*wanted_capacity)(const struct backend *be, int n);
    /* Free and all memory of the device, in bytes; NULL where is_host. Errors: ERR_UNAVAILABLE. */
    int (*memory)(struct backend *be, size_t *free_bytes, size_t *all_bytes, struct error *err);
    /* Zeroed memory of the backend; NULL when err is set. Callers use backend_buffer. Errors:
     * ERR_NO_MEMORY, ERR_UNAVAILABLE the device is lost. */
    void *(*buffer_open)(struct backend *be, size_t bytes, struct error *err);
    void (*buffer_close)(struct backend *be, void *buffer, size_t bytes);
    /* Copies from host memory; complete when it returns. */
    void (*upload)(struct backend *be, void *buffer, const void *host, size_t bytes);
    /* The last step's data as host memory, until the next call; NULL: the device is lost. */
    const float *(*read)(struct backend *be, const float *data, size_t n);

    int (*matrix_open)(struct backend *be, struct matrix *m, const struct matrix_source *source,
                       struct error *err);
    void (*matrix_close)(struct backend *be, struct matrix *m);
    /* Adds to source->digests what matrix_open would add, and makes no matrix. Errors:
     * ERR_NO_MEMORY. */
    int (*matrix_digest)(struct backend *be, const struct matrix_source *source, struct error *err);

    /* Begins a step. *replayed: the backend has recorded a step of this size and has started the
     * recording, so the operations up to `end` must be left out. For that reason operations of
     * equal sizes must be called with the same arguments in every step of a variant. Errors:
     * ERR_UNAVAILABLE the device is lost. */
    int (*begin)(struct backend *be, const struct backend_step *step, bool *replayed,
                 struct error *err);
    /* All operations of the step have been given; a device may still be at work. *again: nothing of
     * the step has run because the device could not record it, and the same operations must be
     * given once more, without `begin`, and ended. That happens at most once in a step, and never
     * in a replayed one. */
    int (*end)(struct backend *be, bool *again, struct error *err);

    /* x[N][D] = embedding rows of the step's tokens, exact, times the step's scale; zeros where a
     * row has none. */
    void (*embed)(struct backend *be, const struct backend_step *step, float *x);
    /* h[N][D] = bf16(rmsnorm(x) * weight); relative error < 2^-8 (the bf16 rounding). Without a
     * weight there is no norm: h = bf16(x). */
    void (*rmsnorm)(struct backend *be, const float *x, const float *weight, float eps, int n,
                    int dim, uint16_t *h);
    /* As rmsnorm, for the step's wanted rows of x alone: h[n_rows][D]. */
    void (*rmsnorm_rows)(struct backend *be, const struct backend_step *step, const float *x,
                         const float *weight, float eps, int dim, uint16_t *h);
    /* x[N][dim] = the first dim elements of the step's features, exact. With only_recycled the rows
     * whose features are not the head's own output stay as they are. */
    void (*feature_rows)(struct backend *be, const struct backend_step *step, float *x, int dim,
                         bool only_recycled);
    /* The step's features in the backend's memory, [N][feature_width], until its end. */
    const uint16_t *(*step_features)(struct backend *be, const struct backend_step *step);
    /* x[N][x_stride] = h[N][dim], exact. */
    void (*widen)(struct backend *be, const uint16_t *h, int n, int dim, float *x, size_t x_stride);
    /* On a part of the columns: x += bias, where there is one; x = function(x); h = bf16(rmsnorm(x)
     * * weight), or bf16(x) without a weight, with the bits of rmsnorm; x = h, exact, if it keeps
     * that. */
    void (*norm_part)(struct backend *be, const struct norm_part *args);
    /* out[N][out_stride] = in[N][in_stride] * m; fp32 sums in one order per output. */
    void (*matmul)(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                   float *out, size_t out_stride, int n);
    /* Slice s reads columns s * slices[s].n_in and on of `in`. sums->data has room for n_slices
     * [N][D]; stride and n_parts are set here. */
    void (*matmul_slices)(struct backend *be, const struct matrix *slices, int n_slices,
                          const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums);
    /* h[N][F] = bf16(a(gate + gate_bias) * (up + up_bias)) with gate and up = in[N][D] * matrix and
     * a the activation. */
    void (*matmul_gated)(struct backend *be, const struct gated_mlp *args);
    /* The squares of q and of k summed over each slice's columns: sums->data has room for n_slices
     * [N][2]; stride and n_parts are set here. */
    void (*qk_squares)(struct backend *be, const struct attention_shape *shape,
                       const struct qk_squares *args, struct slice_sums *sums);
    /* Bias, q/k norm and rope on qkv[N][(H + 2K) E]; then q goes to q[N][H E] as bf16, k and v to
     * the KV blocks of layer `kv`, in every path of a tree that holds the row. The committed
     * positions of the block where a tree begins are copied to its further paths. */
    void (*attention_store)(struct backend *be, const struct attention_shape *shape,
                            const struct attention_input *input, const struct backend_step *step,
                            float *qkv, uint16_t *q, uint16_t *kv);
    /* out[N][H E] = attention of q over the KV of each lane, causal; relative error about 2^-8.
     * Through a window a row sees no more positions than that, its own the last, and
     * blocks of which no row of the lane sees a position are not read: their entries in its tables
     * may be anything. A rule with sees_lane adds the lane's later rows to what a row sees. */
    void (*attention)(struct backend *be, const struct attention_shape *shape,
                      const struct backend_step *step, const struct attention_rule *rule,
                      const uint16_t *q, const uint16_t *kv, uint16_t *out);
    /* Adds the sums of all ranks by the fixed tree: n_parts becomes 1, and every rank has the same
     * bits. Errors: ERR_UNAVAILABLE a rank is gone. */
    int (*tree_sum)(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                    struct error *err);
    /* y = the tree's sum of sums, plus bias where there is one; y = rmsnorm(y) * post_weight where
     * there is one; x[N][D] += y * scale. Then, unless h is NULL, h = rmsnorm of x, or bf16(x)
     * without a weight. */
    void (*residual_norm)(struct backend *be, const struct residual_norm *args);
    /* logits[n][stride] *= scale, unless it is 0; then each is c tanh(logit / c) with c = softcap,
     * unless it is 0. */
    void (*adjust_logits)(struct backend *be, float *logits, size_t stride, int n, float scale,
                          float softcap);
    /* logits[row][stride] += bias[i][stride] for wanted row i of the step, where `row` is a row of
     * these logits. */
    void (*add_logits)(struct backend *be, const struct backend_step *step, float *logits,
                       size_t stride, const float *bias);
    /* Answers wishes on slices of the last step's logits (model/logits/row.h): out[n_items], with
     * arrays from arena. Where an item has no answer, the code of its row says why, and the others
     * are answered. Errors: ERR_UNAVAILABLE the device is lost. */
    int (*answer)(struct backend *be, const struct answer_item *items, int n_items,
                  struct arena *arena, struct slice_row *out, struct error *err);
    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    /* Where packed weights are kept on disk: "auto", a folder, or NULL for nowhere. Set by
     * backend_open, used when a model is opened. */
    const char *pack_folder;
    const char *kernels_reason; /* why it has these kernels, for the log; set when it is opened */
    struct pack_cache *cache;   /* set by model/weights.c while a model of this backend is open */
};

/* Sets *pointer, a pointer to any object, to zeroed memory of the backend, which buffer_close
 * releases. Errors: buffer_open's; *pointer is NULL then. */
#define backend_buffer(be, pointer, bytes, err)                                         \
    (*(pointer) = (__typeof__(*(pointer)))(be)->ops->buffer_open((be), (bytes), (err)), \
     *(pointer) ? 0 : (err)->code)

/* Elements of the K-part of a block and kv head; its V-part has as many. */
static inline size_t kv_part_elements(const struct attention_shape *shape)
{
    return (size_t)KV_BLOCK_TOKENS * (size_t)shape->head_dim;
}

/* Bytes of one layer's KV: a K-part and a V-part for every block and kv head. */
size_t kv_layer_bytes(const struct attention_shape *shape);
