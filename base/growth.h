/* Guesses behind siblings, as the planner asks for them and a draft model draws them. A draft is a
 * chain of guesses, which have siblings; behind a sibling it may go on with guesses of its own,
 * which have siblings, too. Guess i of the growth has a parent: an earlier one of these, or a
 * sibling of the chain.
 *
 *   chain    c0 -- c1         growth  parents
 *   sibling  s0 -- g0 -- g2   g0      growth_behind(0, 0)   behind sibling 0 of guess 0
 *            `-- g1           g1      growth_behind(0, 0)
 *                             g2      0
 *
 * They are in the order in which they are drawn: by their places, and those of one parent one
 * behind the other, each the next sibling of the one before it. */
#pragma once

#include <stdint.h>

#include "base/limits.h"

enum { GROWN_MAX = TREE_PATHS_MAX };

struct growth {
    int n;
    int8_t parents[GROWN_MAX];
};

/* The parent that is sibling `sibling`, from 0, of guess `guess` of the chain: a negative
 * number. */
static inline int8_t growth_behind(int guess, int sibling)
{
    return (int8_t)(-1 - (guess * SIBLINGS_MAX + sibling));
}

/* Of such a parent: whose sibling it is, and which. */
static inline int growth_guess(int parent)
{
    return (-1 - parent) / SIBLINGS_MAX;
}

static inline int growth_sibling(int parent)
{
    return (-1 - parent) % SIBLINGS_MAX;
}

/* The place of guess i, counted as the chain's guesses are, from 0. */
int growth_place(const struct growth *growth, int i);

/* The first guess that has the parent of guess i. */
int growth_first(const struct growth *growth, int i);

/* The tree that needs the most KV blocks of all that have as many guesses for each place as a chain
 * of k guesses with siblings[k] and this growth, or fewer, behind whichever guesses of the place
 * before, at most 1 + SIBLINGS_MAX behind each. Each guess without others behind it ends a path, so
 * it is the one in which as few guesses as possible have others: the first ones of each place have
 * as many as there may be. packed_siblings[k]; packed is another growth. */
void growth_pack(int k, const uint8_t *siblings, const struct growth *growth,
                 uint8_t *packed_siblings, struct growth *packed);

/* The whole draft as a tree: the chain of k guesses, then each sibling with what grows behind it,
 * those of later guesses first. siblings[k]. Writes parents as struct guess_tree has them and
 * returns how many guesses there are. */
int growth_tree(int k, const uint8_t *siblings, const struct growth *growth, int32_t *parents);
