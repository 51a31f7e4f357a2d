/* Room for KV on the GPUs of a group. */
#include "worker/kv_room.h"

#include "base/limits.h"
#include "worker/share.h"

enum {
    KV_BLOCKS_MOST = (1 << 24) - 1, /* less than a description may have */
    GRANULE_BYTES =
        2 << 20 /* a GPU gives memory in pieces of this size, and each layer has its own */
};

/* Blocks that this rank has room for; 0: none. */
static int own_blocks(const struct kv_room_options *options, const struct model *model,
                      size_t free_bytes, size_t all_bytes)
{
    double kept = (1 - options->share) * (double)all_bytes;
    if (kept < BACKEND_STEPS_BYTES) kept = BACKEND_STEPS_BYTES;
    double room = (double)free_bytes - kept - (double)model_n_layers(model) * GRANULE_BYTES;
    double n = room / (double)model_kv_block_bytes(model);
    if (n < 1) return 0;
    return n < KV_BLOCKS_MOST ? (int)n : KV_BLOCKS_MOST;
}

int kv_room_find(const struct kv_room_options *options, const struct group *group,
                 struct backend *be, const struct model *model, int *n_blocks, struct error *err)
{
    size_t free_bytes = 0, all_bytes = 0;
    int rc = 0, n_ranks = group->comm->size, least = 0;
    int32_t blocks[RANKS_MAX];
    TRY(be->ops->memory(be, &free_bytes, &all_bytes, err));
    blocks[0] = own_blocks(options, model, free_bytes, all_bytes);
    if (n_ranks > 1) {
        int32_t mine = blocks[0];
        TRY(share_bytes(group, be, &mine, blocks, sizeof mine, err));
    }
    for (int rank = 1; rank < n_ranks; rank++) {
        if (blocks[rank] < blocks[least]) least = rank;
    }
    *n_blocks = blocks[least];
    if ((int64_t)*n_blocks * KV_BLOCK_TOKENS >= options->least_tokens) return 0;
    return error_set(err, ERR_NO_MEMORY,
                     "--gpu-memory %g: weights and buffers leave room for a KV cache of %d "
                     "positions on the GPU of rank %d, and one step may have %d "
                     "(--max-step-tokens): give a larger share, or use more ranks",
                     options->share, *n_blocks * KV_BLOCK_TOKENS, least, options->least_tokens);
out:
    return rc;
}
