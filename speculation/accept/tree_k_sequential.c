/* K-sequential selection: the guesses for a place that share a q are judged by one threshold for
 * all of them, which is nearly the optimal transport for independent drafts. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "speculation/accept/rules.h"
#include "speculation/accept/tree_residual.h"

enum { BISECTIONS = 40 };

/* Nodes that hold the same text: all of them go on with draws from what is, bit for bit, one q. */
struct candidates {
    int n;
    int nodes[TREE_NODES_MAX]; /* [n] ascending; the root is -1 */
};

/* Guesses after such nodes that were drawn from the same q. */
struct draft_group {
    const struct sparse_dist *q;
    int k;
    int nodes[TREE_NODES_MAX]; /* [k] ascending */
    double rho;                /* a guess stays with min(1, p / (rho q)) */
    double beta;               /* the chance of that, over q */
};

/* min(q, p / rho) of the row's id i; *k walks along q. */
static double overlap_at(const struct tree_residual *rest, const struct draft_group *group, int i,
                         int *k)
{
    const struct sparse_dist *q = group->q;
    while (*k < q->n && q->ids[*k] < rest->row->ids[i]) {
        (*k)++;
    }
    if (*k == q->n || q->ids[*k] != rest->row->ids[i]) return 0;
    return fmin((double)q->p[*k], tree_residual_prob_at(rest, i) / group->rho);
}

static double overlap(const struct tree_residual *rest, const struct draft_group *group)
{
    double sum = 0;
    for (int i = 0, k = 0; i < rest->row->n; i++) {
        sum += overlap_at(rest, group, i, &k);
    }
    return sum;
}

/* 1 - (1 - beta)^k: the chance that one of the guesses stays. */
static double any_stays(const struct draft_group *group)
{
    return 1 - pow(1 - group->beta, group->k);
}

/* The least rho for which rho beta >= 1 - (1 - beta)^k, from above: every larger one is exact too,
 * and a smaller one would ask for more of a token than p has. */
static void choose_rho(const struct tree_residual *rest, struct draft_group *group)
{
    double low = 1, high = group->k;
    for (int i = 0; i < BISECTIONS && group->k > 1; i++) {
        group->rho = 0.5 * (low + high);
        group->beta = overlap(rest, group);
        if (group->rho * group->beta >= any_stays(group)) {
            high = group->rho;
        } else {
            low = group->rho;
        }
    }
    group->rho = high;
    group->beta = overlap(rest, group);
}

static void subtract(struct tree_residual *rest, const struct draft_group *group)
{
    double factor = group->beta > 0 ? any_stays(group) / group->beta : 0;
    double sum = rest->outside * rest->share;
    rest->outside = sum;
    for (int i = 0, k = 0; i < rest->row->n; i++) {
        double w = tree_residual_prob_at(rest, i) - factor * overlap_at(rest, group, i, &k);
        rest->w[i] = w > 0 ? w : 0;
        sum += rest->w[i];
    }
    rest->mass = sum;
    rest->n_stages++;
    tree_residual_rescale(rest, 1);
}

static bool is_same_q(const struct sparse_dist *a, const struct sparse_dist *b)
{
    if (a == b) return true;
    size_t n = (size_t)a->n;
    return a->n == b->n && memcmp(a->ids, b->ids, n * sizeof *a->ids) == 0 &&
           memcmp(a->p, b->p, n * sizeof *a->p) == 0;
}

static bool has_node(const struct candidates *set, int node)
{
    for (int i = 0; i < set->n; i++) {
        if (set->nodes[i] == node) return true;
    }
    return false;
}

/* The guesses after the nodes of a set that were drawn from the q of `child`. */
static struct draft_group group_of(const struct guess_tree *tree, const struct candidates *set,
                                   int child)
{
    struct draft_group group = {.q = tree->q[child], .rho = 1};
    for (int i = set->nodes[0] + 1; i < tree->n; i++) {
        if (!has_node(set, tree->parents[i]) || !is_same_q(tree->q[i], group.q)) continue;
        group.nodes[group.k++] = i;
    }
    return group;
}

