/* The model families that are understood, one row each: what a family has although config.json does
 * not say so, and which keys of its own it has. Reading a config (config_parse.c), the named
 * synthetic shapes (synthetic_shapes.c) and writing a config (model/export/config.c) all use this
 * table, so that a family that needs no new operation is one row in family.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { FAMILY_KEYS_MAX = 8 };

struct model_family {
    const char *architecture; /* the entry of "architectures": "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */

    /* Values that transformers' class takes where the key is missing; 0: see there. */
    int kv_heads;         /* num_key_value_heads; 0: as many as heads */
    int head_dim;         /* 0: width / heads */
    int sliding_window;   /* 0: none */
    int window_layers;    /* max_window_layers */
    double norm_eps;      /* rms_norm_eps; 0: 1e-6 */
    bool tied_embeddings; /* tie_word_embeddings */

    /* Tensors that every model of the family has. */
    bool qkv_bias; /* biases of q, k and v */
    bool qk_norm;  /* RMSNorm over each head of q and k before rope */

    /* The keys that the family knows, of these: "attention_bias" (of q, k, v and o), "mlp_bias",
     * "sliding_window", "use_sliding_window" (without it the window is always on),
     * "max_window_layers" (config_window.c). A bias that a family does not know is refused; a key
     * that it does not know is not written. */
    const char *keys[FAMILY_KEYS_MAX];
};

/* True if the key is one of the family's own. */
bool family_has_key(const struct model_family *family, const char *key);

/* The architectures, separated by ", ", for an error text. */
void family_list(char *text, size_t text_bytes);

/* NULL when the name is NULL or of no family. */
const struct model_family *family_of_architecture(const char *architecture);
const struct model_family *family_of_type(const char *model_type);
