/* The size of a KV cache, which every backend lays out in its own way. */
#include "model/backend/backend.h"

size_t kv_layer_bytes(const struct attention_shape *shape)
{
    size_t part =
        (size_t)KV_BLOCK_TOKENS * (size_t)shape->head_dim; /* K or V of a block and kv head */
    return (size_t)shape->n_blocks * (size_t)shape->n_kv_heads * 2 * part * sizeof(uint16_t);
}
