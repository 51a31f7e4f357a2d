/* The weights of a head's entry (model/checkpoint/config/head_config.h). */
#pragma once

#include "model/checkpoint/config/head_config.h"
#include "model/loader.h"

/* The way of a head's rows to its first layer (struct head_entry); what an entry lacks is zero. */
struct entry_weights {
    struct vector features_norm;                    /* [A Ht] */
    struct vector feature_norms[HEAD_FEATURES_MAX]; /* [Ht] */
    struct matrix fc;                               /* A Ht -> D */
    struct vector fc_bias;                          /* [D] */
    struct vector token_norm, feature_norm;         /* [D] */
    struct matrix join;                             /* 2 D -> D */
    struct vector join_bias;                        /* [D] */
    struct weight chain_first;                      /* [V][r] read by row, never packed */
    struct matrix chain_second;                     /* r -> columns of lm_head */
    struct vector confidence, confidence_bias;      /* [D + r] or [D], and [1] */
};

/* Reads the weights of ld->head: all of them, or those of fc and of the norms before it, where the
 * head has one. Errors: those of weights_open. */
int entry_weights_open(struct entry_weights *w, struct loader *ld);
int entry_weights_open_fc(struct entry_weights *w, struct loader *ld);
void entry_weights_close(struct entry_weights *w, struct backend *be);
