/* What config.json says of a model: the families Llama 2/3, Mistral and Qwen 2/2.5/3 (dense), which
 * are the rows of family.c. A new field of the structs here needs a row in config_fields.c too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/end_ids.h"
#include "model/numerics/quant.h"

enum { CONFIG_NAME_BYTES = 64 };

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope_config {
    enum rope_kind kind;
    double theta;
    double factor;                            /* all but default */
    double low_freq_factor, high_freq_factor; /* llama3 */
    int original_max_positions;               /* llama3, yarn */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn: multiplies cos and sin; resolved, never 0 */
    bool truncate;                            /* yarn: round the correction range */
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
    struct rope_config rope;
    bool tied_embeddings;
    bool qkv_bias; /* Qwen 2; llama's attention_bias sets o_bias too */
    bool o_bias;
    bool mlp_bias;
    bool qk_norm;            /* Qwen 3: RMSNorm over each head before rope */
    int sliding_window;      /* 0 = none; longer contexts are refused, not approximated */
    enum weight_form stored; /* the matrices of the layers; bf16 stands for f16 and f32 too */
    int stored_group;        /* k that share a scale; a multiple of 32, 0 with bf16 */
    int bos_id;              /* -1 = none */
    struct end_ids ends;     /* eos_token_id of config.json and of generation_config.json */
};

/* The number of slices S that the sums of row-parallel matrices are cut into: the largest power of
 * two <= 8 that divides the heads and half the FFN width, with KV heads % S = 0 or S % KV heads = 0
 * (docs/design.md section 4). At least 1. */
int config_slices(const struct model_config *cfg);

/* The most positions a sequence may have: max_positions, or the sliding window if that is less. */
int config_context_limit(const struct model_config *cfg);
