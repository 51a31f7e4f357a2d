/* A made-up pair of models for the acceptance tests: logits of target and draft after every last
 * token, rows built through the slices and the merge as in production, and slow references. */
#pragma once

#include <math.h>
#include <stdlib.h>

#include "base/limits.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"

/* ck_assert writes a line to a file whenever it passes; here it would cost more than the work. */
#define WORLD_CHECK(call)                       \
    do {                                        \
        if (call) ck_abort_msg("%s", err.text); \
    } while (0)

enum { WORLD_VOCAB = 150, WORLD_SUPPORT = 64, WORLD_DRAFT_MAX = 4 };

struct world {
    const char *name;
    int n_vocab, n_slices, n_draft;
    int n_draft_vocab; /* 0: n_vocab */
    int support;
    struct sampling_params target, draft;
    double spread, noise;                            /* draft logits = target's + noise */
    void (*shape)(float *p_logits, float *q_logits); /* edits a context's logits */
    /* [last token, n_vocab = the start][token] */
    float p_logits[WORLD_VOCAB + 1][WORLD_VOCAB];
    float q_logits[WORLD_VOCAB + 1][WORLD_VOCAB];
    double p[WORLD_VOCAB + 1][WORLD_VOCAB]; /* slow reference */
    struct sparse_dist q[WORLD_VOCAB + 1];
    int32_t q_ids[WORLD_VOCAB + 1][WORLD_SUPPORT];
    float q_p[WORLD_VOCAB + 1][WORLD_SUPPORT];
    struct arena arena;
};

/* One round's inputs. */
struct world_round {
    struct rng_address at;
    int32_t draft[WORLD_DRAFT_MAX];
    struct sparse_dist q[WORLD_DRAFT_MAX];
    struct target_row rows[WORLD_DRAFT_MAX + 1];
};

/* p by full sort and libm's exp, one cut after the other. */
static inline void reference_dist(const float *logits, int n, const struct sampling_params *params,
                                  double *p)
{
    int order[WORLD_VOCAB], kept = n;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && logits[order[at - 1]] < logits[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
        p[i] = 0;
    }
    double e[WORLD_VOCAB], total = 0, sum = 0;
    double t = params->temperature > 0 ? (double)params->temperature : 1;
    for (int i = 0; i < n; i++) {
        e[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / t);
    }
    if (params->top_k > 0 && params->top_k < kept) kept = params->top_k;
    if (params->temperature == 0) kept = 1;
    for (int i = 0; i < kept; i++) {
        total += e[i];
    }
    for (int i = 0; i < kept && params->top_p < 1; i++) {
        sum += e[i];
        if (sum >= (double)params->top_p * total) kept = i + 1;
    }
    while (kept > 1 && e[kept - 1] < (double)params->min_p) {
        kept--;
    }
    total = 0;
    for (int i = 0; i < kept; i++) {
        total += e[i];
    }
    for (int i = 0; i < kept; i++) {
        p[order[i]] = e[i] / total;
    }
}

static inline double world_uniform(uint32_t context, uint32_t index)
{
    const struct rng_address at = {.seed = 2024, .position = context};
    return rng_uniform(&at, RNG_WEIGHT, index);
}

static inline void world_open(struct world *world)
{
    struct error err;
    int n_draft_vocab = world->n_draft_vocab ? world->n_draft_vocab : world->n_vocab;
    struct select_item scratch[WORLD_SUPPORT];
    CHECK_OK(arena_open(&world->arena, 1 << 20, &err));
    int n_contexts = (n_draft_vocab > world->n_vocab ? n_draft_vocab : world->n_vocab) + 1;
    for (int c = 0; c < n_contexts; c++) {
        for (int i = 0; i < n_contexts - 1; i++) {
            double x = 0, y = 0;
            for (uint32_t k = 0; k < 3; k++) { /* nearly normal */
                x += 2 * world_uniform((uint32_t)c, (uint32_t)i * 8 + k) - 1;
                y += 2 * world_uniform((uint32_t)c, (uint32_t)i * 8 + 4 + k) - 1;
            }
            world->p_logits[c][i] = (float)(world->spread * x);
            world->q_logits[c][i] = (float)(world->spread * x + world->noise * y);
        }
        if (world->shape) world->shape(world->p_logits[c], world->q_logits[c]);
        reference_dist(world->p_logits[c], world->n_vocab, &world->target, world->p[c]);
        world->q[c] = (struct sparse_dist){.ids = world->q_ids[c], .p = world->q_p[c]};
        sampling_draft_dist(world->q_logits[c], n_draft_vocab, &world->draft, world->support,
                            scratch, &world->q[c]);
    }
}

static inline void world_close(struct world *world)
{
    arena_close(&world->arena);
}

/* The first context is that of nothing. */
static inline int world_start(const struct world *world)
{
    return world->n_draft_vocab > world->n_vocab ? world->n_draft_vocab : world->n_vocab;
}

/* One row as production makes it: wish, slices, merge, more when the cut is uncertain. */
static inline void world_row(struct world *world, enum accept_rule rule, int context,
                             const struct sparse_dist *q, const struct rng_address *at,
                             bool full_rows, struct target_row *row)
{
    struct error err;
    struct row_wish wish;
    struct slice_row slices[SLICES_MAX], before[SLICES_MAX];
    const struct target_slices all = {slices, world->n_slices, world->n_vocab};
    const struct target_want want = {.rule = &accept_rules[rule],
                                     .params = &world->target,
                                     .q = q,
                                     .at = *at,
                                     .full_rows = full_rows};
    target_row_wish(&want, &wish);
    for (bool more = false;; memcpy(before, slices, sizeof before)) {
        for (int s = 0; s < world->n_slices; s++) {
            int32_t first;
            int n_cols;
            row_slice_range(world->n_vocab, world->n_slices, s, &first, &n_cols);
            const struct answer_item item = {world->p_logits[context] + first, first, n_cols, s,
                                             &wish};
            WORLD_CHECK(row_slice_answer(&item, &world->arena, &slices[s], &err));
        }
        if (more) WORLD_CHECK(target_row_carry(before, slices, world->n_slices, &err));
        WORLD_CHECK(target_row_merge(&all, &want, &wish, &world->arena, row, &more, &err));
        if (!more) break;
    }
}

/* Guesses and rows of a round after `context`. */
static inline void world_round(struct world *world, enum accept_rule rule, int context,
                               const struct rng_address *at, bool full_rows,
                               struct world_round *round)
{
    arena_reset(&world->arena);
    round->at = *at;
    for (int i = 0; i <= world->n_draft; i++) {
        const struct rng_address here = {at->seed, at->position + (uint32_t)i, at->round};
        const struct sparse_dist *q = i < world->n_draft ? &world->q[context] : NULL;
        world_row(world, rule, context, q, &here, full_rows, &round->rows[i]);
        if (!q) break;
        round->q[i] = *q;
        if (accept_rules[rule].is_coupled) {
            float logits[WORLD_SUPPORT];
            for (int k = 0; k < q->n; k++) {
                logits[k] = logf(q->p[k]);
            }
            round->draft[i] =
                sampling_coupled_pick(q->ids, logits, q->n, 1, here.seed, here.position);
        } else {
            round->draft[i] = sparse_draw(q, rng_uniform(&here, RNG_DRAFT, 0));
        }
        context = round->draft[i];
    }
}
