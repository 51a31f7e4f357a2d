/* Trees of a chain with siblings and what grows after these that have so many
 * guesses for each place, by chance after any guesses of the place before. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "tests/support/guess_tables.h"

/* A chain of k guesses, siblings of them, and what grows after these. */
struct growth_shape {
    int k;
    uint8_t siblings[DRAFT_MAX];
    struct growth growth;
};

/* Views a tree, whose guesses after siblings are in the order in which they are drawn. */
static inline struct growth_shape growth_shape_of(const struct guess_tree *tree)
{
    const struct draft_view view = view_draft(tree);
    struct growth_shape shape = {.k = view.n, .growth = view.grown};
    memcpy(shape.siblings, view.n_siblings, sizeof shape.siblings);
    return shape;
}

/* Guesses beside the chain, by place. */
static inline void growth_shape_count(int k, const uint8_t *siblings, const struct growth *growth,
                                      int *counts)
{
    memset(counts, 0, DRAFT_MAX * sizeof *counts);
    for (int i = 0; i < k; i++) {
        counts[i] += siblings[i];
    }
    for (int i = 0; i < growth->n; i++) {
        counts[growth_place(growth, i)]++;
    }
}

/* Lists the parents that may get guesses for `place`: the chain's guess before it has siblings
 * there, which is -1 here, and others have any. Each parent is named as many times as it may have
 * guesses. */
static inline int growth_shape_parents(const struct growth_shape *shape, int place, int *parents)
{
    int n = 0;
    for (int s = 0; place < shape->k && s < SIBLINGS_MAX; s++) {
        parents[n++] = GROWN_MAX;
    }
    for (int s = 0; place <= shape->k && s < shape->siblings[place - 1]; s++) {
        for (int i = 0; i < 1 + SIBLINGS_MAX; i++) {
            parents[n++] = growth_after(place - 1, s);
        }
    }
    for (int g = 0; g < shape->growth.n; g++) {
        for (int i = 0; growth_place(&shape->growth, g) == place - 1 && i < 1 + SIBLINGS_MAX; i++) {
            parents[n++] = g;
        }
    }
    return n;
}

/* Adds the guesses of one place, those of a parent one after the other. */
static inline void growth_shape_add(struct growth_shape *shape, int place, const int *counts_of)
{
    shape->siblings[place] = (uint8_t)counts_of[GROWN_MAX];
    int end = shape->growth.n;
    for (int s = 0; place <= shape->k && s < shape->siblings[place - 1]; s++) {
        for (int i = 0; i < counts_of[GROWN_MAX + 1 + s]; i++) {
            shape->growth.parents[shape->growth.n++] = growth_after(place - 1, s);
        }
    }
    for (int g = 0; g < end; g++) {
        for (int i = 0; i < counts_of[g]; i++) {
            shape->growth.parents[shape->growth.n++] = (int8_t)g;
        }
    }
}

/* A tree with up to so many guesses beside the chain for each place, by chance after any guesses;
 * all of them unless `is_less`. */
static inline void growth_shape_any(const int *counts, bool is_less, int (*roll)(void *, int),
                                    void *context, struct growth_shape *shape)
{
    memset(shape->siblings, 0, sizeof shape->siblings);
    shape->growth.n = 0;
    shape->siblings[0] = (uint8_t)counts[0];
    for (int place = 1; place < DRAFT_MAX; place++) {
        int parents[(2 + SIBLINGS_MAX + GROWN_MAX) * (1 + SIBLINGS_MAX)];
        int counts_of[GROWN_MAX + 1 + SIBLINGS_MAX] = {0};
        int n = growth_shape_parents(shape, place, parents), wanted = counts[place];
        if (is_less && wanted > 0) wanted = roll(context, wanted + 1);
        for (; wanted > 0 && n > 0; wanted--) {
            int at = roll(context, n), parent = parents[at];
            bool is_sibling = parent < 0;
            counts_of[is_sibling ? GROWN_MAX + 1 + growth_sibling(parent) : parent]++;
            parents[at] = parents[--n];
        }
        growth_shape_add(shape, place, counts_of);
    }
}
