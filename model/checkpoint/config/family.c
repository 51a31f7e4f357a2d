/* The table of model families. Defaults are those of the configuration classes of transformers. */
#include "model/checkpoint/config/family.h"

#include <stdio.h>
#include <string.h>

static const struct model_family families[] = {
    {
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .keys = {"attention_bias", "mlp_bias"},
    },
    {
        .architecture = "MistralForCausalLM",
        .model_type = "mistral",
        .kv_heads = 8,
        .sliding_window = 4096,
        .keys = {"sliding_window"},
    },
    {
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .kv_heads = 32,
        .sliding_window = 4096,
        .window_layers = 28,
        .qkv_bias = true,
        .keys = {"sliding_window", "use_sliding_window", "max_window_layers"},
    },
    {
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .kv_heads = 32,
        .head_dim = 128,
        .sliding_window = 4096,
        .window_layers = 28,
        .qk_norm = true,
        .keys = {"attention_bias", "sliding_window", "use_sliding_window", "max_window_layers"},
    },
};
enum { N_FAMILIES = sizeof families / sizeof *families };

bool family_has_key(const struct model_family *family, const char *key)
{
    for (int i = 0; i < FAMILY_KEYS_MAX && family->keys[i]; i++) {
        if (strcmp(key, family->keys[i]) == 0) return true;
    }
    return false;
}

void family_list(char *text, size_t text_bytes)
{
    size_t len = 0;
    for (int i = 0; i < N_FAMILIES && len < text_bytes; i++) {
        int n =
            snprintf(text + len, text_bytes - len, "%s%s", i ? ", " : "", families[i].architecture);
        len += (size_t)n;
    }
}

const struct model_family *family_of_architecture(const char *architecture)
{
    for (int i = 0; architecture && i < N_FAMILIES; i++) {
        if (strcmp(architecture, families[i].architecture) == 0) return &families[i];
    }
    return NULL;
}

const struct model_family *family_of_type(const char *model_type)
{
    for (int i = 0; model_type && i < N_FAMILIES; i++) {
        if (strcmp(model_type, families[i].model_type) == 0) return &families[i];
    }
    return NULL;
}
