/* Types and functions that the files of the CPU backend share. */
#pragma once

#include "base/limits.h"
#include "base/threads/team.h"
#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/pack.h"

struct cpu_matrix_ops;
struct cpu_chunk; /* buffers.c */

struct backend_cpu {
    struct backend base;
    struct backend_ops ops;              /* of base; its arithmetic is that of the weights' form */
    const struct cpu_matrix_ops *matrix; /* of the weights' form */
    uint8_t *groups;                     /* quantized rows of a matmul; NULL with bf16 alone */
    uint32_t *panels;                    /* rows of a matmul; NULL without bf16 */
    uint16_t *ordered; /* rows in the order of a matrix; NULL: no matrix has one */
    const struct kernels *kernels;
    char kernels_reason[KERNELS_TEXT_BYTES];
    struct team *team;
    struct cpu_chunk *chunks; /* of buffers; the last one that was opened first */
    float *scratch;           /* [n_threads][CPU_SCRATCH_FLOATS] */
};

enum {
    CPU_SMALL_WORK = 16384,    /* elements below which one thread is faster than waking the team */
    CPU_SHARED_WORK = 1 << 20, /* products of elements from which on members help each other */
    CPU_QUERIES = 32,          /* rows times heads that attend together */
    /* of attention: sums and one partition's, scores; weights and queries as bf16 */
    CPU_SCRATCH_FLOATS = CPU_QUERIES * (2 * HEAD_DIM_MAX + ATTENTION_PARTITION) +
                         CPU_QUERIES * (ATTENTION_PARTITION + HEAD_DIM_MAX) / 2
};

static inline struct backend_cpu *backend_cpu_of(struct backend *be)
{
    return (struct backend_cpu *)be;
}

/* Runs fn by the whole team, or by the caller alone where waking the team would take longer. */
static inline void cpu_run(struct backend_cpu *cpu, bool is_small, team_fn *fn, void *job)
{
    if (is_small) {
        fn(job, 0, 1);
    } else {
        team_run(cpu->team, fn, job);
    }
}

/* A matrix to pack and its source. */
struct cpu_fill {
    const struct matrix *matrix; /* without data */
    const struct matrix_source *source;
};

/* Matrices of one shape that share their input rows: the slices of a row-parallel one, or one
 * alone. Rows may go in batches; in, out and n are those of the batch. */
struct cpu_matmul {
    struct backend_cpu *cpu;
    const struct matrix *matrices;
    int n_matrices;
    const uint16_t *in; /* matrix i takes columns i * n_in and on */
    size_t in_stride;
    float *out; /* the product of matrix i begins at out + i * part_stride */
    size_t out_stride, part_stride;
    int n;
    bool is_shared; /* members help each other */
    int n_groups;   /* of a quantized row of one matrix */

    /* Parts of a matrix whose columns belong together: 2 of gate and up, otherwise 1. Its blocks
     * are n_folds equal runs then. */
    int n_folds;
    /* NULL, or what follows the multiplication for columns first .. end of a fold. It is called as
     * soon as all matrices and folds have them, mostly by the member that has computed them. */
    void (*finish)(const struct cpu_matmul *job, int first, int end);
    const float *bias; /* of gate and up; NULL: none */
    enum activation activation;
    uint16_t *hidden; /* [n][columns of gate] */
};

/* How the CPU packs and multiplies matrices of one form of weights. */
struct cpu_matrix_ops {
    const char *packed_form; /* its name and version: another layout, another name */
    int block_columns;       /* of a packed block, which is a unit of work */
    /* Sets the sections of a matrix and what it has with them; NULL: matrices have none. */
    void (*divide)(struct matrix *m, const struct matrix_source *source);
    size_t (*bytes)(const struct matrix *m);
    pack_fn *fill; /* arg: struct cpu_fill */
    /* Sets job->n, the number of rows that are multiplied at once (n_left rows remain), and
     * prepares them. */
    void (*begin_batch)(struct cpu_matmul *job, int n_left);
    /* Computes blocks first_block .. end_block of matrix i. Every member of the team calls it. */
    void (*multiply)(const struct cpu_matmul *job, int i, int first_block, int end_block);
};

/* Blocks of a packed matrix. */
static inline int cpu_matrix_blocks(const struct cpu_matrix_ops *ops, const struct matrix *m)
{
    int width = ops->block_columns, n = 0;
    if (!m->n_sections) return (m->n_out + width - 1) / width;
    for (int i = 0; i < m->n_sections; i++) { /* each begins with a block of its own */
        n += (m->sections[i].n_out + width - 1) / width;
    }
    return n;
}

/* buffers.c */
void *cpu_buffer_open(struct backend *be, size_t bytes, struct error *err);
void cpu_buffer_close(struct backend *be, void *buffer, size_t bytes);
/* Gives back what is left of the chunks. */
void cpu_buffers_end(struct backend_cpu *cpu);

