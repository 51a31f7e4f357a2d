/* How a distribution is made from logits: temperature, top-k, top-p over what top-k left, min-p, in
 * this order; ties go to the lowest id. The same for target and draft. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

/* p and q are always the distributions after these. */
struct sampling_params {
    float temperature; /* 0 = greedy: all mass on the best token */
    int top_k;         /* 0 = off */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off; keeps tokens with p >= min_p * max p */
};

/* Errors: ERR_ARGUMENT names the value that is out of range. */
int sampling_check(const struct sampling_params *params, struct error *err);
bool sampling_truncates(const struct sampling_params *params);

/* A distribution over few tokens; arrays are lent. Ids are distinct, ascending; p sums to 1. */
struct sparse_dist {
    int n;
    int32_t *ids; /* [n] */
    float *p;     /* [n] */
};

/* p of id, 0 outside of the support. Binary search. */
float sparse_prob(const struct sparse_dist *dist, int32_t id);

/* Inverse CDF with u in [0, 1). */
int32_t sparse_draw(const struct sparse_dist *dist, double u);

/* The draft's q: the `support` best of logits[n_vocab] (legal: acceptance needs the exact q, not the
 * whole of it), then params applied and renormalised. out->ids and out->p hold `support` entries;
 * scratch holds 2 * support more of 8 bytes. Temperature 0 gives the one-hot of the best. */
void sampling_draft_dist(const float *logits, int n_vocab, const struct sampling_params *params,
                         int support, struct sparse_dist *out);

/* The same over candidates that are already sorted, best first (logit, then lowest id), whose total
 * mass exp((logit - logits[0]) / t) is `sum_all` (the whole row's, at params->temperature):
 * temperature and cuts. Returns the number kept (>= 1) with p[kept] normalised, in the given order;
 * *is_certain is false when a token that is not among the candidates could belong to the kept ones
 * (is_whole: the candidates are the whole row). */
int sampling_truncate(const float *logits, int n, double sum_all, bool is_whole,
                      const struct sampling_params *params, float *p, bool *is_certain);

/* The coupled choice among candidates: argmax of row_noisy_score; ties go to the lowest id. */
int32_t sampling_coupled_pick(const int32_t *ids, const float *logits, int n, float temperature,
                              uint64_t seed, uint32_t position);
