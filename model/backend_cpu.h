/* Inside of the CPU backend: shared by its files only. */
#pragma once

#include "model/backend.h"

struct backend_cpu {
    struct backend base;
    const struct kernels *kernels;
    struct team *team;
    float *scratch; /* [n_threads][scratch_floats] per member, for attention */
    size_t scratch_floats;
};

enum { CPU_HEAD_DIM_MAX = 256 };

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
