/* The option --trees: whether guesses may be trees, and a tree that is the same in every round. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/guess_tree.h"
#include "coordinator/draft/tree_choices.h"

/* Siblings and guesses after them where it pays, siblings alone, or chains. */
enum trees_mode { TREES_AUTO, TREES_SIBLINGS, TREES_OFF };

/* After each guess for place i - 1 there are widths[i] guesses for place i, 1 .. 1 + SIBLINGS_MAX;
 * "3,2,1" in the papers' way of writing. Its chain is the first guess of each place. */
struct tree_widths {
    int n; /* 0 .. DRAFT_MAX */
    uint8_t widths[DRAFT_MAX];
    /* "chains:KxL": widths K, 1, 1, ..: K chains of L guesses, each drawn by itself, so that two
     * may hold the same tokens, under rules that judge q. A K of the sequence that is less than L
     * cuts all of them, and one that is more does not make one longer. */
    bool is_independent;
    /* "choices:FILE": choices.n > 0, and n is that of its places; widths are not used. */
    struct tree_choices choices;
};

/* A tree that is named is for requests of strategy fixed; for planned ones it is as auto. */
struct trees {
    enum trees_mode mode;
    bool follows_q;           /* of planned trees: the draft's q says which guesses grow */
    struct tree_widths fixed; /* n = 0: there is none */
    bool fixed_follows_q;     /* the same of this one: it says how many guesses a place has */
};

/* "auto", "dynamic", "static", "siblings", "off", "3,2,1", "dynamic:3,2,1", "chains:3x4" or
 * "choices:FILE", which is read. Errors: ERR_ARGUMENT no such mode or tree, or a tree of more than
 * GROWN_MAX - 1 guesses; of chains, beside the first one; ERR_NO_MEMORY. */
int trees_parse(const char *text, struct trees *trees, struct error *err);

/* Says what the trees are that have a name, for the help: "dynamic:3,2,1 is ...; chains:3x4 is
 * ...". */
void trees_list(char *text, size_t size);

/* Plans the tree of the first k places; after the last width there is one guess for each place, of
 * the chain alone. Returns how many guesses it has besides the chain. */
int tree_widths_plan(const struct tree_widths *widths, int k, struct guess_tree *plan);
