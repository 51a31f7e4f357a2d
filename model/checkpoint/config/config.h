/* The contents of config.json: the families that are the rows of family.c. Zero is what most models
 * have of a property that few have, so that the forward pass needs no branch on a family. A new
 * field of the structs here needs a row in config_fields.c too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/end_ids.h"
#include "base/limits.h"
#include "model/numerics/quant.h"

enum {
    CONFIG_NAME_BYTES = 64,
    LAYERS_MAX = 4096,
    LAYER_KINDS_MAX = 8,
    ROPES_MAX = 2,
    ROPE_NONE = -1
};

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG };

/* Where a layer has RMSNorms: before attention and the MLP, of what they add, or both. */
enum norm_place { NORMS_BEFORE, NORMS_AROUND, NORMS_AFTER };

/* The function of the gate that the MLP multiplies with. */
enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

struct rope_config {
    enum rope_kind kind;
    double theta;
    double factor;                            /* all but default */
    double low_freq_factor, high_freq_factor; /* llama3 */
    int original_max_positions;               /* llama3, yarn */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn: multiplies cos and sin; resolved, never 0 */
    bool truncate;                            /* yarn: round the correction range */
    int rotary_dim;                           /* leading elements of a head that rotate; 0: all */
    float divisors[HEAD_DIM_MAX / 2];         /* long: of each frequency, those that hold here */
};

/* The properties in which layers of one model may differ. */
struct layer_kind {
    int window; /* a query at position p sees the keys at p - window + 1 .. p; 0: all up to p */
    int rope;   /* index into ropes; ROPE_NONE: the layer knows no positions */
    float attention_scale;   /* of the scores; 0: 1 / sqrt(E) */
    float attention_softcap; /* c: a scaled score s becomes c tanh(s / c); 0: it stays */
    float residual_scale;    /* of what attention and the MLP add to the residual stream; 0: 1 */
};

/* Layer i is of kinds[of[i]]. Kinds have the order in which layers have them first, and what no
 * layer has is zero, so that equal models have equal tables. */
struct layer_table {
    struct layer_kind kinds[LAYER_KINDS_MAX];
    uint8_t of[LAYERS_MAX];
};

/* How generation_config.json wants texts to be sampled; CONFIG_OPEN where it does not say. */
enum { CONFIG_OPEN = -1 };

struct config_sampling {
    float temperature, top_p, min_p, repetition_penalty;
    int top_k; /* 0 = all */
};

struct model_config {
    char architecture[CONFIG_NAME_BYTES]; /* "LlamaForCausalLM"; a row of family.c */
    int n_layers;
    int dim;        /* D */
    int n_heads;    /* H */
    int n_kv_heads; /* K */
    int head_dim;   /* E, even */
    int ffn_dim;    /* F */
    int vocab_size; /* V, rows of the embedding */
    int max_positions;
    float norm_eps;
    struct rope_config ropes[ROPES_MAX]; /* the layers' kinds say which ones are used */
    bool tied_embeddings;
    bool qkv_bias; /* Qwen 2; llama's attention_bias sets o_bias too */
    bool o_bias;
    bool mlp_bias;
    bool qk_norm;       /* Qwen 3: RMSNorm over each head before rope */
    bool qk_norm_whole; /* OLMo 2: over all heads of q, or of k, at once */
    bool norm_offset;   /* Gemma: stored are the norms' weights less 1 */
    enum norm_place norms;
    enum activation activation;
    float embedding_scale; /* multiplies the rows of the embedding; 0: 1 */
    float logit_scale;     /* multiplies the logits; 0: 1 */
    float logit_softcap;   /* c: a scaled logit l becomes c tanh(l / c); 0: it stays */
    /* Ministral 3: q of position p is multiplied by 1 + query_beta ln(1 + floor(p / query_period)).
     * query_period 0: it stays. */
    float query_beta;
    int query_period;
    struct layer_table layers;
    enum weight_form stored; /* the matrices of the layers; bf16 also for f16 and f32 */
    int stored_group;        /* k that share a scale; a multiple of 32, 0 with bf16 */
    int bos_id;              /* -1 = none */
    struct end_ids ends;     /* eos_token_id of config.json and of generation_config.json */
    struct config_sampling sampling;
};

/* The number of slices S that the sums of row-parallel matrices are cut into: the largest of 8, 4
 * and 2 that divides the heads and half the FFN width, with KV heads % S = 0 or S % KV heads = 0,
 * and which cuts no group of a model that is stored in blocks; where there is none, the largest of
 * 7, 6, 5 and 3 (docs/design.md section 4). At least 1. */
int config_slices(const struct model_config *cfg);

/* True if so many ranks can share the model: T divides S, and the ranks hold whole kv heads or one
 * each (of S = 6 with 3 kv heads, not 2). */
bool config_takes_ranks(const struct model_config *cfg, int n_ranks);

/* Writes the numbers of ranks that can, "1, 3" with ", " between them; returns text. */
char *config_rank_list(const struct model_config *cfg, const char *between, char *text,
                       size_t size);

/* Returns the kind of layer `layer`; valid as long as cfg. */
const struct layer_kind *config_layer(const struct model_config *cfg, int layer);

/* The number of rotation tables that the layers use: the first ones of ropes, at least 1. */
int config_n_ropes(const struct model_config *cfg);

/* Returns the scale of the layers' scores: 1 / sqrt(E) where the kind has 0. */
float config_attention_scale(const struct model_config *cfg, const struct layer_kind *kind);

/* The most positions that any layer sees through its window; 0: some layer sees all that there can
 * be. */
int config_window(const struct model_config *cfg);

/* Says what `layer` of a table has of its own, for one layer after the other from 0 on; the table
 * was zeroed before. There are at most LAYER_KINDS_MAX kinds. */
void layer_table_set(struct layer_table *table, int layer, const struct layer_kind *kind);

/* Makes cfg a model of n layers, of which layer i has what layer layers[i] had. NULL: what layer i
 * had, and where there are more layers than before, they go on from the first one again. */
void config_choose_layers(struct model_config *cfg, const int *layers, int n);
