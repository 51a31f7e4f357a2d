/* Residuals of p at a node while its children are verified one after the other: after each
 * child that does not stay, max(0, share p - q) with that child's q. Rules over a tree share it. */
#pragma once

#include "speculation/accept/tree.h"

/* Weights w over the row's ids and outside of them; `share` times a weight is a probability. It is
 * 1 over their sum for rules that decide token by token. For rules that weigh whole paths it is
 * scale over their sum, where scale is the part of p that this node still has to serve. */
struct tree_residual {
    const struct target_row *row;
    double *w; /* [row->n], lent; valid if n_stages > 0, otherwise w is the row's p */
    double outside, mass, scale, share;
    int n_stages; /* children that did not stay */
};

/* Before any child: p itself. */
void tree_residual_open(struct tree_residual *rest, const struct target_row *row, double scale,
                        double *scratch);
/* share * w of a token, and of number i of the row's ids. */
double tree_residual_prob(const struct tree_residual *rest, int32_t token);
double tree_residual_prob_at(const struct tree_residual *rest, int i);
/* A child with distribution q / left did not stay. Its tokens that are gone from q have no weight
 * any more, so they need no care. The caller sets scale and then share, by tree_residual_rescale.
 */
void tree_residual_subtract(struct tree_residual *rest, const struct sparse_dist *q, double left);
void tree_residual_rescale(struct tree_residual *rest, double scale);
/* A token from w, or from p where w has no mass (then only rounding led here): coin RNG_RESIDUAL of
 * `at`, inverse CDF over the row's ids, then outside. */
int32_t tree_residual_draw(const struct tree_residual *rest, const struct rng_address *at);

/* The first child of a node that stays, else -1, and what the children before it have left of p;
 * `at` has the children's coins. */
typedef int tree_first_kept_fn(const struct guess_tree *tree, int node,
                               const struct rng_address *at, struct tree_residual *rest);
/* The walk of the rules that decide child by child: from the root on to a child that stays, and
 * where none does, a token from what is left of p. */
struct tree_result tree_residual_walk(const struct guess_tree *tree, const struct target_row *rows,
                                      const struct rng_address *at, double *scratch,
                                      tree_first_kept_fn *first_kept);
