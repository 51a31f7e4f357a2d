/* The meaning of every key of a config.json for the result. A key that is read elsewhere or is
 * harmless passes; a switch that is known to change the result passes while it is off, and is
 * refused by name otherwise, because a wrong result without an error is hard to notice. Keys that
 * nobody knows are listed for a warning, unless their value switches nothing on. Null, which
 * transformers writes for "not set", always passes.
 *
 * A key that announces tensors of its own (biases, norms, experts, adapters) needs no row here,
 * because tensors that nobody reads are refused (unread.c). */
#include "model/checkpoint/config/config_keys.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of a key that do not change the result. */
enum demand {
    ANY_VALUE,
    MUST_BE_OFF, /* false, 0, or empty */
    MUST_BE_TRUE,
    MUST_BE_ONE,
    MUST_BE_SILU, /* the one activation that we have */
    MUST_BE_ROPE  /* the one encoding of positions */
};

struct switch_key {
    const char *key;
    enum demand demand;
};

/* Read by config_parse.c, config_rope.c and config_quant.c; keys of a family are in its row. */
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
    "compression_config",
    "quantization_config",
    "bos_token_id",
    "eos_token_id",
    "pard_token",
    "ptd_token_id",
    "mask_token_id",
};

/* Training, bookkeeping, other heads, and sampling defaults, which count only in
 * generation_config.json. The dtype of a tensor is in the safetensors file; the key here only
 * repeats it. */
static const char *const harmless_keys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_name_or_path",
    "_sliding_window_pattern", /* "layer_types" says it, too */
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_impl",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "flash_attention",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "fused_bias_fc",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "init_method",
    "init_std",
    "initializer_factor",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "license",
    "loss_type",
    "mamba_chunk_size", /* of layers that "layer_types" must not have */
    "mamba_conv_bias",
    "mamba_d_conv",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    "mamba_n_heads",
    "mamba_proj_bias",
    "max_length",
    "max_new_tokens",
    "max_seq_len",
    "max_seq_length",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "model_name",
    "name_or_path",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "normalization_function",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_router_logits",
    "output_scores",
    "pad_token",
    "pad_token_id",
    "pad_vocab_size_multiple",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "residual_in_fp32",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token",
    "sep_token_id",
    "seq_length",
    "spd_type", /* how a parallel draft was trained */
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "time_step_limit",
    "tokenizer_class",
    "tokenizer_file",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attention",
    "use_flash_attention_2",
    "use_flash_attn",
    "use_reentrant",
    "use_reentrant_checkpointing",
    "use_return_dict",
};

