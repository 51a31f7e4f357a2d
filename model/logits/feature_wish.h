/* Features: rows of a model's residual stream, as drafters read them that go on from what the
 * target has computed. Boundary b is the stream before layer b; b = n_layers is after the last
 * layer, before the final norm. The normed feature is what the head reads. A feature is bf16 of
 * the row, so it is a function of the weights and the prefix, like the logits; and so is what a
 * head's first matrix makes of several of them. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* The first matrix of a head (fc), with the norms before it: who has one of the same digest makes
 * the same of features, to the bit within one arithmetic. */
struct projection_key {
    uint64_t digest; /* 0: there is none */
    int width;       /* of what comes out */
};

/* A wish for one width in place of several features, which the fc of a head makes of them. The
 * features that it reads are named as in struct feature_wish. */
struct feature_projection {
    struct projection_key key; /* digest 0: nothing is wanted */
    int n;
    int boundaries[FEATURE_WISH_MAX]; /* [n] ascending */
    bool normed;
};

/* The boundaries whose rows are wanted. A row has a column of D elements for each, in this order,
 * then the normed one, and last the projected one of its own width. */
struct feature_wish {
    int n;
    int boundaries[FEATURE_BOUNDARIES_MAX]; /* [n] ascending */
    bool normed;
    struct feature_projection projection; /* its boundaries and the others: as many as above */
};

/* Columns of width D that a row has. */
static inline int feature_wish_columns(const struct feature_wish *wish)
{
    return wish->n + (wish->normed ? 1 : 0);
}

static inline bool feature_wish_is_empty(const struct feature_wish *wish)
{
    return feature_wish_columns(wish) == 0 && wish->projection.key.digest == 0;
}

/* Elements of a row. */
static inline size_t feature_wish_width(const struct feature_wish *wish, int dim)
{
    size_t width = (size_t)feature_wish_columns(wish) * (size_t)dim;
    return width + (wish->projection.key.digest ? (size_t)wish->projection.key.width : 0);
}

static inline bool feature_projection_equal(const struct feature_projection *a,
                                            const struct feature_projection *b)
{
    bool is_equal = a->key.digest == b->key.digest && a->key.width == b->key.width &&
                    a->n == b->n && a->normed == b->normed;
    for (int i = 0; is_equal && i < a->n; i++) {
        is_equal = a->boundaries[i] == b->boundaries[i];
    }
    return is_equal;
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
    bool holds = (whole->normed || !part->normed) &&
                 (part->projection.key.digest == 0 ||
                  feature_projection_equal(&whole->projection, &part->projection));
    for (int i = 0; holds && i < part->n; i++) {
        holds = feature_wish_column(whole, part->boundaries[i]) >= 0;
    }
    return holds;
}

static inline void feature_wish_add_boundary(struct feature_wish *whole, int boundary)
{
    int at = whole->n;
    if (feature_wish_column(whole, boundary) >= 0) return;
    assert(at < FEATURE_BOUNDARIES_MAX);
    for (; at > 0 && whole->boundaries[at - 1] > boundary; at--) {
        whole->boundaries[at] = whole->boundaries[at - 1];
    }
    whole->boundaries[at] = boundary;
    whole->n++;
}

/* Adds the columns of `part`. Together they are at most FEATURE_BOUNDARIES_MAX boundaries, and they
 * want no two projections. */
static inline void feature_wish_add(struct feature_wish *whole, const struct feature_wish *part)
{
    whole->normed |= part->normed;
    for (int i = 0; i < part->n; i++) {
        feature_wish_add_boundary(whole, part->boundaries[i]);
    }
    if (part->projection.key.digest == 0) return;
    assert(whole->projection.key.digest == 0 ||
           feature_projection_equal(&whole->projection, &part->projection));
    whole->projection = part->projection;
}

/* The columns that have to be kept for the wish: its own, and those that the projection reads. */
static inline struct feature_wish feature_wish_kept(const struct feature_wish *wish)
{
    struct feature_wish kept = *wish;
    kept.projection = (struct feature_projection){0};
    if (wish->projection.key.digest == 0) return kept;
    kept.normed |= wish->projection.normed;
    for (int i = 0; i < wish->projection.n; i++) {
        feature_wish_add_boundary(&kept, wish->projection.boundaries[i]);
    }
    return kept;
}

static inline bool feature_wish_equal(const struct feature_wish *a, const struct feature_wish *b)
{
    return feature_wish_holds(a, b) && feature_wish_holds(b, a);
}
