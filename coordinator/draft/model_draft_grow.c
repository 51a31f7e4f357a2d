/* Guesses after siblings. A pass that makes them feeds its lane as a tree: the chain from the first
 * sibling on that the pass needs, and what leads from there to the guesses after which it makes
 * others. What is after siblings is read again in each pass, in blocks that the paths of the tree
 * have for the length of the pass: that is a few rows of a small model, and no tree of KV has to be
 * kept. The row after a guess is that of its path as a chain, bit for bit (docs/design.md section
 * 4), so q is what it would be if the draft had been given this path as its text.
 *
 * The guesses are planned before anything of the round is drawn, or, if they follow q, place by
 * place before anything of the place is drawn (model_draft_follow.c). One that is left out lacks
 * its parent, would follow an end of the text, or finds no blocks: that is decided by tokens drawn
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
        struct draft_grower *g = &d->growers[i];
        g->plan = draft_lane_grows(&lanes[i]) ? lanes[i].plan : NULL;
        lanes[i].draft->is_independent = lanes[i].plan && lanes[i].plan->is_independent;
        g->follows = g->plan && lanes[i].follows_q;
        g->next = 0;
        g->shares_row = false;
        memset(g->made, -1, sizeof g->made);
        if (g->follows) model_draft_begin_following(g, &lanes[i]);
    }
}

/* ---- which guesses ---- */

/* The draft's node of the sibling that the plan knows as this node; -1: it was not drawn. */
static int find_sibling(const struct guess_tree *plan, int node, const struct guess_tree *draft)
{
    int place = guess_tree_place(plan, node), rank = guess_tree_rank(plan, node);
    int found = place < draft->n_chain ? draft->chain[place] : -1;
    for (; rank > 0 && found >= 0; rank--) {
        found = guess_tree_sibling(draft, found);
    }
    return found;
}

/* The draft's node that node i of the plan follows; -1: it has nothing to follow. */
static int find_parent(const struct draft_grower *g, const struct draft_lane *lane, int i)
{
    int parent = g->plan->parents[i];
    bool is_sibling = g->plan->marks[parent] & GUESS_SIBLING;
    int found = is_sibling ? find_sibling(g->plan, parent, lane->draft) : g->made[parent];
    return found < 0 || model_draft_ends(lane, lane->draft->tokens[found]) ? -1 : found;
}

bool model_draft_wants_growth(struct draft_grower *g, struct draft_lane *lane, bool goes_on)
{
    if (g->follows) return model_draft_follows_on(g, lane, goes_on);
    for (; g->plan && g->next < g->plan->n; g->next++) {
        if (!(g->plan->marks[g->next] & GUESS_GROWN)) continue;
        bool waits = goes_on && guess_tree_place(g->plan, g->next) > lane->draft->n_chain;
        if (waits) return false;
        if (find_parent(g, lane, g->next) >= 0) return true;
    }
    return false;
}

/* Lists the parents of the guesses for the next place. */
static void list_parents(struct draft_grower *g, const struct draft_lane *lane)
{
    int place = guess_tree_place(g->plan, g->next);
    g->n_parents = 0;
    g->end = g->next;
    for (; g->end < g->plan->n && guess_tree_place(g->plan, g->end) == place; g->end++) {
        if (guess_tree_rank(g->plan, g->end) > 0) continue;
        int parent = find_parent(g, lane, g->end);
        if (parent >= 0) g->pass_parents[g->n_parents++] = (int8_t)parent;
    }
}

/* Marks what leads to these parents. Returns the first place that has a sibling among this. */
static int mark(struct draft_grower *g, const struct guess_tree *draft)
{
    int fork = DRAFT_MAX;
    memset(g->is_needed, 0, sizeof g->is_needed);
    for (int i = 0; i < g->n_parents; i++) {
        int node = g->pass_parents[i];
        for (; draft->marks[node] & GUESS_GROWN; node = draft->parents[node]) {
            g->is_needed[node] = true;
        }
        g->is_needed[node] = true;
        int place = guess_tree_place(draft, node);
        if (place < fork) fork = place;
    }
    return fork;
}

/* ---- the tree of a pass ---- */

/* Adds a node of the draft to the tree, where its parent is `parent`. */
static int add(struct draft_grower *g, const struct guess_tree *draft, int node, int parent)
{
    int at = g->n_tokens - 1;
    g->parents[at] = parent;
    g->nodes[g->n_tokens] = (int8_t)node;
    g->tokens[g->n_tokens++] = draft->tokens[node];
    for (int i = 0; i < g->n_parents; i++) {
        if (g->pass_parents[i] != node) continue;
        g->rows[g->n_rows] = (int16_t)(at + 1);
        g->of_row[g->n_rows++] = (int8_t)node;
    }
    return at;
}

