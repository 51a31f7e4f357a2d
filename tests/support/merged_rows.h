/* Rows that are merged from whatever the merge asks for. */
#pragma once

#include <string.h>

#include "tests/support/target_row_world.h"

/* The row of a rule, asking again as long as the merge wants more; returns how often it did. */
static inline int merged(enum accept_rule rule, const struct sampling_params *params,
                         const struct sparse_dist *draft, int n_slices, bool full,
                         struct target_row *row)
{
    struct row_wish wish;
    const struct target_slices all = {slices, n_slices, VOCAB};
    const struct target_want want = want_of(rule, params, draft, full);
    target_row_wish(&want, &wish);
    for (int n_asked = 0;; n_asked++) {
        struct slice_row before[SLICES_MAX];
        bool more;
        memcpy(before, slices, sizeof before);
        answer(&wish, n_slices);
        if (n_asked) CHECK_OK(target_row_carry(before, slices, n_slices, &err));
        CHECK_OK(target_row_merge(&all, &want, &wish, &arena, row, &more, &err));
        if (!more) return n_asked;
        ck_assert(wish.has_least && n_asked < 2);
    }
}

static inline void same_row(const struct target_row *a, const struct target_row *b)
{
    ck_assert_int_eq(a->n, b->n);
    ck_assert(a->n == 0 || memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0);
    ck_assert(a->n == 0 || memcmp(a->p, b->p, (size_t)a->n * sizeof *a->p) == 0);
    ck_assert(a->n == 0 || memcmp(a->logits, b->logits, (size_t)a->n * sizeof *a->logits) == 0);
    ck_assert(a->outside_logit == b->outside_logit);
    ck_assert(a->log_z == b->log_z && a->n_top == b->n_top);
    for (int i = 0; i < a->n_top; i++) {
        ck_assert(a->top_ids[i] == b->top_ids[i] && a->top_logprobs[i] == b->top_logprobs[i]);
    }
    ck_assert(a->outside_mass == b->outside_mass && a->outside_id == b->outside_id);
    ck_assert(a->entropy == b->entropy);
}
