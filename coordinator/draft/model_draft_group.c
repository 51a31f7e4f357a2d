/* A group of guesses: those that one row gives, a guess and its siblings. */
#include <assert.h>

#include "coordinator/draft/model_draft_grow.h"

int model_draft_add(struct guess_tree *draft, int parent, int mark, int sibling_mark,
                    const struct guess *guess)
{
    int first = guess_tree_add(draft, parent, mark, guess->id, guess->q);
    for (int i = 0; i < guess->n_siblings; i++) {
        guess_tree_add(draft, parent, sibling_mark, guess->siblings[i], guess->q);
    }
    return first;
}

void model_draft_value(struct draft_grower *g, const struct guess_tree *draft, int first,
                       const struct guess *guess)
{
    int parent = draft->parents[first];
    double before = parent >= 0 ? g->f.values[parent] : 1, ratio = g->f.constant_ratio;
    g->f.values[first] = tree_follow_value(before, guess->chance, 0, ratio);
    for (int i = 1; i <= guess->n_siblings; i++) {
        g->f.values[first + i] = tree_follow_value(before, guess->sibling_chances[i - 1], i, ratio);
    }
}

int model_draft_draw_group(struct model_draft *d, const struct feeding *feeding,
                           const struct draft_group *group, const struct guess_row *row,
                           struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    struct guess_tree *draft = feeding->lane->draft;
    assert(group->n >= 1 && group->n <= 1 + SIBLINGS_MAX);
    struct guess guess = {.position = draft->base + guess_tree_depth(draft, group->parent),
                          .base = draft->base,
                          .coin = 1 + SIBLINGS_MAX + group->coin,
                          .q = arena_take(arena, 1, sizeof *guess.q),
                          .siblings_max = group->n - 1,
                          .is_independent = draft->is_independent};
    if (!guess.q) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    model_draft_choose_from(d, feeding->seq, row, &guess);
    int first = model_draft_add(draft, group->parent, GUESS_GROWN, GUESS_GROWN, &guess);
    if (g->follows) model_draft_value(g, draft, first, &guess);
    return 1 + guess.n_siblings;
}
