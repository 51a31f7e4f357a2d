/* Where the CPU backend keeps KV: the parts of a block of 16 positions and a kv head, in the
 * layouts that kv.c describes. */
#pragma once

#include "model/backend/backend.h"

/* Blocks whose K-parts of one head are side by side, followed by their V-parts. A region is long
 * enough to be read at the full rate and short enough that a short text touches few pages. The last
 * region may be shorter. */
enum { CPU_KV_REGION = 128 };

/* Where the two parts begin, in elements. */
struct cpu_kv_place {
    size_t k, v;
};

static inline struct cpu_kv_place cpu_kv_at(const struct attention_shape *shape, int block,
                                            int kv_head)
{
    int first = block / CPU_KV_REGION * CPU_KV_REGION;
    int n = shape->n_blocks - first < CPU_KV_REGION ? shape->n_blocks - first : CPU_KV_REGION;
    size_t part = kv_part_elements(shape);
    size_t region = (size_t)first * 2 * (size_t)shape->n_kv_heads * part;
    struct cpu_kv_place place;
    place.k = region + ((size_t)kv_head * 2 * (size_t)n + (size_t)(block - first)) * part;
    place.v = place.k + (size_t)n * part;
    return place;
}
