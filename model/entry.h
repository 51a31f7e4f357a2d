/* The way of a head's rows from features and tokens to its first layer (struct head_entry), over
 * the table of operations. Which steps there are is data of the head; the forward pass goes on with
 * the result as with that of an embedding. Owned by the model's thread. */
#pragma once

#include <stdbool.h>

#include "model/backend/backend.h"
#include "model/checkpoint/config/head_config.h"
#include "model/fc.h"
#include "model/weights.h"

/* Zeroed: the model is no head. */
struct entry {
    const struct head_config *head;
    int dim;   /* D */
    int width; /* of the rows of features: A Ht or D, the larger */
    int max_tokens;
    size_t capacity;   /* rows of the buffers in the backend's memory */
    float *embedded;   /* [D] */
    struct fc fc;      /* zeroed: without fc the features go to the residual stream */
    uint16_t *joined;  /* [2 D] the embedding and the feature, in the head's order */
    uint16_t *host;    /* [max_tokens][width] of the step; host memory, like the next one */
    int32_t *recycled; /* [max_tokens] */
    bool has_target;   /* a row of the step has features of the target, so fc is computed */
};

/* Keeps head. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE, ERR_UNSUPPORTED features that are too wide
 * for the kernels. */
int entry_open(struct entry *entry, const struct head_config *head, int dim, int max_tokens,
               struct backend *be, struct error *err);
void entry_close(struct entry *entry, struct backend *be);

/* A step begins. */
void entry_begin(struct entry *entry);
/* Places the features of rows first .. + n: [n][A Ht], or [n][D] where they are in place of what fc
 * makes of features. */
void entry_place(struct entry *entry, int first, int n, const uint16_t *features, bool is_recycled);

/* Fills the residual stream x [N][D], and h [N][D] where the first layer reads that. */
void entry_forward(const struct entry *entry, struct backend *be, const struct backend_step *step,
                   const struct model_weights *weights, float norm_eps, float *x, uint16_t *h);

/* Fills h [N][D] with what the K and V of a block drafter's context are computed from, in every
 * layer; x [N][D] is scratch. */
void entry_forward_context(const struct entry *entry, struct backend *be,
                           const struct backend_step *step, const struct entry_weights *w,
                           float norm_eps, float *x, uint16_t *h);

/* True if the first layer reads entry->joined, of width 2 D, in place of h. */
static inline bool entry_feeds_joined(const struct entry *entry)
{
    return head_feeds_joined(entry->head);
}
