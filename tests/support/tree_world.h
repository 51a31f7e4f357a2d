/* Made-up pairs of models for the tests of rules over trees: p and q after every context, rows made
 * directly of p, trees drawn from q in a given shape. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"

enum { TREE_VOCAB = 1000, TREE_CONTEXTS = 16 };

struct tree_world {
    const char *name;
    int n_vocab, support; /* of q: so many best */
    double exponent;      /* p is Zipf's law with it over a random order of the tokens, ... */
    double noise;         /* ... log q = log p + noise times a nearly normal number ... */
    double temperature;   /* ... and both logarithms are divided by it */
    float p[TREE_CONTEXTS][TREE_VOCAB];
    struct sparse_dist q[TREE_CONTEXTS], one[TREE_CONTEXTS];
    int32_t q_ids[TREE_CONTEXTS][TREE_VOCAB], one_id[TREE_CONTEXTS];
    float q_p[TREE_CONTEXTS][TREE_VOCAB], one_p;
    /* Changes p[n_vocab] of the row after a node; NULL: nothing does. */
    void (*edit)(const struct guess_tree *tree, int node, float *p);
};

/* Parents in preorder. is_found: an n-gram's guess with a one-hot q, the rest is drawn. */
struct tree_plan {
    const char *name;
    int n;
    int parents[TREE_NODES_MAX];
    bool is_found[TREE_NODES_MAX];
};

/* A tree and its rows. */
struct tree_round {
    struct guess_tree tree;
    struct rng_address at;
    struct target_row rows[TREE_NODES_MAX + 1];
    int32_t ids[TREE_NODES_MAX + 1][TREE_VOCAB];
    float p[TREE_NODES_MAX + 1][TREE_VOCAB];
};

static inline int tree_context(const struct tree_world *world, int32_t token)
{
    (void)world;
    return (int)((token + 1) % TREE_CONTEXTS);
}

static inline double tree_uniform(int context, int index)
{
    const struct rng_address at = {.seed = 77, .position = (uint32_t)context};
    return rng_uniform(&at, RNG_WEIGHT, (uint32_t)index);
}

static inline void tree_normalise(float *p, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)p[i];
    }
    for (int i = 0; i < n; i++) {
        p[i] = (float)((double)p[i] / sum);
    }
}

/* The `support` best of weights[n_vocab], ids ascending. */
static inline void tree_make_q(struct tree_world *world, int context, const float *weights)
{
    struct sparse_dist *q = &world->q[context];
    *q = (struct sparse_dist){.ids = world->q_ids[context], .p = world->q_p[context]};
    for (int i = 0; i < world->n_vocab; i++) {
        int n_better = 0;
        for (int k = 0; k < world->n_vocab; k++) {
            n_better += weights[k] > weights[i] || (weights[k] == weights[i] && k < i);
        }
        if (n_better >= world->support) continue;
        q->ids[q->n] = i;
        q->p[q->n++] = weights[i];
    }
    tree_normalise(q->p, q->n);
}

static inline void tree_world_open(struct tree_world *world)
{
    world->one_p = 1;
    for (int c = 0; c < TREE_CONTEXTS; c++) {
        float weights[TREE_VOCAB];
        int order[TREE_VOCAB], best = 0;
        for (int i = 0; i < world->n_vocab; i++) {
            int at = (int)(tree_uniform(c, i * 8) * (i + 1));
            order[i] = order[at];
            order[at] = i;
        }
        for (int i = 0; i < world->n_vocab; i++) {
            double normal = 0, log_p = -world->exponent * log(order[i] + 1);
            for (int k = 1; k < 7; k++) {
                normal += tree_uniform(c, i * 8 + k) - 0.5;
            }
            world->p[c][i] = (float)exp(log_p / world->temperature);
            weights[i] = (float)exp((log_p + world->noise * normal * 1.414) / world->temperature);
        }
        tree_normalise(world->p[c], world->n_vocab);
        tree_make_q(world, c, weights);
        for (int i = 0; i < world->n_vocab; i++) {
            best = world->p[c][i] > world->p[c][best] ? i : best;
        }
        world->one_id[c] = c % 3 ? best : world->q[c].ids[0];
        world->one[c] = (struct sparse_dist){1, &world->one_id[c], &world->one_p};
    }
}