/* Adds the children of a node that are needed, each with all that is needed after it. */
static void add_needed(struct draft_grower *g, const struct guess_tree *draft, int node, int parent)
{
    for (int c = guess_tree_child(draft, node); c >= 0; c = guess_tree_sibling(draft, c)) {
        if (g->is_needed[c]) add_needed(g, draft, c, add(g, draft, c, parent));
    }
}

/* The chain from place `fork` on, then what is beside it, the deepest first. */
static void add_all(struct draft_grower *g, const struct draft_lane *lane, int fork)
{
    const struct guess_tree *draft = lane->draft;
    g->n_tokens = 1;
    g->n_rows = 0;
    g->tokens[0] = lane->seq->tokens[draft->base + fork - 1];
    g->nodes[0] = (int8_t)(fork > 0 ? draft->chain[fork - 1] : -1);
    for (int i = fork; i < draft->n_chain; i++) {
        add(g, draft, draft->chain[i], i - fork - 1);
    }
    for (int i = draft->n_chain - 1; i >= fork; i--) {
        add_needed(g, draft, i > 0 ? draft->chain[i - 1] : -1, i - fork - 1);
    }
}

static void choose_parents(const struct model_draft *d, struct draft_grower *g,
                           const struct draft_lane *lane, bool goes_on)
{
    if (g->follows) {
        model_draft_choose_parents(g, lane, goes_on, d->n_rows_max);
    } else {
        list_parents(g, lane);
    }
}

void model_draft_plan_growth_of_row(struct model_draft *d, struct draft_grower *g,
                                    struct feeding *feeding)
{
    choose_parents(d, g, feeding->lane, feeding->has_chain_row);
    g->shares_row = true;
    g->n_rows = g->n_parents;
    memcpy(g->of_row, g->pass_parents, (size_t)g->n_parents);
    feeding->grower = g;
}

int model_draft_growth_place(const struct draft_grower *g)
{
    return g->follows ? g->f.place : guess_tree_place(g->plan, g->next);
}

void model_draft_stop_growth(struct draft_grower *g)
{
    g->plan = NULL;
}

bool model_draft_plan_growth(struct model_draft *d, struct draft_grower *g, bool goes_on,
                             struct feeding *feeding)
{
    const struct draft_lane *lane = feeding->lane;
    const struct guess_tree *draft = lane->draft;
    const struct block_table *table = &d->tables[lane->seq->slot];
    struct error err;
    choose_parents(d, g, lane, goes_on);
    int fork = mark(g, draft);
    add_all(g, lane, fork);
    if (tree_layout_init(&g->shape, g->parents, g->n_tokens - 1, &err) ||
        block_tails_reserve(&g->tails, &d->pool, table, &g->shape, draft->base + fork - d->shift,
                            &err)) {
        g->plan = NULL;
        if (g->follows) model_draft_follows_on(g, feeding->lane, goes_on);
        return false;
    }
    g->tree = (struct forward_tree){&g->shape, g->tails.blocks};
    feeding->grower = g;
    feeding->has_chain_row = goes_on;
    feeding->n_rows = g->n_rows + (goes_on ? 1 : 0);
    assert(feeding->n_rows <= d->n_rows_max); /* otherwise no step could take it */
    feeding->end = draft->base + draft->n_chain;
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

/* Number of guess i of the plan and those after it that have its parent. */
static int count_group(const struct draft_grower *g, int first)
{
    int n = 1;
    while (first + n < g->end && g->plan->parents[first + n] == g->plan->parents[first]) {
        n++;
    }
    return n;
}

/* The row that was read for a node; -1: none was, what follows it is left out. */
static int find_row(const struct draft_grower *g, int node)
{
    for (int r = 0; r < g->n_rows; r++) {
        if (g->of_row[r] == node) return r;
    }
    return -1;
}

static int draw_planned(struct model_draft *d, const struct feeding *feeding, int row,
                        struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    struct draft_lane *lane = feeding->lane;
    int rc = 0;
    for (int i = g->next, n; i < g->end; i += n) {
        const struct draft_group group = {find_parent(g, lane, i), n = count_group(g, i),
                                          i - g->next};
        struct guess_row read;
        int first = lane->draft->n, r = group.parent < 0 ? -1 : find_row(g, group.parent);
        if (r < 0) continue;
        TRY(model_draft_read_row(d, lane, model_draft_row_after(g, feeding, row, r), group.parent,
                                 model_draft_row_size(d, lane->seq, n - 1), arena, &read, err));
        int n_made = model_draft_draw_group(d, feeding, &group, &read, arena, err);
        if (n_made < 0) return n_made;
        for (int m = 0; m < n_made; m++) {
            g->made[i + m] = (int8_t)(first + m);
        }
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
