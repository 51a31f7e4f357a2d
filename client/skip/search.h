/* The search for the layers of a model that are worth most as its draft. What a set is worth is
 * measured by a function of the caller, so nothing here knows of models. First come the early
 * exits, layers 0 .. n - 1; then the best set found is improved by one layer added or left out at a
 * time, as long as that helps; then the whole model is taken, and the layer that is missed least is
 * left out again and again. (Draft & Verify, arXiv 2309.08168, searches by Bayesian optimisation;
 * one layer at a time needs no model of the sets, and any time limit leaves a result.) */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { SKIP_LAYERS_MAX = 256 };

struct skip_candidate {
    bool has[SKIP_LAYERS_MAX];
    int n;           /* layers that it has */
    double alpha;    /* chance that a guess is accepted */
    double pass_us;  /* time of a pass of one token */
    double speed_up; /* predicted, over plain decoding, with k guesses in a round, k >= 1 */
    int k;
};

struct skip_search {
    int n_layers; /* 2 .. SKIP_LAYERS_MAX */
    /* Fills the fields after n. A result that is not 0 ends the search. */
    int (*measure)(void *context, struct skip_candidate *candidate, struct error *err);
    bool (*is_over)(void *context); /* asked before each measurement */
    void *context;

    struct skip_candidate *found; /* [n_found] after the search: the fastest first; to be freed */
    int n_found;
    size_t capacity;
};

/* Measures at least one set. On failure `found` holds what was measured before. Errors: those of
 * measure, ERR_NO_MEMORY. */
int skip_search_run(struct skip_search *search, struct error *err);

/* The layers of the candidate, ascending; returns their number. */
int skip_candidate_layers(const struct skip_candidate *candidate, int layers[SKIP_LAYERS_MAX]);