/* Switches that change the result when they are on. */
static const struct switch_key switches[] = {
    /* Scales and limits of logits, attention, embedding and residual stream. */
    {"attention_in_multiplier", MUST_BE_ONE},
    {"attention_logit_cap", MUST_BE_OFF},
    {"attention_multiplier", MUST_BE_OFF},
    {"attention_out_multiplier", MUST_BE_ONE},
    {"attention_scale", MUST_BE_OFF},
    {"attn_logit_softcap", MUST_BE_OFF},
    {"attn_logit_softcapping", MUST_BE_OFF},
    {"attn_output_multiplier", MUST_BE_ONE},
    {"attn_scale", MUST_BE_OFF},
    {"attn_soft_cap", MUST_BE_OFF},
    {"attn_temperature_tuning", MUST_BE_OFF},
    {"clip_qkv", MUST_BE_OFF},
    {"depth_scale", MUST_BE_OFF},
    {"dim_model_base", MUST_BE_OFF},
    {"embed_scale", MUST_BE_ONE},
    {"embedding_multiplier", MUST_BE_ONE},
    {"embedding_multiplier_scale", MUST_BE_OFF},
    {"embedding_scale", MUST_BE_ONE},
    {"final_logit_softcap", MUST_BE_OFF},
    {"final_logit_softcapping", MUST_BE_OFF},
    {"floor_scale", MUST_BE_OFF},
    {"key_multiplier", MUST_BE_ONE},
    {"llama_4_scaling", MUST_BE_OFF},
    {"llama_4_scaling_beta", MUST_BE_OFF},
    {"lm_head_multiplier", MUST_BE_ONE},
    {"logit_cap", MUST_BE_OFF},
    {"logit_scale", MUST_BE_ONE},
    {"logit_softcap", MUST_BE_OFF},
    {"logits_multiplier", MUST_BE_ONE},
    {"logits_scaling", MUST_BE_ONE},
    {"logits_soft_cap", MUST_BE_OFF},
    {"logits_softcap", MUST_BE_OFF},
    {"logn_attn", MUST_BE_OFF},
    {"mlp_multipliers", MUST_BE_OFF},
    {"mup_base_width", MUST_BE_OFF},
    {"mup_denominator", MUST_BE_OFF},
    {"mup_width_multiplier", MUST_BE_OFF},
    {"normalize_embeddings", MUST_BE_OFF},
    {"output_logit_cap", MUST_BE_OFF},
    {"output_multiplier_scale", MUST_BE_ONE},
    {"query_pre_attn_scalar", MUST_BE_OFF},
    {"residual_alpha", MUST_BE_OFF},
    {"residual_multiplier", MUST_BE_ONE},
    {"residual_scale", MUST_BE_ONE},
    {"scale_attn_by_inverse_layer_idx", MUST_BE_OFF},
    {"scale_attn_weights", MUST_BE_TRUE},
    {"scale_depth", MUST_BE_OFF},
    {"scale_emb", MUST_BE_ONE},
    {"scale_embedding", MUST_BE_OFF},
    {"scale_embeddings", MUST_BE_OFF},
    {"softmax_scale", MUST_BE_OFF},
    {"use_logn_attn", MUST_BE_OFF},
    {"use_mup", MUST_BE_OFF},
    {"width_scale", MUST_BE_ONE},
    /* Which positions a token sees, and in which layers. */
    {"add_cross_attention", MUST_BE_OFF},
    {"attention_sink", MUST_BE_OFF},
    {"add_full_attention_sink_bias", MUST_BE_OFF},
    {"add_swa_attention_sink_bias", MUST_BE_OFF},
    {"attention_chunk_size", MUST_BE_OFF},
    {"attention_sink_size", MUST_BE_OFF},
    {"attention_sinks", MUST_BE_OFF},
    {"attention_types", MUST_BE_OFF},
    {"attn_layer_indices", MUST_BE_OFF},
    {"attn_layer_offset", MUST_BE_OFF},
    {"attn_layer_period", MUST_BE_OFF},
    {"attn_type_list", MUST_BE_OFF},
    {"attn_window_size", MUST_BE_OFF},
    {"bidirectional", MUST_BE_OFF},
    {"causal", MUST_BE_TRUE},
    {"cross_attention_hidden_size", MUST_BE_OFF},
    {"cross_attention_layers", MUST_BE_OFF},
    {"dual_chunk_attention", MUST_BE_OFF},
    {"dual_chunk_attention_config", MUST_BE_OFF},
    {"full_attention_interval", MUST_BE_OFF},
    {"full_attn_idxs", MUST_BE_OFF},
    {"full_attn_mod", MUST_BE_ONE},
    {"global_attn_every_n_layers", MUST_BE_OFF},
    {"hybrid_layer_pattern", MUST_BE_OFF},
    {"hybrid_override_pattern", MUST_BE_OFF},
    {"interleave_sliding_window", MUST_BE_OFF},
    {"is_causal", MUST_BE_TRUE},
    {"is_decoder", ANY_VALUE}, /* transformers has it false for all of these */
    {"is_encoder_decoder", MUST_BE_OFF},
    {"layers_block_type", MUST_BE_OFF},
    {"local_attention", MUST_BE_OFF},
    {"non_causal", MUST_BE_OFF},
    {"num_nextn_predict_layers", ANY_VALUE}, /* extra layers that guess; the logits lack them */
    {"prefix_lm", MUST_BE_OFF},
    {"sliding_window_pattern", MUST_BE_OFF},
    {"sliding_window_size", MUST_BE_OFF},
    {"swa_layers", MUST_BE_OFF},
    {"tie_encoder_decoder", MUST_BE_OFF},
    {"use_attention_sinks", MUST_BE_OFF},
    {"use_bidirectional_attention", MUST_BE_OFF},
    {"window_attn_skip_freq", MUST_BE_OFF},
    {"window_size", MUST_BE_OFF},
    /* Positions. */
    {"alibi", MUST_BE_OFF},
    {"global_rope_theta", MUST_BE_OFF},
    {"interpolate_factor", MUST_BE_ONE},
    {"is_neox_style", MUST_BE_TRUE},
    {"local_rope_theta", MUST_BE_OFF},
    {"long_factor", MUST_BE_OFF},
    {"mrope_interleaved", MUST_BE_OFF},
    {"mrope_section", MUST_BE_OFF},
    {"no_rope_layer_interval", MUST_BE_OFF},
    {"no_rope_layers", MUST_BE_OFF},
    {"nope_layer_interval", MUST_BE_OFF},
    {"nope_layers", MUST_BE_OFF},
    {"ntk_alpha", MUST_BE_OFF},
    {"ntk_factor", MUST_BE_OFF},
    {"partial_rotary_factor", MUST_BE_ONE},
    {"position_embedding_type", MUST_BE_ROPE},
    {"position_interpolation", MUST_BE_OFF},
    {"position_scaling", MUST_BE_OFF},
    {"rope_alpha", MUST_BE_OFF},
    {"rope_base", MUST_BE_OFF},
    {"rope_factor", MUST_BE_OFF},
    {"rope_interleave", MUST_BE_OFF},
    {"rope_interleaved", MUST_BE_OFF},
    {"rope_local_base_freq", MUST_BE_OFF},
    {"rope_pct", MUST_BE_ONE},
    {"rope_percent", MUST_BE_ONE},
    {"rope_ratio", MUST_BE_ONE},
    {"rope_scaling_factor", MUST_BE_OFF},
    {"rope_scaling_type", MUST_BE_OFF},
    {"rope_type", MUST_BE_OFF},
    {"rotary", MUST_BE_TRUE},
    {"rotary_base", MUST_BE_OFF},
    {"rotary_dim", MUST_BE_OFF},
    {"rotary_emb_base", MUST_BE_OFF},
    {"rotary_emb_fraction", MUST_BE_ONE},
    {"rotary_emb_scale_base", MUST_BE_OFF},
    {"rotary_embedding_base", MUST_BE_OFF},
    {"rotary_interleaved", MUST_BE_OFF},
    {"rotary_pct", MUST_BE_ONE},
    {"short_factor", MUST_BE_OFF},
    {"swa_rope_theta", MUST_BE_OFF},
    {"use_alibi", MUST_BE_OFF},
    {"use_dynamic_ntk", MUST_BE_OFF},
    {"use_interleaved_rope", MUST_BE_OFF},
    {"use_mrope", MUST_BE_OFF},
    {"use_nope", MUST_BE_OFF},
    {"use_ntk", MUST_BE_OFF},
    {"use_rope", MUST_BE_TRUE},
    {"use_rotary", MUST_BE_TRUE},
    {"use_rotary_embedding", MUST_BE_TRUE},
    {"use_rotary_embeddings", MUST_BE_TRUE},
    /* Norms, activations and the order of a layer. */
    {"act_fn", MUST_BE_SILU},
    {"activation", MUST_BE_SILU},
    {"activation_clamp", MUST_BE_OFF},
    {"activation_fn", MUST_BE_SILU},
    {"activation_function", MUST_BE_SILU},
    {"activation_limit", MUST_BE_OFF},
    {"activation_type", MUST_BE_SILU},
    {"add_unit_offset", MUST_BE_OFF},
    {"apply_layernorm_1p", MUST_BE_OFF},
    {"apply_residual_connection_post_layernorm", MUST_BE_OFF},
    {"ffn_act", MUST_BE_SILU},
    {"hidden_act", MUST_BE_SILU},
    {"hidden_activation", MUST_BE_SILU},
    {"mlp_activation", MUST_BE_SILU},
    {"norm_add_unit_offset", MUST_BE_OFF},
    {"norm_after", MUST_BE_OFF},
    {"norm_reorder", MUST_BE_OFF},
    {"parallel_attn", MUST_BE_OFF},
    {"parallel_block", MUST_BE_OFF},
    {"parallel_residual", MUST_BE_OFF},
    {"post_norm", MUST_BE_OFF},
    {"qk_layernorm", MUST_BE_OFF},
    {"qk_norm", MUST_BE_OFF},
    {"query_key_norm", MUST_BE_OFF},
    {"rms_norm", MUST_BE_TRUE},
    {"rms_norm_unit_offset", MUST_BE_OFF},
    {"sandwich_norm", MUST_BE_OFF},
    {"swiglu_clamp_limit", MUST_BE_OFF},
    {"swiglu_limit", MUST_BE_OFF},
    {"use_parallel_residual", MUST_BE_OFF},
    {"use_post_norm", MUST_BE_OFF},
    {"use_qk_layernorm", MUST_BE_OFF},
    {"use_qk_norm", MUST_BE_OFF},
    {"use_rms_norm", MUST_BE_TRUE},
    {"use_sandwich_norm", MUST_BE_OFF},
    {"use_scaled_rope", MUST_BE_OFF},
    {"zero_centered_gamma", MUST_BE_OFF},
    /* Layers that differ, are shared, left out or repeated; gates; experts. */
    {"attention_output_gate", MUST_BE_OFF},
    {"attn_output_gate", MUST_BE_OFF},
    {"block_configs", MUST_BE_OFF},
    {"cla_share_factor", MUST_BE_OFF},
    {"decoder_sparse_step", MUST_BE_OFF},
    {"elementwise_attn_output_gate", MUST_BE_OFF},
    {"exit_layer", MUST_BE_OFF},
    {"experts_per_token", MUST_BE_OFF},
    {"first_k_dense_replace", MUST_BE_OFF},
    {"gated_attention", MUST_BE_OFF},
    {"headwise_attn_output_gate", MUST_BE_OFF},
    {"intermediate_sizes", MUST_BE_OFF},
    {"kv_sharing", MUST_BE_OFF},
    {"layer_configs", MUST_BE_OFF},
    {"layer_sharing", MUST_BE_OFF},
    {"mean_recurrence", MUST_BE_OFF},
    {"mlp_only_layers", MUST_BE_OFF},
    {"moe_intermediate_size", MUST_BE_OFF},
    {"moe_layers", MUST_BE_OFF},
    {"moe_num_experts", MUST_BE_OFF},
    {"n_routed_experts", MUST_BE_OFF},
    {"n_shared_experts", MUST_BE_OFF},
    {"num_experts", MUST_BE_OFF},
    {"num_experts_per_tok", MUST_BE_OFF},
    {"num_kv_shared_layers", MUST_BE_OFF},
    {"num_local_experts", MUST_BE_OFF},
    {"num_loops", MUST_BE_OFF},
    {"num_moe_experts", MUST_BE_OFF},
    {"num_recurrence", MUST_BE_OFF},
    {"num_shared_experts", MUST_BE_OFF},
    {"per_layer_config", MUST_BE_OFF},
    {"pretraining_tp", MUST_BE_ONE},
    {"pruned_heads", MUST_BE_OFF},
    {"repeat_layers", MUST_BE_OFF},
    {"shared_expert_intermediate_size", MUST_BE_OFF},
    {"skip_layers", MUST_BE_OFF},
    {"total_ut_steps", MUST_BE_OFF},
    {"use_attention_gate", MUST_BE_OFF},
    {"use_cla", MUST_BE_OFF},
    {"use_value_residual", MUST_BE_OFF},
    {"value_residual", MUST_BE_OFF},
    /* Weights in another form, parts of other models. */
    {"adapters", MUST_BE_OFF},
    {"audio_config", MUST_BE_OFF},
    {"bit_net", MUST_BE_OFF},
    {"draft_vocab_size", MUST_BE_OFF},
    {"eagle_config", MUST_BE_OFF},
    {"input_bits", MUST_BE_OFF},
    {"language_config", MUST_BE_OFF},
    {"llm_config", MUST_BE_OFF},
    {"load_in_4bit", MUST_BE_OFF},
    {"load_in_8bit", MUST_BE_OFF},
    {"lora_config", MUST_BE_OFF},
    {"peft_config", MUST_BE_OFF},
    {"quant_config", MUST_BE_OFF},
    {"quant_method", MUST_BE_OFF},
    {"quantization", MUST_BE_OFF},
    {"quantize", MUST_BE_OFF},
    {"quantized", MUST_BE_OFF},
    {"text_config", MUST_BE_OFF},
    {"torchao_config", MUST_BE_OFF},
    {"vision_config", MUST_BE_OFF},
    {"weight_bits", MUST_BE_OFF},
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

/* The two names of one function, and that of the MLP around it. */
static bool is_silu(const json_t *value)
{
    const char *name = json_string_value(value);
    return name &&
           (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0 || strcmp(name, "swiglu") == 0);
}

static bool is_rope(const json_t *value)
{
    const char *name = json_string_value(value);
    return name && (strcmp(name, "rope") == 0 || strcmp(name, "rotary") == 0);
}

static bool number_is(const json_t *value, double wanted)
{
    return json_is_number(value) && json_number_value(value) == wanted;
}

/* True if the value switches nothing on. */
static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || number_is(value, 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static bool is_met(enum demand demand, const json_t *value)
{
    switch (demand) {
    case ANY_VALUE:
        return true;
    case MUST_BE_OFF:
        return is_off(value);
    case MUST_BE_TRUE:
        return json_is_true(value);
    case MUST_BE_ONE:
        return number_is(value, 1);
    case MUST_BE_SILU:
        return is_silu(value);
    case MUST_BE_ROPE:
        return is_rope(value);
    }
    return false;
}

int config_keys_check(json_t *root, const struct model_family *family, const char *origin,
                      struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        const struct switch_key *found = find_switch(key);
        if (json_is_null(value) || !found || is_met(found->demand, value)) continue;
        if (family_has_key(family, key)) continue;
        return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s is not supported", origin, key,
                         config_keys_show(value, shown));
    }
    return 0;
}

/* Appends the key in quotes, as far as there is room. */
static void list_key(char text[CONFIG_UNKNOWN_BYTES], const char *key)
{
    size_t len = strlen(text);
    snprintf(text + len, CONFIG_UNKNOWN_BYTES - len, "%s\"%.40s\"", len ? ", " : "", key);
}

int config_keys_unknown(json_t *root, const struct model_family *family,
                        char text[CONFIG_UNKNOWN_BYTES])
{
    enum { SHOWN = 5 };
    int n = 0;
    text[0] = '\0';
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        if (is_off(json_object_iter_value(at)) || is_known(key) || find_switch(key)) continue;
        if (family_has_key(family, key)) continue;
        if (n++ < SHOWN) list_key(text, key);
    }
    if (n > SHOWN) {
        size_t len = strlen(text);
        snprintf(text + len, CONFIG_UNKNOWN_BYTES - len, " and %d more", n - SHOWN);
    }
    return n;
}
