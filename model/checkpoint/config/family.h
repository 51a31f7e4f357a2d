/* The model families that are understood, one row each: what a family has although config.json does
 * not say so, and which keys of its own it has. Reading a config (config_parse.c), the named
 * synthetic shapes (synthetic_shapes.c) and writing a config (model/export/config.c) all use this
 * table, so that a family that needs no new operation is one row in family.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "model/checkpoint/config/config.h"

enum { FAMILY_KEYS_MAX = 12 };

/* How a family names the tensors of its layers. */
enum family_tensors {
    TENSORS_APART,        /* as Llama */
    TENSORS_FUSED,        /* qkv_proj, and gate_up_proj with the gate first */
    TENSORS_OF_SHARED_MLP /* those of an MLP beside experts: input_linear, gate first */
};

/* Which layers have a window. */
enum family_windows {
    WINDOWS_OF_KEYS,  /* all, or with use_sliding_window those that layer_types names, or those from
                         max_window_layers on */
    WINDOWS_LISTED,   /* those that layer_types names, and without such a list all but each
                         window_period-th */
    WINDOWS_UNROTATED /* with use_sliding_window those that layer_types names, and without such a
                         list those without rotation */
};

struct model_family {
    const char *architecture; /* the entry of "architectures": "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */

    /* Values that transformers' class takes where the key is missing; 0: see there. */
    int text_heads, text_vocab, text_positions; /* of a "text_config"; 0: they must be there */
    int kv_heads;                               /* num_key_value_heads; 0: as many as heads */
    int head_dim;                               /* 0: width / heads */
    int sliding_window;                         /* 0: none */
    int window_layers;                          /* max_window_layers */
    double norm_eps;                            /* rms_norm_eps; 0: 1e-6 */
    double rope_theta;                          /* 0: 10000 */
    bool tied_embeddings;                       /* tie_word_embeddings */
    int original_positions;   /* original_max_position_embeddings; 0: max_position_embeddings */
    double query_scalar;      /* query_pre_attn_scalar */
    double attention_scale;   /* attention_multiplier; 0: 1 / sqrt(head_dim) */
    double logit_softcap;     /* final_logit_softcapping; 0: none */
    double attention_softcap; /* attn_logit_softcapping; 0: none */
    /* no_rope_layer_interval: each such layer has no rotation; 0: all have one */
    int norope_period;

    /* Tensors that every model of the family has. */
    bool qkv_bias;      /* biases of q, k and v */
    bool qk_norm;       /* RMSNorm over each head of q and k before rope */
    bool qk_norm_whole; /* the same over all heads at once */

    /* The layers' structure. */
    enum norm_place norms;
    enum activation activation;
    enum family_tensors tensors;
    enum family_windows windows;
    int window_period;     /* 0: without a list all layers have the window */
    bool norm_offset;      /* the norms' weights are stored less 1 */
    bool scales_embedding; /* by the square root of its width */
    bool ropes_differ;     /* layers with a window have a rotation of their own */
    double window_theta;   /* of that one; 0: rope_theta */
    bool is_long_rope;     /* "su" and "yarn" are names of longrope */

    /* The configurations of the family are not written (model/export). */
    bool is_read_only;

    /* The keys that the family knows, of these: "attention_bias" (of q, k, v and o), "mlp_bias",
     * "sliding_window", "use_sliding_window" (without it the window is always on),
     * "max_window_layers" (config_window.c), and those of config_family.c, which are refused
     * otherwise where they switch something on. A bias that a family does not know is refused; a
     * key that it does not know is not written. */
    const char *keys[FAMILY_KEYS_MAX];
};

/* True if the key is one of the family's own. */
bool family_has_key(const struct model_family *family, const char *key);

/* The architectures, separated by ", ", for an error text. */
void family_list(char *text, size_t text_bytes);

/* NULL when the name is NULL or of no family. */
const struct model_family *family_of_architecture(const char *architecture);
const struct model_family *family_of_type(const char *model_type);
