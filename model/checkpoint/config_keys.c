/* What every key of a config.json means for the result. A key that is read elsewhere or is harmless
 * passes; a switch passes while it is off; everything else is refused by name, because a wrong
 * result without an error is hard to notice. Null, which transformers writes for "not set", always
 * passes. */
#include "model/checkpoint/config_keys.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a key must be so that it does not change the result. */
enum demand {
    ANY_VALUE,
    MUST_BE_FALSE,
    MUST_BE_TRUE,
    MUST_BE_ZERO,
    MUST_BE_ONE,
    MUST_BE_EMPTY, /* an empty object or list */
    MUST_BE_SILU,  /* the one activation that we have */
    MUST_BE_NULL   /* the key may be there, but not set */
};

struct switch_key {
    const char *key;
    enum demand demand;
};

/* Read by config_parse.c, config_rope.c and config_quant.c. */
static const char *const read_keys[] = {
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "quantization_config",
    "bos_token_id",
    "eos_token_id",
};

/* Training, bookkeeping, other heads, and sampling defaults, which each request states itself. The
 * dtype of a tensor is in the safetensors file; the key here only repeats it. */
static const char *const harmless_keys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_name_or_path",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

/* Switches that change the result when they are on. */
static const struct switch_key switches[] = {
    {"add_cross_attention", MUST_BE_FALSE},
    {"attention_multiplier", MUST_BE_NULL},
    {"attn_logit_softcapping", MUST_BE_NULL},
    {"clip_qkv", MUST_BE_NULL},
    {"compression_config", MUST_BE_NULL},
    {"cross_attention_hidden_size", MUST_BE_NULL},
    {"embedding_multiplier", MUST_BE_ONE},
    {"embedding_scale", MUST_BE_ONE},
    {"final_logit_softcapping", MUST_BE_NULL},
    {"hidden_act", MUST_BE_SILU},
    {"hidden_activation", MUST_BE_SILU},
    {"is_causal", MUST_BE_TRUE},
    {"is_decoder", ANY_VALUE}, /* transformers has it false for all of these */
    {"is_encoder_decoder", MUST_BE_FALSE},
    {"logit_scale", MUST_BE_ONE},
    {"logits_scaling", MUST_BE_ONE},
    {"moe_intermediate_size", MUST_BE_NULL},
    {"num_experts", MUST_BE_ZERO},
    {"num_experts_per_tok", MUST_BE_ZERO},
    {"num_local_experts", MUST_BE_ZERO},
    {"num_nextn_predict_layers", ANY_VALUE}, /* extra layers that guess; the logits lack them */
    {"partial_rotary_factor", MUST_BE_ONE},
    {"per_layer_config", MUST_BE_NULL},
    {"pretraining_tp", MUST_BE_ONE},
    {"pruned_heads", MUST_BE_EMPTY},
    {"qk_layernorm", MUST_BE_FALSE},
    {"query_pre_attn_scalar", MUST_BE_NULL},
    {"residual_multiplier", MUST_BE_ONE},
    {"rope_interleaved", MUST_BE_FALSE},
    {"tie_encoder_decoder", MUST_BE_FALSE},
    {"use_mrope", MUST_BE_FALSE},
    {"use_qk_norm", MUST_BE_FALSE},
};

const char *config_keys_show(const json_t *value, char text[CONFIG_VALUE_BYTES])
{
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (!dump) {
        snprintf(text, CONFIG_VALUE_BYTES, "%s", "nothing");
    } else if (strlen(dump) < CONFIG_VALUE_BYTES) {
        snprintf(text, CONFIG_VALUE_BYTES, "%s", dump);
    } else {
        snprintf(text, CONFIG_VALUE_BYTES, "%.80s...", dump);
    }
    free(dump);
    return text;
}

static bool list_has(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], key) == 0) return true;
    }
    return false;
}

static bool is_known(const char *key)
{
    return list_has(read_keys, sizeof read_keys / sizeof *read_keys, key) ||
           list_has(harmless_keys, sizeof harmless_keys / sizeof *harmless_keys, key);
}

static const struct switch_key *find_switch(const char *key)
{
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(switches[i].key, key) == 0) return &switches[i];
    }
    return NULL;
}

static bool is_silu(const json_t *value)
{
    const char *name = json_string_value(value);
    return name && (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0); /* one function */
}

static bool number_is(const json_t *value, double wanted)
{
    return json_is_number(value) && json_number_value(value) == wanted;
}

static bool is_met(enum demand demand, const json_t *value)
{
    switch (demand) {
    case ANY_VALUE:
        return true;
    case MUST_BE_FALSE:
        return json_is_false(value);
    case MUST_BE_TRUE:
        return json_is_true(value);
    case MUST_BE_ZERO:
        return number_is(value, 0);
    case MUST_BE_ONE:
        return number_is(value, 1);
    case MUST_BE_EMPTY:
        return json_object_size(value) == 0 && json_array_size(value) == 0 &&
               (json_is_object(value) || json_is_array(value));
    case MUST_BE_SILU:
        return is_silu(value);
    case MUST_BE_NULL:
        break;
    }
    return false;
}

int config_keys_check(json_t *root, const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        if (json_is_null(value) || is_known(key)) continue;
        const struct switch_key *found = find_switch(key);
        if (found && is_met(found->demand, value)) continue;
        if (found) {
            return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s is not supported", origin, key,
                             config_keys_show(value, shown));
        }
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: unknown key \"%.64s\" = %s; it might change the result", origin, key,
                         config_keys_show(value, shown));
    }
    return 0;
}
