/* Guesses after siblings that follow the draft's q (speculation/accept/tree_follow.h): a plan says
 * how many guesses there are for each place, and when the place before is drawn it is chosen which
 * of its guesses get others, and how many each, the siblings of the chain's next guess among them.
 *
 * A pass for a place reads the rows after the likeliest guesses of the place before, after as
 * many as the plan has others after. What leads to them may be more tokens than the planner
 * expected. When all of these rows are there, and before a token of the place is drawn, the guesses
 * are shared among them. So the choice depends on tokens that are drawn and sent, and on q, and
 * never on a token whose guess is then left out (speculation/accept/tree.h). Where q as it is
 * reported is one-hot, the draft's chances before that decide. */
#include <assert.h>
#include <string.h>

#include "base/least.h"
#include "coordinator/draft/model_draft_grow.h"

void model_draft_begin_following(struct draft_grower *g, const struct draft_lane *lane)
{
    struct draft_following *f = &g->f;
    assert(lane->draft->n == 0);
    memset(f->budget, 0, sizeof f->budget);
    memset(f->n_parents, 0, sizeof f->n_parents);
    for (int i = 0; i < g->plan->n; i++) {
        if (!(g->plan->marks[i] & GUESS_GROWN)) continue;
        int place = guess_tree_place(g->plan, i);
        f->budget[place]++;
        f->n_parents[place] += guess_tree_rank(g->plan, i) == 0 ? 1 : 0;
    }
    f->constant_ratio = tree_follow_constant_ratio(lane->seq->rule);
    f->place = 1;
    f->n_siblings = guess_tree_siblings(g->plan, 0);
}

/* ---- which guesses grow ---- */

/* Guesses of a place. */
struct candidates {
    int n;
    int8_t nodes[GROWN_MAX];
    double values[GROWN_MAX];
};

/* Adds those of the place before the next one that have this mark and do not end the text. */
static void add_candidates(const struct draft_grower *g, const struct draft_lane *lane, int mark,
                           struct candidates *c)
{
    const struct guess_tree *draft = lane->draft;
    for (int i = 0; i < draft->n; i++) {
        if (!(draft->marks[i] & mark) || guess_tree_place(draft, i) != g->f.place - 1) continue;
        if (model_draft_ends(lane, draft->tokens[i])) continue;
        c->nodes[c->n] = (int8_t)i;
        c->values[c->n++] = g->f.values[i];
    }
}

static void list_candidates(const struct draft_grower *g, const struct draft_lane *lane,
                            struct candidates *c)
{
    c->n = 0;
    add_candidates(g, lane, GUESS_SIBLING, c);
    add_candidates(g, lane, GUESS_GROWN, c);
}

/* Guesses to be given out for the next place. The siblings of the chain's guess are among them, if
 * the chain goes on. */
static int count_budget(const struct draft_grower *g, const struct draft_lane *lane, bool goes_on)
{
    return g->f.budget[g->f.place] + (goes_on ? draft_lane_siblings(lane, g->f.place) : 0);
}

bool model_draft_follows_on(struct draft_grower *g, const struct draft_lane *lane, bool goes_on)
{
    int n = lane->draft->n_chain;
    if (!g->plan || n == 0) { /* there are no blocks for more, or it is the first pass */
        g->f.n_siblings = goes_on ? draft_lane_siblings(lane, n) : 0;
        return false;
    }
    for (; g->f.place < DRAFT_MAX; g->f.place++) {
        struct candidates c;
        int budget = count_budget(g, lane, goes_on);
        list_candidates(g, lane, &c);
        if (c.n > 0 && g->f.n_parents[g->f.place] > 0) return true;
        if (!goes_on) continue;
        g->f.n_siblings = least(budget, SIBLINGS_MAX);
        g->f.place++;
        return false;
    }
    return false;
}

void model_draft_choose_parents(struct draft_grower *g, const struct draft_lane *lane, bool goes_on,
                                int n_rows_max)
{
    struct candidates c;
    int chosen[GROWN_MAX];
    int n_wanted = least(g->f.n_parents[g->f.place], n_rows_max - (goes_on ? 1 : 0));
    list_candidates(g, lane, &c);
    g->n_parents = tree_follow_expand(c.values, c.n, n_wanted, chosen);
    for (int i = 0; i < g->n_parents; i++) {
        g->pass_parents[i] = c.nodes[chosen[i]];
    }
}

/* ---- sharing, and values ---- */

/* Reads the row after a node of the draft; it lasts until the next one is read. */
static int read_row(struct model_draft *d, const struct draft_lane *lane, int row, int node,
                    struct arena *arena, struct guess_row *read, struct error *err)
{
    int n_best = model_draft_row_size(d, lane->seq, FOLLOW_BEST - 1);
    return model_draft_read_row(d, lane, row, node, n_best, arena, read, err);
}

/* Reads the row as read_row does, and keeps it in the arena. */
static int keep_row(struct model_draft *d, const struct draft_lane *lane, int row, int node,
                    struct arena *arena, struct guess_row *read, struct error *err)
{
    int rc = read_row(d, lane, row, node, arena, read, err);
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

int model_draft_draw_following(struct model_draft *d, const struct feeding *feeding, int row,
                               struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    struct draft_lane *lane = feeding->lane;
    struct tree_follow_parent parents[1 + GROWN_MAX], *of_chain = NULL, *others = parents;
    struct guess_row rows[GROWN_MAX];
    int rc = 0, last = guess_tree_last(lane->draft);
    if (feeding->has_chain_row) {
        TRY(keep_row(d, lane, row, last, arena, &g->f.chain_row, err));
        double value = g->f.values[last];
        of_chain = others++;
        *of_chain = parent_of(lane->seq, &g->f.chain_row, value, 1);
    }
    for (int r = 0; r < g->n_rows; r++) {
        int at = model_draft_row_after(g, feeding, row, r);
        TRY(keep_row(d, lane, at, g->of_row[r], arena, &rows[r], err));
        others[r] = parent_of(lane->seq, &rows[r], g->f.values[g->of_row[r]], 0);
    }
    int budget = count_budget(g, lane, of_chain != NULL);
    tree_follow_share(parents, g->n_rows + (of_chain ? 1 : 0), budget, g->f.constant_ratio);
    if (of_chain) g->f.n_siblings = of_chain->n_children - 1;
    for (int r = 0, coin = 0; r < g->n_rows; coin += others[r++].n_children) {
        const struct draft_group group = {g->of_row[r], others[r].n_children, coin};
        if (group.n == 0) continue;
        int n = model_draft_draw_group(d, feeding, &group, &rows[r], arena, err);
        if (n < 0) return n;
    }
    g->f.place++;
out:
    return rc;
}

int model_draft_choose_following(struct model_draft *d, const struct feeding *feeding, int row,
                                 struct arena *arena, struct guess *guess, struct error *err)
{
    const struct draft_grower *g = feeding->follows;
    const struct draft_lane *lane = feeding->lane;
    int rc = 0;
    struct guess_row read;
    guess->siblings_max = g->f.n_siblings;
    if (feeding->grower) {
        read = g->f.chain_row;
    } else {
        TRY(read_row(d, lane, row, guess_tree_last(lane->draft), arena, &read, err));
    }
    model_draft_choose_from(d, lane->seq, &read, guess);
out:
    return rc;
}
