/* A tree of guesses as Medusa writes it (arXiv 2401.10774, medusa_choices.py): a list of paths,
 * each the ranks of the guesses that lead to one, [[0], [0, 0], [1], [0, 1], ...] as JSON. [0, 1]
 * is the second best guess for place 1 after the best one for place 0. Paths of zeros are the
 * chain.
 *
 * A round has no room for some of the trees that were published. What it has no room for is left
 * out, with all that comes after it: guesses after the first 1 + SIBLINGS_MAX of one parent, places
 * after DRAFT_MAX, and of the guesses beside the chain all but the first GROWN_MAX - 1 of the file,
 * whose order is that of their worth. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/guess_tree.h"

/* Guesses in the order of their places, of their parents and of their ranks. */
struct tree_choices {
    int n, n_places;                /* n_places: of the longest path */
    int8_t parents[TREE_NODES_MAX]; /* [n] -1: the root */
};

/* Errors: ERR_ARGUMENT no such file, or a file that is no tree; ERR_NO_MEMORY. */
int tree_choices_read(struct tree_choices *choices, const char *path, struct error *err);
/* As tree_choices_read, of the contents of the file that errors name. */
int tree_choices_parse(struct tree_choices *choices, const char *text, size_t len, const char *path,
                       struct error *err);

/* Plans the first k places; where the chain of the file ends, that of the plan goes on alone. */
void tree_choices_plan(const struct tree_choices *choices, int k, struct guess_tree *plan);
