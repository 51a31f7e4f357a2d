/* Which guesses of a tree go on, and how many guesses there are after each: what EAGLE-2 decides
 * by the draft's own probabilities (Li et al. 2024, arXiv 2406.16858, sections 4.1 and 4.2). A
 * place of a tree is made thus: tree_follow_expand says which guesses of the place before grow, by
 * the value of their paths; the draft gives a distribution after each of them; tree_follow_share
 * says how many guesses there will be after each; then these are drawn, and all of them stay.
 * EAGLE-2 expands a fixed number and keeps the best of all in the end, after a look at them. Where
 * tokens are drawn that would bias the text, so here everything is decided before
 * (speculation/accept/tree.h).
 *
 * The paper's value of a guess is the product of q along its path: how likely the draft takes the
 * guess to be. That is its chance to stay where the target's token must be equal to it. But a guess
 * that is drawn from q stays with min(1, p / q): if the target's p is the draft's q, it always
 * stays, however unlikely it was. So a part of the value, constant_ratio = c, does not depend on q:
 * a first guess of chance q counts c + (1 - c) q, and those after it (1 - c) q, because in that
 * part they are never looked at. c = 0 is the paper's. Pure arithmetic. */
#pragma once

#include "base/limits.h"
#include "model/logits/sampling.h"
#include "speculation/accept/rules.h"

enum { TREE_CHILDREN_MAX = 1 + SIBLINGS_MAX };

/* A guess, or the committed text, after which there will be others. */
struct tree_follow_parent {
    double value;
    int n_best;
    float best[TREE_CHILDREN_MAX]; /* the largest chances after it, the largest first */
    int n_children;                /* in: those that it has whatever they are worth; out: all */
};

/* Indices of the n_wanted largest of value[n], best first, ties to the first; returns their
 * number. */
int tree_follow_expand(const double *value, int n, int n_wanted, int *chosen);

/* The largest values of q, best first; returns how many are above 0. */
int tree_follow_best(const struct sparse_dist *q, float best[TREE_CHILDREN_MAX]);

/* Gives out up to `budget` guesses one after the other, each to the parent after which the next of
 * its best has the largest value (tree_follow_value); ties to the first. No parent gets more than
 * its best. Returns how many were given out. */
int tree_follow_share(struct tree_follow_parent *parents, int n, int budget, double constant_ratio);

/* constant_ratio under a rule. */
double tree_follow_constant_ratio(const struct rule *rule);

/* The value of guess `rank` (0: the first) after a parent of this value, to which the draft gives
 * this chance. */
double tree_follow_value(double parent, float chance, int rank, double constant_ratio);
