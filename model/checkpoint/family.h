/* The model families that are understood, one row each: what a family has without a key of config.json
 * saying so, and which keys it listens to. Reading a config (config_parse.c), the named synthetic shapes
 * (synthetic_shapes.c) and writing a config (model/export/config.c) all go by this table, so that a new
 * family that needs no new operation is one row here. */
#pragma once

#include <stdbool.h>

enum { FAMILY_KEYS_MAX = 8 };

struct model_family {
    const char *architecture; /* the entry of "architectures": "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */

    /* Values that transformers' class takes where the key is missing; 0: see there. */
    int kv_heads;       /* num_key_value_heads; 0: as many as heads */
    int head_dim;       /* 0: width / heads */
    int sliding_window; /* 0: none */
    int window_layers;  /* max_window_layers */

    /* Tensors that every model of the family has. */
    bool qkv_bias; /* biases of q, k and v */
    bool qk_norm;  /* RMSNorm over each head of q and k before rope */

    /* Keys that other families have not: "attention_bias" (of q, k, v and o), "mlp_bias",
     * "sliding_window", "use_sliding_window" (turns the window on, from "max_window_layers" on). A family
     * without a bias key refuses it when it is on; a key that a family lacks is not written for it. */
    const char *keys[FAMILY_KEYS_MAX];
};

/* Whether the family listens to the key. */
bool family_has_key(const struct model_family *family, const char *key);

/* NULL when the name is NULL or of no family. */
const struct model_family *family_of_architecture(const char *architecture);
const struct model_family *family_of_type(const char *model_type);