/* Sum of min(p, q), over the contexts. */
static inline double tree_world_alpha(const struct tree_world *world)
{
    double sum = 0;
    for (int c = 0; c < TREE_CONTEXTS; c++) {
        for (int i = 0; i < world->n_vocab; i++) {
            sum += fmin((double)world->p[c][i], (double)sparse_prob(&world->q[c], i));
        }
    }
    return sum / TREE_CONTEXTS;
}

static inline int tree_node_context(const struct tree_world *world, const struct guess_tree *tree,
                                    int node, int context)
{
    return node < 0 ? context : tree_context(world, tree->tokens[node]);
}

/* Draws node tree->n below `parent`; false: its q is empty, there is none. */
static inline bool tree_grow(const struct tree_world *world, struct guess_tree *tree, int parent,
                             bool is_found, int context, const struct rng_address *at)
{
    int node = tree->n, n_gone = 0;
    int32_t gone[TREE_NODES_MAX];
    int own = tree_node_context(world, tree, parent, context);
    tree->parents[node] = parent;
    tree->q[node] = is_found ? &world->one[own] : &world->q[own];
    for (int i = parent + 1; i < node; i++) {
        bool is_same = tree->parents[i] == parent && tree->q[i] == tree->q[node];
        if (is_same && !tree->is_independent) gone[n_gone++] = tree->tokens[i];
    }
    struct rng_address here = *at;
    here.position += (uint32_t)guess_tree_depth(tree, node) - 1;
    double u = rng_uniform(&here, RNG_DRAFT, tree_coin_index(tree, node));
    tree->tokens[node] = multi_draft_draw(tree->q[node], gone, n_gone, u);
    tree->n += tree->tokens[node] >= 0;
    return tree->tokens[node] >= 0;
}

/* A compact row: the ids that the children need, and a token drawn outside of them. */
static inline void tree_make_row(const struct tree_world *world, struct tree_round *round, int node,
                                 int context)
{
    struct target_row *row = &round->rows[node + 1];
    int32_t *ids = round->ids[node + 1];
    float *p = round->p[node + 1];
    int n = multi_draft_ids(&round->tree, node, ids);
    const float *all = world->p[tree_node_context(world, &round->tree, node, context)];
    float edited[TREE_VOCAB];
    if (world->edit) {
        memcpy(edited, all, (size_t)world->n_vocab * sizeof *edited);
        world->edit(&round->tree, node, edited);
        all = edited;
    }
    struct rng_address here = round->at;
    here.position += (uint32_t)guess_tree_depth(&round->tree, node);
    double outside = 0, sum = 0, u = rng_uniform(&here, RNG_OUTSIDE, 0);
    for (int i = 0, k = 0; i < world->n_vocab; i++) {
        if (k < n && ids[k] == i) {
            p[k++] = all[i];
        } else {
            outside += (double)all[i];
        }
    }
    *row = (struct target_row){.n = n, .ids = ids, .p = p, .outside_id = -1};
    row->outside_mass = outside;
    for (int i = 0, k = 0; i < world->n_vocab && outside > 0; i++) {
        if (k < n && ids[k] == i) {
            k++;
            continue;
        }
        sum += (double)all[i];
        row->outside_id = i;
        if (u * outside < sum) break;
    }
}

static inline void tree_make_rows(const struct tree_world *world, struct tree_round *round,
                                  int context)
{
    for (int i = -1; i < round->tree.n; i++) {
        tree_make_row(world, round, i, context);
    }
}

/* A round's tree of a plan. A child that cannot be drawn is left out with all that is below it. */
static inline void tree_make_round(const struct tree_world *world, const struct tree_plan *plan,
                                   bool is_independent, int context, const struct rng_address *at,
                                   struct tree_round *round)
{
    int place[TREE_NODES_MAX];
    round->at = *at;
    round->tree.n = 0;
    round->tree.is_independent = is_independent;
    for (int i = 0; i < plan->n; i++) {
        int parent = plan->parents[i] < 0 ? -1 : place[plan->parents[i]];
        place[i] = round->tree.n;
        bool has_parent = plan->parents[i] < 0 || parent >= 0;
        if (!has_parent ||
            !tree_grow(world, &round->tree, parent, plan->is_found[i], context, at)) {
            place[i] = -2;
        }
    }
    tree_make_rows(world, round, context);
}
