/* The best trees of lanes in which siblings go on. */
#include "speculation/planner/grow.h"

#include <string.h>

/* Guesses after siblings stay more or less often than those of the chain; by how much is learned
 * over all texts (grow_learn.c). */
static float after_sibling(float chance, float shift)
{
    float odds = planner_odds(chance) * shift;
    return odds / (1 + odds);
}

static void set_chances(struct planner_growing *g, struct planner *p,
                        const struct planner_lane *lane)
{
    struct planner_chain chain = planner_lane_chain(p, lane);
    int drafter = planner_drafter_of(lane->offer, lane->model);
    float shift = planner_trust_shift(&p->models[lane->model].grown);
    for (int i = 0; i < planner_lane_most(lane); i++) {
        g->chances[0][i] = planner_chain_next(&chain);
        g->chances[1][i] = after_sibling(g->chances[0][i], shift);
    }
    for (int i = 0; i < SIBLINGS_MAX; i++) {
        g->siblings[0][i] =
            planner_sibling_chance(&p->siblings[drafter], &lane->seq->sibling_trust[drafter], i);
        g->siblings[1][i] = after_sibling(g->siblings[0][i], shift);
    }
}

/* A guess of the chain has rank 0 at its position, and those after siblings count their ranks from
 * PLANNER_GROWN on. */
static bool is_of_chain(const struct planner_node *node)
{
    return node->rank == 0;
}

/* A guess of the lane that may be made. */
static void offer(struct planner_growing *g, struct planner_node node, float before, float chance)
{
    node.survival = before * chance;
    node.left = before - node.survival;
    if (node.survival >= PLANNER_LEAST_SURVIVAL) g->next[g->n_next++] = node;
}

/* After the guess that was taken last, and beside it. */
static void offer_after(struct planner_growing *g, const struct planner_lane *lane)
{
    int at = g->n_taken - 1, position = g->taken[at].position + 1;
    const struct planner_node *parent = &g->taken[at];
    if (position >= planner_lane_most(lane) || (!is_of_chain(parent) && !g->grows)) return;
    bool is_chain = is_of_chain(parent);
    const struct planner_node node = {
        .parent = (int8_t)at,
        .position = (int8_t)position,
        .rank = is_chain ? 0 : PLANNER_GROWN,
    };
    offer(g, node, parent->survival, g->chances[!is_chain][position]);
}

static void offer_beside(struct planner_growing *g, const struct planner_lane *lane)
{
    struct planner_node node = g->taken[g->n_taken - 1];
    int rank = node.rank % PLANNER_GROWN; /* siblings before the next one, and the guess */
    if (rank >= planner_lane_siblings(lane, node.position)) return;
    node.rank++;
    node.read_in = 0;
    offer(g, node, node.left, g->siblings[node.rank >= PLANNER_GROWN][rank]);
}

/* The likeliest guess of lanes[lane]. */
static struct planner_pair best_of(struct planner_growing *g, const struct planner_lane *lanes,
                                   int lane)
{
    int most = lanes[lane].nodes_max;
    bool is_full = g->n_taken == PLANNER_NODES_MAX || (most > 0 && g->n_taken >= most);
    if (is_full || g->n_next == 0) return (struct planner_pair){0};
    g->best = 0;
    for (int i = 1; i < g->n_next; i++) {
        if (g->next[i].survival > g->next[g->best].survival) g->best = i;
    }
    const struct planner_node *node = &g->next[g->best];
    return (struct planner_pair){.gain = planner_gain(g->tokens, node->survival),
                                 .survival = node->survival,
                                 .left = node->left,
                                 .lane = (uint8_t)lane,
                                 .position = node->position,
                                 .rank = node->rank};
}

struct planner_pair planner_grow_begin(struct planner_growing *g, struct planner *p,
                                       const struct planner_lane *lanes, int lane)
{
    const struct planner_node first = {.parent = -1};
    set_chances(g, p, &lanes[lane]);
    g->grows = planner_lane_draft(&lanes[lane])->grows && !lanes[lane].offer;
    g->is_parallel = p->models[lanes[lane].model].is_parallel;
    g->tokens = 1;
    g->n_taken = g->n_next = g->n_places = 0;
    memset(g->forks, DRAFT_MAX, sizeof g->forks);
    offer(g, first, 1, g->chances[0][0]);
    return best_of(g, lanes, lane);
}

