/* Functions that finders share. */
#include <string.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"

/* A distribution with its arrays. */
struct one_hot {
    struct sparse_dist dist;
    int32_t id;
    float p;
};

/* One-hot q's for tokens[n]. Errors: ERR_NO_MEMORY, and the result is NULL. */
static struct one_hot *make_one_hots(const int32_t *tokens, int n, struct arena *arena,
                                     struct error *err)
{
    struct one_hot *made = arena_take(arena, (size_t)n, sizeof *made);
    if (!made) error_set(err, ERR_NO_MEMORY, "no room for %d guesses", n);
    for (int i = 0; made && i < n; i++) {
        made[i].id = tokens[i];
        made[i].p = 1;
        made[i].dist = (struct sparse_dist){1, &made[i].id, &made[i].p};
    }
    return made;
}

bool finder_draws(const struct sequence *seq)
{
    return seq->rule->judges_q && seq->sampling.temperature > 0;
}

void finder_draw(const struct rng_address *at, int n_wanted, struct finder_guess *guess)
{
    const struct sparse_dist *q = &guess->q;
    if (n_wanted > q->n) n_wanted = q->n;
    for (guess->n = 0; guess->n < n_wanted; guess->n++) {
        double u = rng_uniform(at, RNG_DRAFT, (uint32_t)guess->n);
        guess->tokens[guess->n] = multi_draft_draw(q, guess->tokens, guess->n, u);
        if (guess->tokens[guess->n] < 0) return;
    }
}

void finder_begin(struct draft_lane *lane)
{
    lane->err.code = 0;
    guess_tree_begin(lane->draft, lane->draft->base);
}

bool finder_add(struct draft_lane *lane, const struct finder_guess *guess, struct arena *arena)
{
    struct guess_tree *draft = lane->draft;
    int parent = guess_tree_last(draft), n = 1 + draft_lane_siblings(lane, draft->n_chain);
    if (n > guess->n) n = guess->n;
    if (draft->is_over) return false;
    struct one_hot *own = NULL;
    struct sparse_dist *drawn = NULL;
    if (guess->q.n == 0) {
        own = make_one_hots(guess->tokens, n, arena, &lane->err);
    } else if ((drawn = arena_take(arena, 1, sizeof *drawn))) {
        *drawn = guess->q;
    } else {
        error_set(&lane->err, ERR_NO_MEMORY, "no room for a guess");
    }
    if (!own && !drawn) return false;
    for (int i = 0; i < n; i++) {
        guess_tree_add(draft, parent, i == 0 ? GUESS_CHAIN : GUESS_SIBLING, guess->tokens[i],
                       own ? &own[i].dist : drawn);
    }
    draft->is_over = end_ids_have(lane->ends, guess->tokens[0]);
    return !draft->is_over;
}

void finder_take(struct draft_lane *lane, const struct finder_guess *guesses, int n,
                 struct arena *arena)
{
    finder_begin(lane);
    for (int i = 0; i < n && finder_add(lane, &guesses[i], arena); i++) {
        continue;
    }
}

void finder_append(struct draft_lane *lane, const int32_t *tokens, int n, struct arena *arena)
{
    struct guess_tree *draft = lane->draft;
    int first = draft->n;
    for (int i = 0; i < n; i++) {
        const struct finder_guess guess = {.n = 1, .tokens = {tokens[i]}};
        if (!finder_add(lane, &guess, arena)) break;
    }
    for (int i = first; i < draft->n; i++) {
        draft->marks[i] |= GUESS_APPENDED;
        /* where a draft model would read them, if it goes on after them */
        lane->seq->tokens[draft->base + draft->n_chain - draft->n + i] = draft->tokens[i];
    }
}

void lookup_extra_rows(const struct drafter *finder, struct draft_lane *lane, struct arena *arena)
{
    int32_t tokens[DRAFT_MAX];
    int n = finder->row->lookup->extra.extra_rows(finder, lane->seq, tokens, lane->k);
    struct one_hot *own = make_one_hots(tokens, n, arena, &lane->err);
    for (int i = 0, at = -1; own && i < n; i++) {
        at = guess_tree_branch(lane->draft, at, tokens[i], &own[i].dist);
        if (end_ids_have(lane->ends, tokens[i])) break;
    }
}
