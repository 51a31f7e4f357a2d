/* Guesses behind siblings. A pass that makes them feeds its lane as a tree: the chain from the
 * first sibling on that the pass needs, and what leads from there to the guesses behind which it
 * makes others. What is behind siblings is read again in each pass, in blocks that the paths of the
 * tree have for the length of the pass: that is a few rows of a small model, and no tree of KV has
 * to be kept. The row behind a guess is that of its path as a chain, bit for bit (docs/design.md
 * section 4), so q is what it would be if the draft had been given this path as its text.
 *
 * A growth is planned before anything of the round is drawn. What is left out of it lacks its
 * parent, stands behind an end of the text, or finds no blocks: that is decided by tokens drawn
 * before, or by company, and never by a token that is then not sent (speculation/tree.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/growth.h"
#include "coordinator/block_tails.h"
#include "coordinator/draft/model_draft.h"

/* What a growth calls a guess of the chain, which is no parent in it. */
enum { OF_CHAIN = GROWN_MAX, PASS_TOKENS = 1 + TREE_NODES_MAX };

/* The growth of a lane in the making. */
struct draft_grower {
    const struct growth *plan; /* NULL: nothing is made behind siblings */
    int next;                  /* of the plan: the first guess that has not had its pass */
    int8_t made[GROWN_MAX];    /* [next] its number in the draft; -1: it was left out */

    /* The pass that makes the guesses next .. end of the plan. */
    int end;
    bool is_needed[GROWN_MAX]; /* it, or what is behind it, has a guess of the pass behind it */
    bool needs_sibling[DRAFT_MAX][SIBLINGS_MAX]; /* the same of siblings */
    int n_tokens, n_rows;
    int32_t tokens[PASS_TOKENS], parents[TREE_NODES_MAX]; /* tokens[0] is before the tree */
    int16_t rows[GROWN_MAX];  /* [n_rows] index in tokens of a guess that gets others ... */
    int8_t firsts[GROWN_MAX]; /* ... and the first of these in the plan */
    struct guess_tree shape;
    struct block_tails tails;
    struct forward_tree tree;
};

int model_draft_open_growers(struct model_draft *d, struct error *err)
{
    return mem_array(&d->growers, (size_t)d->options.n_sequences, sizeof *d->growers, err);
}

void model_draft_close_growers(struct model_draft *d)
{
    free(d->growers);
}

void model_draft_begin_growth(struct model_draft *d, const struct draft_lane *lanes, int n)
{
    for (int i = 0; i < n; i++) {
        const struct growth *growth = lanes[i].growth;
        d->growers[i].plan = growth && growth->n > 0 ? growth : NULL;
        d->growers[i].next = 0;
    }
}

/* ---- which guesses ---- */

static bool is_end(const struct draft_lane *lane, int32_t token)
{
    return end_ids_have(lane->ends, token);
}

/* Whether guess i of the plan has something to follow. */
static bool has_parent(const struct draft_grower *g, const struct draft_lane *lane, int i)
{
    const struct draft *draft = lane->draft;
    int parent = g->plan->parents[i];
    if (parent >= 0) {
        return g->made[parent] >= 0 && !is_end(lane, draft->grown_tokens[g->made[parent]]);
    }
    int guess = growth_guess(parent), sibling = growth_sibling(parent);
    return guess < draft->n && sibling < draft->n_siblings[guess] &&
           !is_end(lane, draft->siblings[guess][sibling]);
}

bool model_draft_wants_growth(struct draft_grower *g, const struct draft_lane *lane, bool goes_on)
{
    for (; g->plan && g->next < g->plan->n; g->made[g->next++] = -1) {
        bool waits = goes_on && growth_place(g->plan, g->next) > lane->draft->n;
        if (waits) return false;
        if (has_parent(g, lane, g->next)) return true;
    }
    return false;
}

/* Marks what leads to the guesses of the pass. Returns the first guess of the chain that has a
 * sibling among this. */
static int mark(struct draft_grower *g, const struct draft_lane *lane)
{
    int place = growth_place(g->plan, g->next), fork = DRAFT_MAX;
    memset(g->is_needed, 0, sizeof g->is_needed);
    memset(g->needs_sibling, 0, sizeof g->needs_sibling);
    g->end = g->next;
    for (; g->end < g->plan->n && growth_place(g->plan, g->end) == place; g->end++) {
        if (!has_parent(g, lane, g->end)) continue;
        int parent = g->plan->parents[g->end];
        for (; parent >= 0; parent = g->plan->parents[parent]) {
            g->is_needed[parent] = true;
        }
        g->needs_sibling[growth_guess(parent)][growth_sibling(parent)] = true;
        if (growth_guess(parent) < fork) fork = growth_guess(parent);
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
    for (int i = g->next; i < g->end; i++) {
        if (g->plan->parents[i] != name) continue;
        g->rows[g->n_rows] = (int16_t)(at + 1);
        g->firsts[g->n_rows++] = (int8_t)i;
        break;
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
    int fork = mark(g, lane);
    add_all(g, lane, fork);
    if (guess_tree_init(&g->shape, g->parents, g->n_tokens - 1, &err) ||
        block_tails_reserve(&g->tails, &d->pool, table, &g->shape, draft->base + fork, &err)) {
        g->plan = NULL;
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

/* The guesses of the pass that have this parent, from a row of logits. */
static int draw(struct model_draft *d, struct draft_grower *g, struct draft_lane *lane, int first,
                int row, struct arena *arena, struct error *err)
{
    struct draft *draft = lane->draft;
    const struct growth *plan = g->plan;
    int32_t siblings[SIBLINGS_MAX];
    int n = 1, at = draft->grown.n, parent = plan->parents[first];
    while (first + n < g->end && plan->parents[first + n] == parent) {
        n++;
    }
    assert(n <= 1 + SIBLINGS_MAX);
    struct guess guess = {.position = draft->base + growth_place(plan, first),
                          .base = draft->base,
                          .coin = 1 + SIBLINGS_MAX + first - g->next,
                          .q = &draft->grown_q[at],
                          .siblings = siblings,
                          .siblings_max = n - 1};
    int rc = model_draft_choose(d, lane->seq, row, arena, &guess, err);
    if (rc) return rc;
    for (int i = 0; i < 1 + guess.n_siblings; i++) {
        g->made[first + i] = (int8_t)draft->grown.n;
        draft->grown.parents[draft->grown.n] = parent < 0 ? (int8_t)parent : g->made[parent];
        draft->grown_tokens[draft->grown.n++] = i == 0 ? guess.id : siblings[i - 1];
    }
    return 0;
}

int model_draft_draw_growth(struct model_draft *d, const struct feeding *feeding, int row,
                            struct arena *arena, struct error *err)
{
    struct draft_grower *g = feeding->grower;
    int rc = 0;
    row += feeding->has_chain_row ? 1 : 0;
    for (int i = g->next; i < g->end; i++) {
        g->made[i] = -1;
    }
    for (int i = g->next; i < g->end && !rc; i++) {
        int r = 0;
        while (r < g->n_rows && g->firsts[r] != i) {
            r++;
        }
        if (r < g->n_rows) rc = draw(d, g, feeding->lane, i, row + r, arena, err);
    }
    g->next = g->end;
    return rc;
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
