/* Guesses behind siblings. A pass that makes them feeds its lane as a tree: the chain from the
 * first sibling on that the pass needs, and what leads from there to the guesses behind which it
 * makes others. What is behind siblings is read again in each pass, in blocks that the paths of the
 * tree have for the length of the pass: that is a few rows of a small model, and no tree of KV has
 * to be kept. The row behind a guess is that of its path as a chain, bit for bit (docs/design.md
 * section 4), so q is what it would be if the draft had been given this path as its text.
 *
 * A growth is planned before anything of the round is drawn, or, if it follows q, place by place
 * before anything of the place is drawn (model_draft_follow.c). What is left out of it lacks its
 * parent, stands behind an end of the text, or finds no blocks: that is decided by tokens drawn
 * before, or by company, and never by a token that is then not sent (speculation/accept/tree.h). */
#include "coordinator/draft/model_draft_grow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int model_draft_open_growers(struct model_draft *d, struct error *err)
{
    return mem_array(&d->growers, (size_t)d->options.n_sequences, sizeof *d->growers, err);
}

void model_draft_close_growers(struct model_draft *d)
{
    free(d->growers);
}

void model_draft_begin_growth(struct model_draft *d, struct draft_lane *lanes, int n)
{
    for (int i = 0; i < n; i++) {
        const struct growth *growth = lanes[i].growth;
        struct draft_grower *g = &d->growers[i];
        g->plan = growth && growth->n > 0 ? growth : NULL;
        g->next = 0;
        g->follows = g->plan && lanes[i].siblings;
        if (g->follows) model_draft_begin_following(g, &lanes[i]);
    }
}

/* ---- which guesses ---- */

/* Whether guess i of the plan has something to follow. */
static bool has_parent(const struct draft_grower *g, const struct draft_lane *lane, int i)
{
    const struct draft *draft = lane->draft;
    int parent = g->plan->parents[i];
    if (parent >= 0) {
        return g->made[parent] >= 0 &&
               !model_draft_ends(lane, draft->grown_tokens[g->made[parent]]);
    }
    int guess = growth_guess(parent), sibling = growth_sibling(parent);
    return guess < draft->n && sibling < draft->n_siblings[guess] &&
           !model_draft_ends(lane, draft->siblings[guess][sibling]);
}

bool model_draft_wants_growth(struct draft_grower *g, struct draft_lane *lane, bool goes_on)
{
    if (g->follows) return model_draft_follows_on(g, lane, goes_on);
    for (; g->plan && g->next < g->plan->n; g->made[g->next++] = -1) {
        bool waits = goes_on && growth_place(g->plan, g->next) > lane->draft->n;
        if (waits) return false;
        if (has_parent(g, lane, g->next)) return true;
    }
    return false;
}

/* Names the parents of the guesses for the next place. */
static void name_parents(struct draft_grower *g, const struct draft_lane *lane)
{
    int place = growth_place(g->plan, g->next);
    g->n_names = 0;
    g->end = g->next;
    for (; g->end < g->plan->n && growth_place(g->plan, g->end) == place; g->end++) {
        bool is_first = growth_first(g->plan, g->end) == g->end;
        if (is_first && has_parent(g, lane, g->end)) {
            g->names[g->n_names++] = g->plan->parents[g->end];
        }
    }
}

/* Marks what leads to those that are named. Returns the first guess of the chain that has a sibling
 * among this. */
static int mark(struct draft_grower *g)
{
    int fork = DRAFT_MAX;
    memset(g->is_needed, 0, sizeof g->is_needed);
    memset(g->needs_sibling, 0, sizeof g->needs_sibling);
    for (int i = 0; i < g->n_names; i++) {
        int name = g->names[i];
        for (; name >= 0; name = g->plan->parents[name]) {
            g->is_needed[name] = true;
        }
        g->needs_sibling[growth_guess(name)][growth_sibling(name)] = true;
        if (growth_guess(name) < fork) fork = growth_guess(name);
    }
    return fork;
}

/* ---- the tree of a pass ---- */

/* Adds a token to the tree; `parent` is its place there, and `name` what the growth calls it. */
static void add(struct draft_grower *g, const struct draft *draft, int32_t token, int parent,
                int name)
{
    int at = g->n_tokens - 1;
    g->parents[at] = parent;
    g->tokens[g->n_tokens++] = token;
    for (int i = 0; i < g->n_names; i++) {
        if (g->names[i] != name) continue;
        g->rows[g->n_rows] = (int16_t)(at + 1);
        g->of_row[g->n_rows++] = (int8_t)name;
    }
    for (int i = 0; i < g->next; i++) {
        if (!g->is_needed[i] || g->plan->parents[i] != name) continue;
        add(g, draft, draft->grown_tokens[g->made[i]], at, i);
    }
}

