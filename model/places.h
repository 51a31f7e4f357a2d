/* The forward pass of a head of places (struct head_places) over the table of operations. It has
 * neither layers nor KV: a row is the feature of a lane, and each place of it has logits. Owned by
 * the model's thread. */
#pragma once

#include "model/backend/backend.h"
#include "model/checkpoint/config/head_config.h"
#include "model/forward_lane.h"
#include "model/weights.h"

/* Zeroed: the model is no such head. */
struct places {
    const struct head_places *config;
    int dim, max_lanes;
    size_t capacity, n_rows; /* rows of the buffers in the backend's memory: of a place, of all */
    float *x, *added;        /* [capacity][D] y of a place, and what is added to it */
    uint16_t *h;             /* [n_rows][D] y of all places */
    float *hidden;           /* [capacity][hidden_dim]; NULL without a hidden layer */
    uint16_t *activated;     /* [capacity][hidden_dim]; NULL without a hidden layer */
    uint16_t *host;          /* [max_lanes][D] the features; host memory, like the next ones */
    int32_t *zeros;          /* [max_lanes] */

    /* The step's rows. Lanes that want more places have smaller numbers of rows, so those that want
     * a place are the first ones of it. On a device all lanes count for every place, because what
     * is recorded of a step depends on the number of lanes and places alone. */
    int n_lanes, n_places;
    int *row_of;                /* [max_lanes] row of a lane in each place */
    int counts[PLACES_MAX + 1]; /* lanes of a place, by place */
    int first[PLACES_MAX + 1];  /* first row of a place, by place; after the last one, all rows */
};

/* Rows of logits that a step of max_lanes lanes may need. */
int places_rows(const struct head_config *head, int max_lanes, const struct backend *be);

/* Keeps head. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE, ERR_UNSUPPORTED a width that the kernels do
 * not take. */
int places_open(struct places *places, const struct head_config *head, int max_lanes,
                struct backend *be, struct error *err);
void places_close(struct places *places, struct backend *be);

/* Begins a step: each lane wants as many places as it has n_tokens. */
void places_begin(struct places *places, const struct backend *be, const struct forward_lane *lanes,
                  int n_lanes);

/* Takes a lane's feature: [D] bf16. */
void places_take(struct places *places, int lane, const uint16_t *feature);

/* The row of the logits that a place of a lane has in this step. */
int places_row(const struct places *places, int lane, int place);

/* The features of all lanes have been taken. */
struct places_step {
    const struct model_weights *weights;
    const struct model_config *cfg;
    const struct attention_shape *shape;
    float *logits; /* [places_rows][stride] in the backend's memory */
    size_t stride;
};

/* Computes one step. Errors: ERR_UNAVAILABLE. */
int places_forward(struct places *places, struct backend *be, const struct places_step *step,
                   struct error *err);

/* ---- the chain of a block drafter ---- */

/* It adds w2 w1[the guess before] to rows of logits (struct head_block of
 * model/checkpoint/config/head_config.h), over the table of operations. Zeroed: the model has
 * none. */
struct chain {
    int rank;
    size_t capacity, stride; /* rows of the buffers, and columns of a row of logits */
    float *embedded;         /* [r] w1 of the guess before */
    uint16_t *h;             /* [r] */
    float *bias;             /* [stride] */
};

/* For up to max_rows rows at once. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE. */
int chain_open(struct chain *chain, int rank, int max_rows, size_t stride, struct backend *be,
               struct error *err);
void chain_close(struct chain *chain, struct backend *be);

/* Adds the chain to the step's wanted rows of `logits`; the step's tokens are the guesses before
 * and its table is w1. */
void chain_forward(const struct chain *chain, struct backend *be, const struct backend_step *step,
                   const struct matrix *second, float *logits);
