/* Synthetic pairs of chosen agreement: how much the layers after the core must add, so that a draft
 * of the core alone agrees with the whole model as wished. */
#pragma once

#include "model/checkpoint/internal.h"

/* The deviation of the logits at which their softmax has an entropy of about 2 nats. */
double synthetic_logit_deviation(int vocab_size);

/* The contrast at which two models agree by `wished`, 0..1: how far their logits lie apart, root
 * mean square over the vocabulary. 0 for an agreement of 1. It is interpolated in the table of
 * synthetic_agree.c; a wish below the table's last agreement gives the last contrast. */
double synthetic_agree_contrast(double wished);

/* *tail: the factor by which the layers from model->core_layers on are scaled, so that alpha of the
 * rule `rejection` at temperature 1 comes out near `wished`, 0..1, when the draft is the first
 * core_layers layers with its whole softmax as q. docs/journal/pairs.md says how near.
 * model->share_layers is the core. Errors: ERR_ARGUMENT there is no layer after the core, or
 * `wished` is less than what two unrelated models of this vocabulary have. */
int synthetic_agree_tail(const struct synthetic_model *model, double wished, double *tail,
                         struct error *err);