/* The chain from guess `fork` on, then what is beside it, the deepest first. */
static void add_all(struct draft_grower *g, const struct draft_lane *lane, int fork)
{
    const struct draft *draft = lane->draft;
    g->n_tokens = 1;
    g->n_rows = 0;
    g->tokens[0] = lane->seq->tokens[draft->base + fork - 1];
    for (int i = fork; i < draft->n; i++) {
        add(g, draft, draft->tokens[i], i - fork - 1, OF_CHAIN);
    }
    for (int i = draft->n - 1; i >= fork; i--) {
        for (int s = 0; s < SIBLINGS_MAX; s++) {
            if (!g->needs_sibling[i][s]) continue;
            add(g, draft, draft->siblings[i][s], i - fork - 1, growth_behind(i, s));
        }
    }
}

bool model_draft_plan_growth(struct model_draft *d, struct draft_grower *g, bool goes_on,
                             struct feeding *feeding)
{
    const struct draft_lane *lane = feeding->lane;
    const struct draft *draft = lane->draft;
    const struct block_table *table = &d->tables[lane->seq->slot];
    struct error err;
    if (g->follows) {
        model_draft_name_parents(g, lane, goes_on, d->n_rows_max);
    } else {
        name_parents(g, lane);
    }
    int fork = mark(g);
    add_all(g, lane, fork);
    if (guess_tree_init(&g->shape, g->parents, g->n_tokens - 1, &err) ||
        block_tails_reserve(&g->tails, &d->pool, table, &g->shape, draft->base + fork, &err)) {
        g->plan = NULL;
        if (g->follows) model_draft_follows_on(g, feeding->lane, goes_on);
        return false;
    }
    g->tree = (struct forward_tree){&g->shape, g->tails.blocks};
    feeding->grower = g;
    feeding->has_chain_row = goes_on;
    feeding->n_rows = g->n_rows + (goes_on ? 1 : 0);
    assert(feeding->n_rows <= d->n_rows_max); /* otherwise no step could take it */
    feeding->end = draft->base + draft->n;
    return true;
}

struct forward_lane model_draft_growth_lane(const struct draft_grower *g,
                                            const struct feeding *feeding, const int32_t *blocks)
{
    int n_chain = g->shape.leaf_depth[0] + 1;
    return (struct forward_lane){feeding->end - n_chain - 1, g->n_tokens, g->tokens, blocks,
                                 &g->tree};
}

int model_draft_growth_row(const struct draft_grower *g, const struct feeding *feeding, int i)
{
    if (feeding->has_chain_row && i == 0) return g->shape.leaf_depth[0] + 1;
    return g->rows[i - (feeding->has_chain_row ? 1 : 0)];
}

/* ---- drawing ---- */

/* The row that was read for the parent of guess i of the plan; -1: none was, the guess is left
 * out. */
static int row_of(const struct draft_grower *g, int i)
{
    for (int r = 0; r < g->n_rows; r++) {
        if (g->of_row[r] == g->plan->parents[i]) return r;
    }
    return -1;
}

static int draw_planned(struct model_draft *d, const struct feeding *feeding, int row,
                        struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    struct draft_lane *lane = feeding->lane;
    int position = lane->draft->base + growth_place(g->plan, g->next), rc = 0;
    row += feeding->has_chain_row ? 1 : 0;
    for (int i = g->next; i < g->end; i++) {
        g->made[i] = -1;
    }
    for (int i = g->next, n; i < g->end; i += n) {
        struct guess_row read;
        n = model_draft_count_group(g, i);
        int r = row_of(g, i);
        if (r < 0) continue;
        TRY(model_draft_read_row(d, lane->seq, row + r, position,
                                 model_draft_row_size(d, lane->seq, n - 1), arena, &read, err));
        model_draft_draw_group(d, g, lane, i, &read);
    }
    g->next = g->end;
out:
    return rc;
}

int model_draft_draw_growth(struct model_draft *d, const struct feeding *feeding, int row,
                            struct arena *arena, struct error *err)
{
    return feeding->grower->follows ? model_draft_draw_following(d, feeding, row, arena, err)
                                    : draw_planned(d, feeding, row, arena, err);
}

void model_draft_end_growth(struct model_draft *d, const struct feeding *feeding)
{
    if (feeding->grower) block_tails_release(&feeding->grower->tails, &d->pool);
}

int model_draft_count_again(const struct feeding *feeding)
{
    return feeding->grower ? feeding->grower->n_tokens - 1 : 0;
}

struct draft_grower *model_draft_grower(struct model_draft *d, int lane)
{
    return &d->growers[lane];
}

bool model_draft_follows_q(const struct draft_grower *g)
{
    return g->follows;
}
