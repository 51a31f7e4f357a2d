/* Inside of the CPU backend: shared by its files only. */
#pragma once

#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kv.h"

struct backend_cpu {
    struct backend base;
    struct backend_ops ops; /* of base: some depend on the form of the weights */
    enum weight_form form;
    struct quant_group *groups; /* quantized rows of a matmul; NULL with bf16 */
    const struct kernels *kernels;
    struct team *team;
    float *scratch; /* [n_threads][CPU_SCRATCH_FLOATS] */
};

enum {
    CPU_SMALL_WORK = 16384, /* elements below which one thread is faster than waking the team */
    CPU_HEAD_DIM_MAX = 256,
    CPU_QUERIES = 32, /* rows times heads that attend together */
    /* of attention: sums and one partition's, scores; weights and queries as bf16 */
    CPU_SCRATCH_FLOATS = CPU_QUERIES * (2 * CPU_HEAD_DIM_MAX + ATTENTION_PARTITION) +
                         CPU_QUERIES * (ATTENTION_PARTITION + CPU_HEAD_DIM_MAX) / 2
};

static inline struct backend_cpu *backend_cpu_of(struct backend *be)
{
    return (struct backend_cpu *)be;
}

/* backend_cpu_quant.c: gives weights of 8 or 4 bits their operations and their memory. Errors:
 * ERR_NO_MEMORY. */
int cpu_quant_install(struct backend_cpu *cpu, enum weight_form form, struct error *err);
size_t cpu_quant_bytes(void); /* of groups */

/* backend_cpu_rows.c */
void cpu_embed(struct backend *be, const struct backend_step *step, float *x);
void cpu_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n, int dim,
                 uint16_t *h);
void cpu_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                      const float *weight, float eps, int dim, uint16_t *h);
void cpu_matmul_swiglu(struct backend *be, const struct matrix *m, const float *bias,
                       const uint16_t *in, int n, float *gate_up, uint16_t *h);
int cpu_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                 struct error *err);
void cpu_residual_norm(struct backend *be, float *x, const struct slice_sums *sums,
                       const float *bias, const float *weight, float eps, int n, int dim,
                       uint16_t *h);

/* backend_cpu_kv.c */
void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct backend_step *step,
                         float *qkv, uint16_t *q, uint16_t *kv);

/* backend_cpu_attention.c */
void cpu_attention(struct backend *be, const struct attention_shape *shape,
                   const struct backend_step *step, const uint16_t *q, const uint16_t *kv,
                   uint16_t *out);
