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
    {
        .architecture = "MiMoForCausalLM",
        .model_type = "mimo",
        .kv_heads = 32,
        .sliding_window = 4096,
        .window_layers = 28,
        .qkv_bias = true,
        .is_read_only = true,
        .keys = {"attention_bias", "sliding_window", "use_sliding_window", "max_window_layers"},
    },
    {
        .architecture = "Gemma2ForCausalLM",
        .model_type = "gemma2",
        .kv_heads = 4,
        .head_dim = 256,
        .sliding_window = 4096,
        .tied_embeddings = true,
        .query_scalar = 256,
        .logit_softcap = 30,
        .attention_softcap = 50,
        .norms = NORMS_AROUND,
        .activation = ACTIVATION_GELU_TANH,
        .windows = WINDOWS_LISTED,
        .window_period = 2,
        .norm_offset = true,
        .scales_embedding = true,
        .is_read_only = true,
        .keys = {"attention_bias", "sliding_window", "sliding_window_size", "query_pre_attn_scalar",
                 "hidden_act", "hidden_activation", "final_logit_softcapping",
                 "attn_logit_softcapping"},
    },
    {
        .architecture = "Gemma3ForCausalLM",
        .model_type = "gemma3_text",
        .text_heads = 8,
        .text_vocab = 262208,
        .text_positions = 131072,
        .kv_heads = 4,
        .head_dim = 256,
        .sliding_window = 4096,
        .rope_theta = 1e6,
        .tied_embeddings = true,
        .query_scalar = 256,
        .qk_norm = true,
        .norms = NORMS_AROUND,
        .activation = ACTIVATION_GELU_TANH,
        .windows = WINDOWS_LISTED,
        .window_period = 6,
        .norm_offset = true,
        .scales_embedding = true,
        .ropes_differ = true,
        .window_theta = 1e4,
        .is_read_only = true,
        .keys = {"attention_bias", "sliding_window", "sliding_window_pattern",
                 "query_pre_attn_scalar", "hidden_act", "hidden_activation",
                 "final_logit_softcapping", "rope_local_base_freq"},
    },
    {
        .architecture = "Phi3ForCausalLM",
        .model_type = "phi3",
        .norm_eps = 1e-5,
        .original_positions = 4096,
        .tensors = TENSORS_FUSED,
        .is_long_rope = true,
        .is_read_only = true,
        .keys = {"sliding_window", "partial_rotary_factor"},
    },
    {
        .architecture = "MinistralForCausalLM",
        .model_type = "ministral",
        .kv_heads = 8,
        .sliding_window = 4096,
        .windows = WINDOWS_LISTED,
        .is_read_only = true,
        .keys = {"sliding_window"},
    },
    {
        .architecture = "Ministral3ForCausalLM",
        .model_type = "ministral3",
        .kv_heads = 8,
        .head_dim = 128,
        .norm_eps = 1e-5,
        .is_read_only = true,
        .keys = {"sliding_window", "llama_4_scaling_beta"},
    },
    {
        .architecture = "Olmo2ForCausalLM",
        .model_type = "olmo2",
        .norm_eps = 1e-5,
        .qk_norm_whole = true,
        .norms = NORMS_AFTER,
        .is_read_only = true,
    },
    {
        .architecture = "Olmo3ForCausalLM",
        .model_type = "olmo3",
        .sliding_window = 4096,
        .norm_eps = 1e-5,
        .rope_theta = 5e5,
        .qk_norm_whole = true,
        .norms = NORMS_AFTER,
        .windows = WINDOWS_LISTED,
        .window_period = 4,
        .ropes_differ = true,
        .is_read_only = true,
        .keys = {"sliding_window"},
    },
    {
        .architecture = "GraniteForCausalLM",
        .model_type = "granite",
        .attention_scale = 1,
        .is_read_only = true,
        .keys = {"attention_bias", "mlp_bias", "attention_multiplier", "embedding_multiplier",
                 "residual_multiplier", "logits_scaling"},
    },
    {
        .architecture = "GraniteMoeHybridForCausalLM",
        .model_type = "granitemoehybrid",
        .attention_scale = 1,
        .tensors = TENSORS_OF_SHARED_MLP,
        .is_read_only = true,
        .keys = {"attention_bias", "attention_multiplier", "embedding_multiplier",
                 "residual_multiplier", "logits_scaling", "num_local_experts",
                 "num_experts_per_tok", "shared_intermediate_size", "position_embedding_type",
                 "layers_block_type"},
    },
    {
        .architecture = "SmolLM3ForCausalLM",
        .model_type = "smollm3",
        .kv_heads = 4,
        .rope_theta = 2e6,
        .tied_embeddings = true,
        .norope_period = 4,
        .windows = WINDOWS_UNROTATED,
        .is_read_only = true,
        .keys = {"attention_bias", "mlp_bias", "sliding_window", "use_sliding_window",
                 "no_rope_layers", "no_rope_layer_interval", "pretraining_tp"},
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
