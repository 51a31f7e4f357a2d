/* One rank's weights in its backend's layout. Names and shapes are those of Hugging Face's
 * Llama. */
#pragma once

#include "base/limits.h"
#include "model/backend/backend.h"
#include "model/backend/pack_cache.h"
#include "model/digest.h"
#include "model/loader.h"
#include "model/shard.h"
#include "model/weights_entry.h"
#include "model/weights_places.h"

struct layer_weights {
    struct vector attention_norm, ffn_norm;           /* [D] before attention, before the MLP */
    struct vector post_attention_norm, post_ffn_norm; /* [D] of what these add */
    struct matrix qkv;                                /* D -> (H + 2K) E; of block drafters H E */
    struct matrix kv;                                 /* D -> 2K E of block drafters */
    struct vector qkv_bias;                           /* [(H + 2K) E] */
    struct vector q_norm, k_norm; /* [E]; [H E] and [K E] where they norm all heads */
    struct matrix *o;             /* [n_local] slice: H/S E -> D */
    struct vector o_bias;         /* [D]; added once, after the sum over ranks */
    struct matrix gate_up;        /* D -> 2 F */
    struct vector gate_up_bias;   /* [2 F] */
    struct matrix *down;          /* [n_local] slice: F/S -> D */
    struct vector down_bias;      /* [D] */
};

struct model_weights {
    int n_layers, n_local;
    struct layer_weights *layers;
    struct entry_weights entry;   /* of a head with layers */
    struct places_weights places; /* of a head of places */
    struct weight embedding;      /* [V][D] read by row, never packed */
    struct table_copy embedding_copy;
    struct vector final_norm;
    struct matrix
        head;     /* D -> n_local * vocab_slice; column i is row head_ids[i] where ids are chosen */
    size_t bytes; /* packed, for the log */
    struct pack_cache *cache;                 /* NULL: packed weights are not kept on disk */
    struct digest_table digests;              /* of what was read */
    struct digest_table witnessed[RANKS_MAX]; /* of what rank r reads; zeroed: not asked for */
};

struct weights_wish {
    /* The [shard->n_vocab] rows that the head consists of, for a rank that holds every slice; NULL:
     * the rows of the shard. */
    const int32_t *head_ids;
    /* Bit r: what rank r reads is digested in this rank's copy of the model as well. */
    unsigned witnessed;
};

/* Errors: ERR_UNSUPPORTED the model is stored in a form that the backend does not compute in. */
int weights_check_form(const struct checkpoint *ck, const struct backend *be, struct error *err);

/* The checkpoint's pages are released layer by layer, so that the process never holds the weights
 * twice. Keeps be and the checkpoint's mapping (the embedding). Errors: as checkpoint_find;
 * ERR_NO_MEMORY; ERR_UNSUPPORTED a width that the kernels do not take. */
int weights_open(struct model_weights *w, const struct checkpoint *ck, const struct shard *shard,
                 const struct weights_wish *wish, struct backend *be, struct error *err);
void weights_close(struct model_weights *w, struct backend *be);
