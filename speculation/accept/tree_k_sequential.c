/* K-sequential selection: the siblings that share a q are judged by one threshold for all of them,
 * which is nearly the optimal transport for independent drafts. */
#include <assert.h>
#include <math.h>

#include "speculation/accept/rules.h"
#include "speculation/accept/tree_residual.h"

enum { BISECTIONS = 40 };

/* Siblings from `child` on that share its q. */
struct draft_group {
    const struct sparse_dist *q;
    int k;
    double rho;  /* a sibling stays with min(1, p / (rho q)) */
    double beta; /* the chance of that, over q */
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

/* 1 - (1 - beta)^k: the chance that one of the siblings stays. */
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

static struct draft_group group_of(const struct guess_tree *tree, int child)
{
    struct draft_group group = {.q = tree->q[child], .rho = 1};
    for (int c = child; c >= 0 && tree->q[c] == group.q; c = guess_tree_sibling(tree, c)) {
        group.k++;
    }
    return group;
}

static int first_kept(const struct guess_tree *tree, int node, const struct rng_address *at,
                      struct tree_residual *rest)
{
    for (int c = guess_tree_child(tree, node); c >= 0;) {
        struct draft_group group = group_of(tree, c);
        assert(group.k == 1 || tree->is_independent);
        choose_rho(rest, &group);
        for (int i = 0; i < group.k; i++, c = guess_tree_sibling(tree, c)) {
            double q_c = (double)sparse_prob(group.q, tree->tokens[c]);
            double coin = rng_uniform(at, RNG_ACCEPT, tree_coin_index(tree, c));
            if (coin * group.rho * q_c < tree_residual_prob(rest, tree->tokens[c])) return c;
        }
        subtract(rest, &group);
    }
    return -1;
}

/* K-sequential selection (K-SEQ) of SpecTr, Sun et al. 2023, arXiv 2310.15141: a sibling stays with
 * min(1, p / (rho q)), rho the least that is exact; this accepts at least 1 - (1 - 1/k)^k of what
 * the optimal transport accepts. For siblings drawn with replacement, whose number must be decided
 * before any of them is drawn, because rho depends on it; a further group, such as an n-gram, goes
 * on with what is left of p. */
struct tree_result tree_accept_k_sequential(const struct guess_tree *tree,
                                            const struct target_row *rows,
                                            const struct rng_address *at, double *scratch)
{
    return tree_residual_walk(tree, rows, at, scratch, first_kept);
}
