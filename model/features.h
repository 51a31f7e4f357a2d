/* The features that a model keeps of its steps (model/logits/feature_wish.h): the buffer that the
 * forward pass copies the residual stream to, at the boundaries that are wanted. For the files of
 * internal.h alone. Owned by the model's thread. */
#pragma once

#include "model/backend/backend.h"
#include "model/logits/feature_wish.h"

enum { FEATURE_VARIANTS = 8 };

struct kept_features {
    struct feature_wish wish; /* of the steps from now on; no columns: nothing is kept */
    /* Which operations such a step has, for backend_step: 0 without a wish; a number that no other
     * wish or buffer ever had. The last few wishes keep theirs. */
    int variant, n_variants;
    struct {
        struct feature_wish wish;
        int variant;
    } known[FEATURE_VARIANTS];
    /* The columns that are kept for it, among them those that its projection reads. */
    struct feature_wish kept;
    /* [columns of `kept`][n_rows][dim], then [n_rows][width] that is projected; in the backend's
     * memory */
    uint16_t *rows;
    size_t bytes;
    int n_rows, dim;
};

/* Keeps what `wish` says from now on; NULL or no columns: nothing. n_rows: the most of a step, with
 * the backend's padding. Errors: those of backend_buffer, and then nothing is kept until the next
 * call; wishes that fit the buffer of before can still be set. */
int kept_features_set(struct kept_features *kept, struct backend *be,
                      const struct feature_wish *wish, int n_rows, int dim, struct error *err);
void kept_features_close(struct kept_features *kept, struct backend *be);

/* The rows of a column of `kept`, [n_rows][dim]; after the last column those that are projected. */
static inline uint16_t *kept_features_column(const struct kept_features *kept, int column)
{
    return kept->rows + (size_t)column * (size_t)kept->n_rows * (size_t)kept->dim;
}

/* The column of `kept` that has the boundary; -1: the normed feature. */
static inline int kept_features_find(const struct kept_features *kept, int boundary)
{
    return boundary < 0 ? kept->kept.n : feature_wish_column(&kept->kept, boundary);
}
