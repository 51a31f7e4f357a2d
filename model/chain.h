/* The chain of a block drafter (struct head_block of model/checkpoint/config/head_config.h): it
 * adds w2 w1[the guess before] to rows of logits, over the table of operations. Owned by the
 * model's thread. */
#pragma once

#include "model/backend/backend.h"

/* Zeroed: the model has none. */
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