/* matrix.c */
/* Memory for rows as the kernels read them. Errors: ERR_NO_MEMORY. */
int cpu_panels_open(struct backend_cpu *cpu, struct error *err);
void cpu_panels_close(struct backend_cpu *cpu);
extern const struct cpu_matrix_ops cpu_matrix_bf16;
int cpu_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                    struct error *err);
void cpu_matrix_close(struct backend *be, struct matrix *m);
int cpu_matrix_digest(struct backend *be, const struct matrix_source *source, struct error *err);
void cpu_matmul(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                float *out, size_t out_stride, int n);
void cpu_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                       const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums);
void cpu_matmul_gated(struct backend *be, const struct gated_mlp *args);
/* The fixed tree over n_parts parts of n elements, `stride` apart; `sum`, the first, becomes their
 * sum. */
void cpu_add_parts(float *sum, size_t stride, int n_parts, int n);

/* Packs blocks of 64 columns of a section of bf16; NULL: of all of a matrix. */
void cpu_bf16_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                   int first_block, int end_block);
/* Rows that panels have room for; fills the panels of the job's rows; multiplies blocks of 64
 * columns of matrix i. */
int cpu_bf16_rows(const struct cpu_matmul *job);
void cpu_bf16_prepare(struct cpu_matmul *job);
void cpu_bf16_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                       int first_block, int end_block);

struct matmul_rows cpu_bf16_job_rows(const struct cpu_matmul *job);

/* matrix_order.c */
/* Sets the order of a matrix whose stored groups have one. Errors: ERR_UNSUPPORTED its parts have
 * different ones; ERR_NO_MEMORY. */
int cpu_order_open(struct backend_cpu *cpu, struct matrix *m, const struct matrix_source *source,
                   struct error *err);
void cpu_ordered_close(struct backend_cpu *cpu);
/* Rows that there is room for; brings the job's rows into the order of its matrices. */
int cpu_ordered_rows(const struct cpu_matmul *job);
void cpu_ordered_prepare(struct cpu_matmul *job);

/* k of a section of integers. */
static inline int cpu_packed_width(const struct matrix *m)
{
    return m->order ? m->n_ordered : m->n_in;
}

/* matrix_fp8.c */
/* A section of fp8: adds a part to its runs; bytes; packs and multiplies blocks of 64 columns,
 * whose rows cpu_bf16_prepare has prepared. */
void cpu_fp8_add(struct matrix_section *section, const struct matrix_part *part);
size_t cpu_fp8_bytes(const struct matrix *m, const struct matrix_section *section);
void cpu_fp8_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                  int first_block, int end_block);
void cpu_fp8_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                      int first_block, int end_block);

/* matrix_blocks.c */
extern const struct cpu_matrix_ops cpu_matrix_blocks_ops;

/* matrix_quant.c */
extern const struct cpu_matrix_ops cpu_matrix_int8, cpu_matrix_int4;
/* Returns a section of integers as the kernels see it, packs it, and multiplies it. Blocks have 32
 * columns; end_block may be more than there are. Rows are quantized once for all sections that
 * share them (struct kernels_quant, is_wide), so there are up to two sets of them. */
struct quant_matrix cpu_quant_matrix(const struct matrix *m, const struct matrix_section *section,
                                     void *data);
void cpu_quant_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                    int first_block, int end_block);
/* Rows that there is memory for; sets job->n_groups. */
int cpu_quant_rows(struct cpu_matmul *job, int n_sets);
void cpu_quant_prepare(const struct cpu_matmul *job, enum weight_form form, bool is_second);
void cpu_quant_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                        bool is_second, int first_block, int end_block);
/* Memory for quantized rows. Errors: ERR_NO_MEMORY. */
int cpu_groups_open(struct backend_cpu *cpu, struct error *err);
void cpu_groups_close(struct backend_cpu *cpu);

/* rows.c */
void cpu_embed(struct backend *be, const struct backend_step *step, float *x);
void cpu_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n, int dim,
                 uint16_t *h);
void cpu_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                      const float *weight, float eps, int dim, uint16_t *h);
void cpu_feature_rows(struct backend *be, const struct backend_step *step, float *x, int dim,
                      bool only_recycled);
const uint16_t *cpu_step_features(struct backend *be, const struct backend_step *step);
void cpu_widen(struct backend *be, const uint16_t *h, int n, int dim, float *x, size_t x_stride);
void cpu_norm_part(struct backend *be, const struct norm_part *args);
int cpu_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                 struct error *err);
void cpu_residual_norm(struct backend *be, const struct residual_norm *args);
void cpu_adjust_logits(struct backend *be, float *logits, size_t stride, int n, float scale,
                       float softcap);
void cpu_add_logits(struct backend *be, const struct backend_step *step, float *logits,
                    size_t stride, const float *bias);

/* kv.c */
void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct backend_step *step,
                         float *qkv, uint16_t *q, uint16_t *kv);
void cpu_qk_squares(struct backend *be, const struct attention_shape *shape,
                    const struct qk_squares *args, struct slice_sums *sums);

/* attention.c */
void cpu_attention(struct backend *be, const struct attention_shape *shape,
                   const struct backend_step *step, const struct attention_rule *rule,
                   const uint16_t *q, const uint16_t *kv, uint16_t *out);
