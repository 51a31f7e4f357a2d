/* What finders have in common. */
#include <string.h>

#include "coordinator/draft/finder.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/sequence/sequence.h"

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

void finder_begin(struct draft_lane *lane)
{
    lane->err.code = 0;
    lane->draft->n = 0;
}

bool finder_add(struct draft_lane *lane, const struct finder_guess *guess, struct arena *arena)
{
    struct draft *draft = lane->draft;
    int at = draft->n, n_siblings = guess->n - 1;
    if (n_siblings > lane->siblings_max) n_siblings = lane->siblings_max;
    struct one_hot *own = NULL;
    if (draft->is_over) return false;
    if (guess->q.n == 0) {
        own = make_one_hots(guess->tokens, 1 + n_siblings, arena, &lane->err);
        if (!own) return false;
    }
    draft->q[at] = own ? own[0].dist : guess->q;
    draft->tokens[at] = lane->seq->tokens[lane->seq->n_tokens + at] = guess->tokens[0];
    draft->n_siblings[at] = (uint8_t)n_siblings;
    memcpy(draft->siblings[at], guess->tokens + 1, (size_t)n_siblings * sizeof *guess->tokens);
    for (int s = 0; s < n_siblings; s++) {
        draft->sibling_q[at][s] = own ? &own[1 + s].dist : NULL;
    }
    draft->n++;
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
    int first = lane->draft->n;
    for (int i = 0; i < n; i++) {
        const struct finder_guess guess = {.n = 1, .tokens = {tokens[i]}};
        if (!finder_add(lane, &guess, arena)) break;
    }
    lane->draft->n_appended = lane->draft->n - first;
}

void lookup_extra_rows(const struct drafter *finder, struct draft_lane *lane, struct arena *arena)
{
    struct draft *draft = lane->draft;
    int n = finder->row->lookup->extra.extra_rows(finder, lane->seq, draft->branch, lane->k);
    struct one_hot *own = make_one_hots(draft->branch, n, arena, &lane->err);
    draft->n_branch = 0;
    for (int i = 0; own && i < n; i++) {
        draft->branch_q[draft->n_branch++] = own[i].dist;
        if (end_ids_have(lane->ends, draft->branch[i])) break;
    }
}
