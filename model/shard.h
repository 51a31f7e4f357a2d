/* Which part of a model a rank holds. The model is cut into S slices (config_slices), whatever T
 * is; rank r of T holds the S/T neighbouring slices from r*S/T on (docs/design.md section 4). */
#pragma once

#include "base/error.h"
#include "model/checkpoint/config/config.h"

struct shard {
    int rank, n_ranks, n_slices;
    int first_slice, n_local; /* this rank's slices */
    int first_head, n_heads;
    int first_kv_head, n_kv_heads; /* T > K: one head, which neighbours hold too */
    int first_ffn, ffn_dim;
    int slice_head_cols; /* columns of the attention output in a slice: H / S * E */
    int slice_ffn;       /* F / S */
    int n_vocab;         /* ids that exist; padded rows past them are masked */
    int vocab_slice;     /* columns of a vocabulary slice, rounded up to 64 */
};

/* n_vocab: ids that exist, at most the config's vocabulary. Errors: ERR_ARGUMENT T ranks cannot
 * share the model; the sentence names the values of T that can. */
int shard_init(struct shard *shard, const struct model_config *cfg, int n_vocab, int rank,
               int n_ranks, struct error *err);
