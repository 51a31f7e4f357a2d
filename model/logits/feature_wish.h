/* Features: rows of a model's residual stream, as drafters read them that go on from what the
 * target has computed. Boundary b is the stream before layer b; b = n_layers is after the last
 * layer, before the final norm. The normed feature is what the head reads. A feature is bf16 of
 * the row, so it is a function of the weights and the prefix, like the logits. */
#pragma once

#include <assert.h>
#include <stdbool.h>

#include "base/limits.h"

/* The boundaries whose rows are wanted. A row has a column of D elements for each, in this order,
 * and the normed one last. */
struct feature_wish {
    int n;
    int boundaries[FEATURE_BOUNDARIES_MAX]; /* [n] ascending */
    bool normed;
};

/* Columns of a row; 0: nothing is wanted. */
static inline int feature_wish_columns(const struct feature_wish *wish)
{
    return wish->n + (wish->normed ? 1 : 0);
}

/* The column of a boundary; -1: there is none. */
static inline int feature_wish_column(const struct feature_wish *wish, int boundary)
{
    for (int i = 0; i < wish->n; i++) {
        if (wish->boundaries[i] == boundary) return i;
    }
    return -1;
}

/* True if every column of `part` is one of `whole`. */
static inline bool feature_wish_holds(const struct feature_wish *whole,
                                      const struct feature_wish *part)
{
    bool holds = whole->normed || !part->normed;
    for (int i = 0; holds && i < part->n; i++) {
        holds = feature_wish_column(whole, part->boundaries[i]) >= 0;
    }
    return holds;
}

/* Adds the columns of `part`. Together they are at most FEATURE_BOUNDARIES_MAX boundaries. */
static inline void feature_wish_add(struct feature_wish *whole, const struct feature_wish *part)
{
    whole->normed |= part->normed;
    for (int i = 0; i < part->n; i++) {
        int at = whole->n;
        if (feature_wish_column(whole, part->boundaries[i]) >= 0) continue;
        assert(at < FEATURE_BOUNDARIES_MAX);
        for (; at > 0 && whole->boundaries[at - 1] > part->boundaries[i]; at--) {
            whole->boundaries[at] = whole->boundaries[at - 1];
        }
        whole->boundaries[at] = part->boundaries[i];
        whole->n++;
    }
}

static inline bool feature_wish_equal(const struct feature_wish *a, const struct feature_wish *b)
{
    return feature_wish_holds(a, b) && feature_wish_holds(b, a);
}
