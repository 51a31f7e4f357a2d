/* Rows of the target for the tests of its wishes, its merge and its refusals: random logits, the
 * answers of slices to a wish, and a guess that was drawn from a fixed q. Every test runs in a
 * process of its own, so all this is in a few static variables. */
#pragma once

#include <math.h>

#include "base/limits.h"
#include "speculation/rows/target_row.h"

#include "tests/support/accept_world.h"

/* Cut into SLICES slices of BOX columns, the vocabulary fills four and a part of the fifth. */
enum { VOCAB = 600, SLICES = 8, BOX = 128, N_TOP = 5 };

static struct error err;
static struct arena arena;
static float logits[VOCAB];
static bool wants_logprobs, lists_best; /* of the wants that are made here */
static struct slice_row slices[SLICES_MAX];
static int32_t q_ids[] = {0, 5, 127, 128, 300, 599};
static float q_p[] = {0.2f, 0.1f, 0.3f, 0.1f, 0.2f, 0.1f};
static const struct sparse_dist q = {.n = 6, .ids = q_ids, .p = q_p};
static const struct sampling_params plain = {.temperature = 0.8f, .top_p = 1};
static const struct rng_address at = {.seed = 11, .position = 40, .round = 38};

static inline void setup(void)
{
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
    for (uint32_t i = 0; i < VOCAB; i++) {
        logits[i] = (float)(6 * (world_uniform(1, i) - world_uniform(2, i)));
    }
}

static inline void teardown(void)
{
    arena_close(&arena);
}

static inline void answer(const struct row_wish *wish, int n_slices)
{
    for (int s = 0; s < n_slices; s++) {
        int32_t first;
        int n_cols;
        row_slice_range(VOCAB, n_slices, s, &first, &n_cols);
        const struct answer_item item = {logits + first, first, n_cols, s, wish};
        CHECK_OK(row_slice_answer(&item, &arena, &slices[s], &err));
    }
}

static inline struct target_want want_of(enum accept_rule rule,
                                         const struct sampling_params *params,
                                         const struct sparse_dist *draft, bool full)
{
    return (struct target_want){.rule = &accept_rules[rule],
                                .params = params,
                                .q = draft,
                                .at = at,
                                .full_rows = full,
                                .wants_logprobs = wants_logprobs,
                                .n_top = wants_logprobs ? N_TOP : 0,
                                .lists_best = lists_best};
}

static inline void wish_of(enum accept_rule rule, const struct sampling_params *params,
                           const struct sparse_dist *draft, bool full, struct row_wish *wish)
{
    const struct target_want want = want_of(rule, params, draft, full);
    target_row_wish(&want, wish);
}

/* Merges the first n_slices of `slices`, which answer a wish; the row's guess was drawn from q. */
static inline int merge(int n_slices, enum accept_rule rule, const struct sampling_params *params,
                        const struct row_wish *wish, struct arena *room, struct target_row *row)
{
    const struct target_slices all = {slices, n_slices, VOCAB};
    const struct target_want want = want_of(rule, params, &q, wish->full);
    struct row_wish asked = *wish;
    bool more;
    return target_row_merge(&all, &want, &asked, room, row, &more, &err);
}
