/* A target row is what the coordinator knows of p at one position, in one type whatever was asked
 * of the workers: ids with their p, the mass outside of them, one token drawn outside. It is the
 * only type that acceptance sees (docs/design.md section 5). */
#pragma once

#include "base/memory.h"
#include "model/logits/row.h"
#include "model/logits/sampling.h"
#include "speculation/rows/edits.h"

struct rule; /* speculation/rows/rule.h */

enum { TARGET_ROW_BEST_MAX = 8 /* tokens that target_row_best lists */ };

/* Purpose of a row, from which its wish and its merge follow. */
struct target_want {
    const struct rule *rule;
    const struct sampling_params *params;
    const struct sparse_dist *q; /* the guess was drawn from it; NULL: there is no guess */
    struct rng_address at;       /* of the position's coins */
    bool full_rows;              /* asks for every logit, to compare; the merged row is the same */
    bool wants_logprobs;         /* of the tokens of the row, at temperature 1 */
    int n_top;                   /* wants_logprobs: of so many best tokens, too */
    const struct edit_list *edits; /* of the position; NULL: none. p is the edited distribution */
    /* Drafters learn from the row, so its `best_ids` are listed; nothing more is asked for. The row
     * is also merged after a guess that is rejected, where its first answer suffices. */
    bool lists_best;
};

/* The slices that answer one wish: all S of them, ascending. */
struct target_slices {
    const struct slice_row *slices; /* [n_slices] */
    int n_slices, n_vocab;
};

/* Arrays are lent by an arena; ids ascend; p_i >= 0; sum of p + outside_mass = 1 (rounding). */
struct target_row {
    int n;
    const int32_t *ids;
    const float *p;
    const float *logits; /* [n] raw; of an id beyond the vocabulary -inf */
    double outside_mass;
    int32_t outside_id;  /* drawn outside of ids with probability p / outside_mass; -1: no mass */
    float outside_logit; /* raw, of outside_id */
    double entropy;      /* of p in nats, where the rule asked for it */
    /* With wants_logprobs; log_z is the log of the sum of exp over the raw logits of the row. */
    double log_z;
    int n_top;              /* as many as wished, or as there are tokens */
    const int32_t *top_ids; /* [n_top] best first, ties to the lowest id */
    const float *top_logprobs;
    /* With lists_best, of a row that says which token it is: those that came with the answer, best
     * first by their logits. The slices send their best ones anyway. */
    int n_best; /* at most TARGET_ROW_BEST_MAX */
    const int32_t *best_ids;
    const struct error *failure; /* NULL; otherwise why nothing is known of p. Acceptance never
                                    sees such a row. */
};

/* Asks for what `want` needs to know. The ids of q are kept in the wish. Of a row that is truncated
 * it is the first question; the second follows where the cut is not certain (target_row_merge). */
void target_row_wish(const struct target_want *want, struct row_wish *wish);

/* As target_row_wish, for a want that may have edits; target_row_wish refuses those (assert). Ids
 * of the wish may be in arena, which must last until the row is merged. Errors: ERR_NO_MEMORY the
 * arena is full. */
int target_row_wish_edited(const struct target_want *want, struct arena *arena,
                           struct row_wish *wish, struct error *err);

/* Merges the slices that answer `wish`, which target_row_wish made from the same want, into *row.
 * Temperature 0, greedy and coupled give a one-hot row. The order of merging is fixed by the slices
 * alone, so the result does not depend on T. Where the cut of the truncation may lie below what is
 * known, *more is set instead, and *wish becomes the next question, which has_least; its answers
 * need the sums of the first (target_row_carry). Three questions are the most. Errors: ERR_FORMAT
 * slices are missing, in the wrong order, or hold numbers that no correct worker sends (NaN,
 * negative mass, foreign ids); ERR_NO_MEMORY arena full. */
int target_row_merge(const struct target_slices *slices, const struct target_want *want,
                     struct row_wish *wish, struct arena *arena, struct target_row *row, bool *more,
                     struct error *err);

/* As target_row_merge, for a row that decides nothing, from which drafters may learn: it stays
 * empty where the want is not for them (lists_best), where merging takes a sort, a second question
 * or all of the logits, and where the slices are no good. Cannot fail. */
void target_row_merge_spare(const struct target_slices *slices, const struct target_want *want,
                            const struct row_wish *wish, struct arena *arena,
                            struct target_row *row);

/* Completes the slices that answer a further question by the sums of those that answered the one
 * before. Errors: ERR_FORMAT their largest logits differ. */
int target_row_carry(const struct slice_row *before, struct slice_row *slices, int n_slices,
                     struct error *err);

/* The log-probability of a token of the row, which is in ids or outside_id; wants_logprobs. */
float target_row_logprob(const struct target_row *row, int32_t id);

/* The entropy of p[n], in nats. */
double target_row_entropy(const float *p, int n);

/* The index of an id in the row; -1: it is not listed. */
int target_row_find(const struct target_row *row, int32_t id);

/* p of id: exact for ids in the row, 0 when outside_mass is 0. Asking for an id outside of a row
 * with outside mass is a bug (assert). */
float target_row_prob(const struct target_row *row, int32_t id);

/* The best tokens that are known of the row into ids, at most n and TARGET_ROW_BEST_MAX of them,
 * best first; returns how many. The token that was drawn outside counts with all of the mass there,
 * because it represents them. For drafters, which learn from it; nothing is decided by it. */
int target_row_best(const struct target_row *row, int32_t *ids, int n);

/* One token from p: coin RNG_RESIDUAL of `at`, inverse CDF over ids then outside. */
int32_t target_row_draw(const struct target_row *row, const struct rng_address *at);