/* True if an earlier sibling of `child` was drawn from its q: then its group was judged. */
static bool was_judged(const struct guess_tree *tree, int child)
{
    int parent = tree->parents[child];
    for (int c = guess_tree_child(tree, parent); c < child; c = guess_tree_sibling(tree, c)) {
        if (is_same_q(tree->q[c], tree->q[child])) return true;
    }
    return false;
}

/* The first guess after the nodes of a set that stays, else -1. The row after `node`, one of them,
 * names what its own children's q can give, so guesses of another q after others are not judged. */
static int first_kept(const struct guess_tree *tree, const struct candidates *set, int node,
                      const struct rng_address *at, struct tree_residual *rest)
{
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        if (was_judged(tree, c)) continue;
        struct draft_group group = group_of(tree, set, c);
        assert(group.k == 1 || tree->is_independent);
        choose_rho(rest, &group);
        for (int i = 0; i < group.k; i++) {
            int guess = group.nodes[i];
            double q_c = (double)sparse_prob(group.q, tree->tokens[guess]);
            double coin = rng_uniform(at, RNG_ACCEPT, tree_coin_index(tree, guess));
            if (coin * group.rho * q_c < tree_residual_prob(rest, tree->tokens[guess])) {
                return guess;
            }
        }
        subtract(rest, &group);
    }
    return -1;
}

/* The first node of a set that others follow; if there is none, the first one. */
static int first_parent(const struct guess_tree *tree, const struct candidates *set)
{
    for (int i = 0; i < set->n; i++) {
        if (guess_tree_child(tree, set->nodes[i]) >= 0) return set->nodes[i];
    }
    return set->nodes[0];
}

/* The set goes on to those of its children that hold this token. */
static void go_on(const struct guess_tree *tree, struct candidates *set, int32_t token)
{
    struct candidates next = {0};
    for (int i = set->nodes[0] + 1; i < tree->n; i++) {
        if (tree->tokens[i] == token && has_node(set, tree->parents[i])) next.nodes[next.n++] = i;
    }
    *set = next;
}

/* K-sequential selection (K-SEQ) of SpecTr, Sun et al. 2023, arXiv 2310.15141: a guess stays with
 * min(1, p / (rho q)), rho the least that is exact; this accepts at least 1 - (1 - 1/k)^k of what
 * the optimal transport accepts. As in the paper's selection over sequences, all drafts that begin
 * with the text that was accepted are candidates for its next token, not only the one whose guess
 * was looked at when the token was accepted.
 *
 * That is exact: which guesses are candidates depends on the tokens of the places before alone, and
 * on coins of these places. Given them, the candidates' own tokens are k independent draws from one
 * q, because the draft's row after a text does not depend on the chain that it is of. So k is
 * known before any of them is drawn, as rho needs it, and one step of K-SEQ follows the other.
 *
 * For guesses drawn with replacement, whose number must be decided before any of them is drawn. A
 * further group, such as an n-gram, goes on with what is left of p. */
struct tree_result tree_accept_k_sequential(const struct guess_tree *tree,
                                            const struct target_row *rows,
                                            const struct rng_address *at, double *scratch)
{
    struct candidates set = {.n = 1, .nodes = {-1}};
    for (;;) {
        int node = first_parent(tree, &set);
        const struct rng_address here = tree_coins_after(tree, node, at);
        struct tree_residual rest;
        tree_residual_open(&rest, &rows[node + 1], 1, scratch);
        int kept = first_kept(tree, &set, node, &here, &rest);
        if (kept < 0) {
            struct tree_result result = tree_path(tree, node);
            result.next = tree_residual_draw(&rest, &here);
            return result;
        }
        go_on(tree, &set, tree->tokens[kept]);
    }
}
