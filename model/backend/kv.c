/* The size of a KV cache. Every backend lays it out in its own way. */
#include "model/backend/backend.h"

size_t kv_layer_bytes(const struct attention_shape *shape)
{
    size_t n_parts = (size_t)shape->n_blocks * (size_t)shape->n_kv_heads * 2;
    return n_parts * kv_part_elements(shape) * sizeof(uint16_t);
}
