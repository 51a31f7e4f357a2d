/* Guesses behind siblings that follow the draft's q (speculation/accept/tree_follow.h): a plan says
 * how many guesses there are for each place, and when the place before is drawn it is chosen which
 * of its guesses get others, and how many each, the siblings of the chain's next guess among them.
 *
 * A pass for a place reads the rows behind the likeliest guesses of the place before, behind as
 * many as the plan has others behind. What leads to them may be more tokens than the planner
 * expected. When all of these rows are there, and before a token of the place is drawn, the guesses
 * are shared among them. So the choice depends on tokens that are drawn and sent, and on q, and
 * never on a token whose guess is then left out (speculation/accept/tree.h). Where q as it is
 * reported is one-hot, the draft's chances before that decide. */
#include <assert.h>
#include <string.h>

#include "base/least.h"
#include "coordinator/draft/model_draft_grow.h"

void model_draft_begin_following(struct draft_grower *g, struct draft_lane *lane)
{
    struct draft_following *f = &g->f;
    assert(lane->draft->n == 0);
    memset(f->budget, 0, sizeof f->budget);
    memset(f->n_parents, 0, sizeof f->n_parents);
    for (int i = 0; i < g->plan->n; i++) {
        int place = growth_place(g->plan, i);
        f->budget[place]++;
        f->n_parents[place] += growth_first(g->plan, i) == i ? 1 : 0;
    }
    f->constant_ratio = tree_follow_constant_ratio(lane->seq->rule);
    f->place = 1;
    g->own.n = 0;
    g->plan = &g->own;
    lane->siblings_max = lane->siblings[0];
}

/* ---- which guesses grow ---- */

/* Guesses of a place. */
struct candidates {
    int n;
    int8_t names[GROWN_MAX];
    double values[GROWN_MAX];
};

static void add(struct candidates *c, int name, double value)
{
    c->names[c->n] = (int8_t)name;
    c->values[c->n++] = value;
}

/* Those of the place before the next one that are not of the chain and do not end the text. */
static void list_candidates(const struct draft_grower *g, const struct draft_lane *lane,
                            struct candidates *c)
{
    const struct draft *draft = lane->draft;
    int place = g->f.place - 1;
    c->n = 0;
    for (int s = 0; place < draft->n && s < draft->n_siblings[place]; s++) {
        if (model_draft_ends(lane, draft->siblings[place][s])) continue;
        add(c, growth_behind(place, s), g->f.siblings[place][s]);
    }
    for (int i = 0; i < g->own.n; i++) {
        if (g->made[i] < 0 || growth_place(&g->own, i) != place) continue;
        if (model_draft_ends(lane, draft->grown_tokens[g->made[i]])) continue;
        add(c, i, g->f.grown[i]);
    }
}

/* Guesses to be given out for the next place. The siblings of the chain's guess are among them, if
 * the chain goes on. */
static int count_budget(const struct draft_grower *g, const struct draft_lane *lane, bool goes_on)
{
    return g->f.budget[g->f.place] + (goes_on ? lane->siblings[g->f.place] : 0);
}

bool model_draft_follows_on(struct draft_grower *g, struct draft_lane *lane, bool goes_on)
{
    int n = lane->draft->n;
    if (!g->plan || n == 0) { /* there are no blocks for more, or it is the first pass */
        lane->siblings_max = goes_on ? lane->siblings[n] : 0;
        return false;
    }
    for (; g->f.place < DRAFT_MAX; g->f.place++) {
        struct candidates c;
        int budget = count_budget(g, lane, goes_on);
        list_candidates(g, lane, &c);
        if (c.n > 0 && g->f.n_parents[g->f.place] > 0) return true;
        if (!goes_on) continue;
        lane->siblings_max = least(budget, SIBLINGS_MAX);
        g->f.place++;
        return false;
    }
    return false;
}

void model_draft_name_parents(struct draft_grower *g, const struct draft_lane *lane, bool goes_on,
                              int n_rows_max)
{
    struct candidates c;
    int chosen[GROWN_MAX];
    int n_wanted = least(g->f.n_parents[g->f.place], n_rows_max - (goes_on ? 1 : 0));
    list_candidates(g, lane, &c);
    g->n_names = tree_follow_expand(c.values, c.n, n_wanted, chosen);
    for (int i = 0; i < g->n_names; i++) {
        g->names[i] = c.names[chosen[i]];
    }
    g->end = g->next;
}

