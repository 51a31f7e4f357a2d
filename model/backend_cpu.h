/* Inside of the CPU backend: shared by its files only. */
#pragma once

#include "model/backend.h"

struct backend_cpu {
    struct backend base;
    const struct kernels *kernels;
    struct team *team;
    float *scratch; /* [n_threads][CPU_SCRATCH_FLOATS] */
};

enum {
    CPU_HEAD_DIM_MAX = 256,
    CPU_HEADS_AT_ONCE = 8, /* heads of one kv head that attend together */
    /* of attention: their scores, their accumulators of all partitions and of one, and one
     * head's weights */
    CPU_SCRATCH_FLOATS =
        CPU_HEADS_AT_ONCE * (ATTENTION_PARTITION + 2 * CPU_HEAD_DIM_MAX) + ATTENTION_PARTITION
};

static inline struct backend_cpu *backend_cpu_of(struct backend *be)
{
    return (struct backend_cpu *)be;
}

void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct attention_lane *lanes,
                         int n_lanes, float *qkv, uint16_t *q, uint16_t *kv);
void cpu_attention(struct backend *be, const struct attention_shape *shape,
                   const struct attention_lane *lanes, int n_lanes, const uint16_t *q,
                   const uint16_t *kv, uint16_t *out);
