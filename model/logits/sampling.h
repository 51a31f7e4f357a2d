/* How a distribution is made from logits: temperature, top-k, top-p over what top-k left, min-p, in
 * this order; ties go to the lowest id. The same for target and draft. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"
#include "model/logits/select.h"

/* p and q are always the distributions after these. */
struct sampling_params {
    float temperature; /* 0 = greedy: all mass on the best token */
    int top_k;         /* 0 = off */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off; keeps tokens with p >= min_p * max p */
};

/* Temperatures other than 0 lie within these, so that no logit over temperature overflows. */
#define SAMPLING_TEMPERATURE_MIN 1e-3f
#define SAMPLING_TEMPERATURE_MAX 100.0f

/* Errors: ERR_ARGUMENT names the value that is out of range. */
int sampling_check(const struct sampling_params *params, struct error *err);
/* True if top-k, top-p or min-p is on; never at temperature 0, where one token is left anyway. */
bool sampling_truncates(const struct sampling_params *params);

/* A distribution over few tokens; arrays are lent. Ids are distinct, ascending; p sums to 1. */
struct sparse_dist {
    int n;
    int32_t *ids; /* [n] */
    float *p;     /* [n] */
};

/* p of id, 0 outside of the support. Binary search. */
float sparse_prob(const struct sparse_dist *dist, int32_t id);

/* Inverse CDF with u in [0, 1); never a token of p = 0. */
int32_t sparse_draw(const struct sparse_dist *dist, double u);

/* The draft's q: the `support` best of logits[n_vocab] (legal: acceptance needs the exact q, not
 * the whole of it), then params applied and renormalised. out->ids and out->p hold `support`
 * entries, 1 <= support; scratch holds `support` items. Temperature 0 gives the one-hot of the
 * best. Tokens without mass (-inf, NaN, underflow) are left out; a row without any gives the
 * one-hot of id 0, one with +inf the one-hot of the first, so that q is a distribution even if the
 * draft is broken. */
void sampling_draft_dist(const float *logits, int n_vocab, const struct sampling_params *params,
                         int support, struct select_item *scratch, struct sparse_dist *out);

/* As sampling_draft_dist, from the row's best: items[n_items], scores are logits, none NaN, best
 * first (score, then lowest id); they are overwritten. out holds n_items entries. */
void sampling_draft_best(struct select_item *items, int n_items,
                         const struct sampling_params *params, struct sparse_dist *out);

/* Cuts n >= 1 candidates that are already sorted, best first (logit, then lowest id), where
 * exp((logit - logits[0]) / t) of the whole row at params->temperature sums to `sum_all`, by
 * temperature, top-k, top-p and min-p. Returns the number kept (>= 1) with p[kept] normalised, in
 * the given order; *is_certain is false when a token that is not among the candidates could belong
 * to the kept ones (is_whole: the candidates are the whole row). p holds n entries and may be
 * `logits` itself. */
int sampling_truncate(const float *logits, int n, double sum_all, bool is_whole,
                      const struct sampling_params *params, float *p, bool *is_certain);

/* The coupled choice among candidates: argmax of row_noisy_score; ties go to the lowest id. */
int32_t sampling_coupled_pick(const int32_t *ids, const float *logits, int n, float temperature,
                              uint64_t seed, uint32_t position);