/* ---- sharing, and values ---- */

/* Reads a row; it lasts until the next one is read. */
static int read_row(struct model_draft *d, const struct sequence *seq, int row, int position,
                    struct arena *arena, struct guess_row *read, struct error *err)
{
    int n_best = model_draft_row_size(d, seq, FOLLOW_BEST - 1);
    return model_draft_read_row(d, seq, row, position, n_best, arena, read, err);
}

/* The same, and it lasts beyond that. */
static int keep_row(struct model_draft *d, const struct draft_lane *lane, int row, int position,
                    struct arena *arena, struct guess_row *read, struct error *err)
{
    int rc = read_row(d, lane->seq, row, position, arena, read, err);
    if (rc) return rc;
    struct select_item *best = arena_take(arena, (size_t)read->n_best + 1, sizeof *best);
    if (!best) return error_set(err, ERR_NO_MEMORY, "no room for a row of the draft");
    memcpy(best, read->best, (size_t)read->n_best * sizeof *best);
    read->best = best;
    return 0;
}

static struct tree_follow_parent parent_of(const struct sequence *seq, const struct guess_row *row,
                                           double value, int n_children)
{
    struct tree_follow_parent parent = {.value = value, .n_children = n_children};
    parent.n_best = model_draft_row_chances(seq, row, parent.best);
    return parent;
}

/* Writes the guesses of the place into the plan. */
static void plan_place(struct draft_grower *g, const struct tree_follow_parent *parents)
{
    for (int r = 0; r < g->n_rows; r++) {
        for (int i = 0; i < parents[r].n_children; i++) {
            assert(g->own.n < GROWN_MAX);
            g->made[g->own.n] = -1;
            g->own.parents[g->own.n++] = g->of_row[r];
        }
    }
    g->end = g->own.n;
}

int model_draft_draw_following(struct model_draft *d, const struct feeding *feeding, int row,
                               struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    struct draft_lane *lane = feeding->lane;
    struct tree_follow_parent parents[1 + GROWN_MAX];
    struct guess_row rows[GROWN_MAX];
    bool goes_on = feeding->has_chain_row;
    int rc = 0, n = 0, position = lane->draft->base + g->f.place;
    if (goes_on) {
        TRY(keep_row(d, lane, row++, position, arena, &g->f.chain_row, err));
        parents[n++] = parent_of(lane->seq, &g->f.chain_row, g->f.chain[g->f.place - 1], 1);
    }
    for (int r = 0; r < g->n_rows; r++) {
        TRY(keep_row(d, lane, row + r, position, arena, &rows[r], err));
        parents[n++] = parent_of(lane->seq, &rows[r], model_draft_value_of(g, g->of_row[r]), 0);
    }
    tree_follow_share(parents, n, count_budget(g, lane, goes_on), g->f.constant_ratio);
    if (goes_on) lane->siblings_max = parents[0].n_children - 1;
    plan_place(g, parents + (goes_on ? 1 : 0));
    for (int r = 0, i = g->next; r < g->n_rows; r++) {
        int n_children = parents[r + (goes_on ? 1 : 0)].n_children;
        if (n_children > 0) model_draft_draw_group(d, g, lane, i, &rows[r]);
        i += n_children;
    }
    g->next = g->end;
    g->f.place++;
out:
    return rc;
}

int model_draft_choose_following(struct model_draft *d, const struct feeding *feeding, int row,
                                 struct arena *arena, struct guess *guess, struct error *err)
{
    struct draft_grower *g = feeding->follows;
    const struct sequence *seq = feeding->lane->seq;
    int rc = 0, place = feeding->lane->draft->n;
    double before = place > 0 ? g->f.chain[place - 1] : 1, constant_ratio = g->f.constant_ratio;
    struct guess_row read;
    if (feeding->grower) {
        read = g->f.chain_row;
    } else {
        TRY(read_row(d, seq, row, guess->position, arena, &read, err));
    }
    model_draft_choose_from(d, seq, &read, guess);
    g->f.chain[place] = tree_follow_value(before, guess->chance, 0, constant_ratio);
    for (int i = 0; i < guess->n_siblings; i++) {
        g->f.siblings[place][i] =
            tree_follow_value(before, guess->sibling_chances[i], 1 + i, constant_ratio);
    }
out:
    return rc;
}
