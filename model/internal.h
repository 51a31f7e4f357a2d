/* The model, for the files of its room that open it and compute with it. */
#pragma once

#include "model/entry.h"
#include "model/features.h"
#include "model/model.h"
#include "model/placement.h"
#include "model/places.h"
#include "model/projection.h"
#include "model/rope.h"
#include "model/weights.h"

/* Buffers of a step in the backend's memory, in the order in which they are opened. */
enum step_buffers {
    BUFFER_X,
    BUFFER_H,
    BUFFER_QKV,
    BUFFER_Q,
    BUFFER_ATTENDED,
    BUFFER_GATE_UP,
    BUFFER_HIDDEN,
    BUFFER_PARTS,
    BUFFER_SQUARES,
    BUFFER_LOGITS,
    STEP_BUFFERS
};

struct model {
    const struct checkpoint *ck;
    const struct model_config *cfg;
    struct comm *comm;
    struct backend *be;
    struct shard shard;
    struct rope ropes[ROPES_MAX];
    int n_ropes;
    struct model_options options;
    struct model_weights weights;
    struct table_copy look_ahead_copy; /* of options.look_ahead, where the embedding has one */
    struct entry entry;                /* of a head with layers; zeroed: it is none */
    struct chain chain;                /* of a block drafter */
    struct places places;              /* of a head of places; zeroed: it is none */
    struct layer_weights *chosen; /* [n_layers] some of those of `like`; NULL: all, or own ones */
    struct attention_shape attention;
    int qkv_dim, attention_dim; /* (H + 2K) E and H E of this rank */

    uint16_t **kv; /* [n_layers] */
    size_t kv_bytes;

    struct step_buffer {
        void *data;
        size_t bytes;
    } buffers[STEP_BUFFERS];
    /* The buffers' contents, [max_tokens] rows each. */
    float *x;           /* [D] residual stream */
    uint16_t *h;        /* [D] normed */
    float *qkv;         /* [(H + 2K) E] */
    uint16_t *q;        /* [H E] */
    uint16_t *attended; /* [H E] */
    float *gate_up;     /* [2 F] */
    uint16_t *hidden;   /* [F] */
    float *parts;       /* [n_local] slices of [D] */
    float *squares;     /* [n_local] slices of the sums of q and of k; NULL without such norms */
    float *logits;      /* [max_rows, or places_rows][n_local * vocab_slice] */

    struct placement placed;   /* of the last step; this and the rest is host memory */
    int *row_index;            /* [max_rows] of the step's rows; with places, of the logits' */
    struct answer_item *items; /* [max_rows * n_local] */
    struct kept_features features;
    struct projection projection; /* that options.projection says */
    struct projection_key own_fc; /* of a head */
    int n_rows;
    int64_t collective_us;
};

/* From one row of logits to the next. */
static inline size_t model_head_stride(const struct model *m)
{
    return (size_t)m->shard.n_local * (size_t)m->shard.vocab_slice;
}
