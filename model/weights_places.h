/* The weights of a head of places (struct head_places); what it lacks is zero. */
#pragma once

#include "model/checkpoint/config/places_config.h"
#include "model/loader.h"

struct place_weights {
    struct matrix blocks[PLACE_BLOCKS_MAX]; /* [n_stored_blocks] D -> D */
    struct vector biases[PLACE_BLOCKS_MAX]; /* [D] */
    struct matrix output;                   /* hidden_dim -> D */
    struct vector output_bias;              /* [D] */
    struct matrix logits;                   /* D -> ids; zeroed: that of all places */
};

struct places_weights {
    int n;
    struct place_weights *places; /* [n] */
    struct matrix hidden;         /* D -> hidden_dim */
    struct vector hidden_bias;    /* [hidden_dim] */
};

/* Reads the weights of ld->head. Errors: those of weights_open. */
int places_weights_open(struct places_weights *w, struct loader *ld);
void places_weights_close(struct places_weights *w, struct backend *be);