/* Rows that the pass which makes the guess taken last reads more because of it: its parent, and
 * what leads to that from the chain on, as far as the pass does not read it for another guess; and
 * the chain from there on, of which a pass reads the last guess anyway
 * (coordinator/draft/model_draft_grow.c). Where one pass makes all guesses it has a row for each
 * place, whatever is before it (coordinator/draft/model_draft_parallel.c). */
static int rows_read(struct planner_growing *g)
{
    const struct planner_node *node = &g->taken[g->n_taken - 1];
    int pass = node->position, rows = 0, fork = pass;
    bool is_deepest = node->position >= g->n_places;
    if (is_deepest) g->n_places = node->position + 1;
    if (node->rank != PLANNER_GROWN) return 0;
    if (g->is_parallel) return is_deepest ? 1 : 0;
    for (int i = node->parent; i >= 0 && !is_of_chain(&g->taken[i]); i = g->taken[i].parent) {
        fork = g->taken[i].position;
        if (g->taken[i].read_in >= pass) continue;
        g->taken[i].read_in = (int8_t)pass;
        rows++;
    }
    int before = g->forks[pass] < pass ? g->forks[pass] : pass;
    if (fork >= before) return rows;
    g->forks[pass] = (int8_t)fork;
    return rows + before - fork;
}

struct planner_pair planner_grow_take(struct planner_growing *g, const struct planner_lane *lanes,
                                      struct planner_pair *taken)
{
    int lane = taken->lane;
    g->taken[g->n_taken++] = g->next[g->best];
    g->next[g->best] = g->next[--g->n_next];
    g->tokens += taken->survival;
    taken->rows = (int8_t)rows_read(g);
    offer_after(g, &lanes[lane]);
    offer_beside(g, &lanes[lane]);
    return best_of(g, lanes, lane);
}

/* ---- handing out ---- */

/* Adds the guesses for `position` that are after siblings, of the first n of a lane. at: the node
 * of each of these. */
static void add_place(const struct planner_growing *g, int n, int position, int *at,
                      struct guess_tree *tree)
{
    for (int p = 0; p < n; p++) {
        const struct planner_node *parent = &g->taken[p];
        if (parent->position != position - 1 || is_of_chain(parent)) continue;
        for (int i = p + 1; i < n; i++) {
            if (g->taken[i].parent != p) continue;
            at[i] = guess_tree_add(tree, at[p], GUESS_GROWN, -1, NULL);
        }
    }
}

/* The tree of the first n guesses of a lane that are less deep than depth. */
static void hand_out_lane(const struct planner_growing *g, int n, int depth,
                          struct guess_tree *tree)
{
    int at[PLANNER_NODES_MAX];
    for (int i = 0; i < n; i++) {
        const struct planner_node *node = &g->taken[i];
        if (node->position >= depth || node->rank >= PLANNER_GROWN) continue;
        at[i] = guess_tree_add(tree, node->parent < 0 ? -1 : at[node->parent],
                               is_of_chain(node) ? GUESS_CHAIN : GUESS_SIBLING, -1, NULL);
    }
    for (int position = 1; position < depth; position++) {
        add_place(g, n, position, at, tree);
    }
}

void planner_grow_hand_out(const struct planner_growing *growing, const struct planner_pair *pairs,
                           int depth, int n, struct planner_lane *lanes)
{
    short taken[PLANNER_LANES_MAX] = {0};
    for (int i = 0, n_listed = 0; n_listed < n; i++) {
        taken[pairs[i].lane]++;
        n_listed += pairs[i].position < depth ? 1 : 0;
    }
    for (int i = 0; i < PLANNER_LANES_MAX; i++) {
        if (taken[i] > 0) hand_out_lane(&growing[i], taken[i], depth, &lanes[i].tree);
    }
}
