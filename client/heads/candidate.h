/* A head or a draft that is measured: how often its guesses are the target's, how long a pass
 * takes, and what that is worth with the best number of guesses. */
#pragma once

#include "client/heads/texts.h"

struct heads_candidate {
    const char *name;
    struct error failure;            /* why it cannot be measured; code 0: it can */
    const char *format;              /* "EAGLE-3", ...; "draft" for a model */
    struct head_table table;         /* of a draft one trial, whose reading has the name "draft" */
    double pass_us;                  /* of one row */
    double row_us;                   /* that each further row adds to it */
    int k;                           /* the best one, at least 1 */
    double tokens;                   /* that a round with k guesses commits */
    double tokens_per_second, ratio; /* over plain decoding */
};

/* Whatever fails goes into the candidate's failure. */
void heads_measure(struct heads_candidate *candidate, struct heads_texts *texts,
                   const struct backend_options *backend);

/* Finds the best k of 1 .. k_max. rtt: time of a round that is neither draft nor step, over a step
 * of one row. */
void heads_predict(struct heads_candidate *candidate, const struct heads_texts *texts, int k_max,
                   double rtt);
