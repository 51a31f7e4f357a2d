/* The first matrix of a head (fc) over rows of the target's features, with the norms before it
 * (struct head_entry): in the head itself, and in a target that applies it for the head
 * (model/projection.h). Both have the same bits. Owned by the model's thread. */
#pragma once

#include "model/backend/backend.h"
#include "model/checkpoint/config/head_config.h"
#include "model/weights_entry.h"

struct fc {
    const struct head_config *head;
    int dim;          /* D: of what comes out */
    size_t capacity;  /* rows of the buffers in the backend's memory */
    float *features;  /* [A Ht] what fc_norm reads; NULL: it has no rows, like the next one */
    uint16_t *normed; /* [A Ht] */
};

/* A Ht: of the rows that are read. */
static inline int fc_width(const struct head_config *head)
{
    return head->entry.n_features * head->entry.feature_dim;
}

/* Errors: ERR_UNSUPPORTED features that are too wide for the kernels. */
int fc_check_width(const struct head_config *head, struct error *err);

/* Keeps head, which has an fc. has_rows: with room for rows of its own, which fc_norm reads and
 * fills. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE. */
int fc_open(struct fc *fc, const struct head_config *head, int dim, int max_tokens, bool has_rows,
            struct backend *be, struct error *err);
void fc_close(struct fc *fc, struct backend *be);

/* fc->normed = the features of n rows in fc->features, normed as the head has it, in bf16. */
void fc_norm(const struct fc *fc, struct backend *be, const struct entry_weights *w, float eps,
             int n);
/* x[n][D] = fc of in[n][in_stride], rounded to bf16; `rounded` [n][rounded_stride] has it, too. */
void fc_multiply(const struct fc *fc, struct backend *be, const struct entry_weights *w,
                 const uint16_t *in, size_t in_stride, int n, float *x, uint16_t *rounded,
                 size_t rounded_stride);
