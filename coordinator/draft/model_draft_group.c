/* A group of guesses: those that one row gives, a guess behind a sibling and its own siblings. */
#include <assert.h>

#include "coordinator/draft/model_draft_grow.h"

int model_draft_count_group(const struct draft_grower *g, int first)
{
    int n = 1;
    while (first + n < g->end && g->plan->parents[first + n] == g->plan->parents[first]) {
        n++;
    }
    return n;
}

/* Keeps the values of a group that was drawn. */
static void value_group(struct draft_grower *g, int first, const struct guess *guess)
{
    double value = model_draft_value_of(g, g->own.parents[first]),
           constant_ratio = g->f.constant_ratio;
    g->f.grown[first] = tree_follow_value(value, guess->chance, 0, constant_ratio);
    for (int i = 1; i <= guess->n_siblings; i++) {
        g->f.grown[first + i] =
            tree_follow_value(value, guess->sibling_chances[i - 1], i, constant_ratio);
    }
}

void model_draft_draw_group(struct model_draft *d, struct draft_grower *g, struct draft_lane *lane,
                            int first, const struct guess_row *row)
{
    struct draft *draft = lane->draft;
    const struct growth *plan = g->plan;
    int32_t siblings[SIBLINGS_MAX];
    int n = model_draft_count_group(g, first), at = draft->grown.n, parent = plan->parents[first];
    assert(n <= 1 + SIBLINGS_MAX);
    struct guess guess = {.position = draft->base + growth_place(plan, first),
                          .base = draft->base,
                          .coin = 1 + SIBLINGS_MAX + first - g->next,
                          .q = &draft->grown_q[at],
                          .siblings = siblings,
                          .siblings_max = n - 1};
    model_draft_choose_from(d, lane->seq, row, &guess);
    for (int i = 0; i < 1 + guess.n_siblings; i++) {
        g->made[first + i] = (int8_t)draft->grown.n;
        draft->grown.parents[draft->grown.n] = parent < 0 ? (int8_t)parent : g->made[parent];
        draft->grown_tokens[draft->grown.n++] = i == 0 ? guess.id : siblings[i - 1];
    }
    if (g->follows) value_group(g, first, &guess);
}
