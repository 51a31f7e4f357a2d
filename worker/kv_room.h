/* How much KV the ranks of a group have room for, where --gpu-memory says which share of a GPU's
 * memory a rank may take in all. */
#pragma once

#include "model/model.h"
#include "worker/group.h"

struct kv_room_options {
    double share;     /* of all memory of the GPU, in (0, 1) */
    int least_tokens; /* positions that there must be room for */
};

/* Blocks of KV that every rank has room for: what the rank with the least has left of its share
 * when weights and buffers are there. All ranks call it when they have opened their models without
 * KV, each for a GPU of its own. Errors: ERR_NO_MEMORY least_tokens do not fit on a rank, which all
 * ranks say alike; those of share_bytes. */
int kv_room_find(const struct kv_room_options *options, const struct group *group,
                 struct backend *be, const struct model *model, int *n_blocks, struct error *err);
