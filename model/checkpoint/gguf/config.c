/* The fields of a config that are one key of the metadata each, and those that follow from the
 * tensors. */
#include "model/checkpoint/gguf/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/gguf/internal.h"

enum { ANY_ARCH = ~0, LAYERS_MOST = 65535 /* lists of layers are written */ };

enum field_kind { FIELD_INT, FIELD_NUMBER };

static const struct {
    const char *tail; /* of the metadata's key, after the architecture */
    const char *key;  /* of config.json */
    enum field_kind kind;
    bool is_demanded;
    int archs; /* those that have it, one bit each */
} fields[] = {
    {"block_count", "num_hidden_layers", FIELD_INT, true, ANY_ARCH},
    {"context_length", "max_position_embeddings", FIELD_INT, true, ANY_ARCH},
    {"embedding_length", "hidden_size", FIELD_INT, true, ANY_ARCH},
    {"feed_forward_length", "intermediate_size", FIELD_INT, true, ANY_ARCH},
    {"attention.head_count", "num_attention_heads", FIELD_INT, true, ANY_ARCH},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", FIELD_NUMBER, true, ANY_ARCH},
    {"attention.scale", "attention_multiplier", FIELD_NUMBER, true, 1 << GGUF_ARCH_GRANITE},
    {"embedding_scale", "embedding_multiplier", FIELD_NUMBER, true, 1 << GGUF_ARCH_GRANITE},
    {"residual_scale", "residual_multiplier", FIELD_NUMBER, true, 1 << GGUF_ARCH_GRANITE},
    {"logit_scale", "logits_scaling", FIELD_NUMBER, true, 1 << GGUF_ARCH_GRANITE},
    {"attn_logit_softcapping", "attn_logit_softcapping", FIELD_NUMBER, false,
     1 << GGUF_ARCH_GEMMA2},
    {"final_logit_softcapping", "final_logit_softcapping", FIELD_NUMBER, false,
     1 << GGUF_ARCH_GEMMA2 | 1 << GGUF_ARCH_GEMMA3},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* Keys of the architecture that are read elsewhere, or change nothing. */
static const char *const other_keys[] = {
    "vocab_size",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.causal",
    "attention.layer_norm_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "expert_count",
    "expert_used_count",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "tensor_data_layout",
};

/* Names of classes in a folder of the same model, by gguf_arch_id. */
static const struct {
    const char *architecture, *model_type;
} classes[] = {
    [GGUF_ARCH_LLAMA] = {"LlamaForCausalLM", "llama"},
    [GGUF_ARCH_MISTRAL] = {"MistralForCausalLM", "mistral"},
    [GGUF_ARCH_MISTRAL3] = {"MistralForCausalLM", "mistral"},
    [GGUF_ARCH_QWEN2] = {"Qwen2ForCausalLM", "qwen2"},
    [GGUF_ARCH_QWEN3] = {"Qwen3ForCausalLM", "qwen3"},
    [GGUF_ARCH_GEMMA2] = {"Gemma2ForCausalLM", "gemma2"},
    [GGUF_ARCH_GEMMA3] = {"Gemma3ForCausalLM", "gemma3_text"},
    [GGUF_ARCH_PHI3] = {"Phi3ForCausalLM", "phi3"},
    [GGUF_ARCH_OLMO2] = {"Olmo2ForCausalLM", "olmo2"},
    [GGUF_ARCH_GRANITE] = {"GraniteForCausalLM", "granite"},
    [GGUF_ARCH_SMOLLM3] = {"SmolLM3ForCausalLM", "smollm3"},
};

static int lacks(const struct gguf_writing *w, const char *key, struct error *err)
{
    return error_set(err, ERR_FORMAT, "%s lacks \"%s\"", gguf_origin(w->gguf), key);
}

static int write_field(const struct gguf_writing *w, int i, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    double number = 0;
    int value = 0, rc = 0;
    if (!(fields[i].archs >> w->arch->id & 1)) return 0;
    if (!gguf_has(w->gguf, gguf_arch_key(w, fields[i].tail, key))) {
        return fields[i].is_demanded ? lacks(w, key, err) : 0;
    }
    if (fields[i].kind == FIELD_INT) {
        bool is_layers = strcmp(fields[i].tail, "block_count") == 0;
        int most = is_layers ? LAYERS_MOST : GGUF_INT_MOST;
        TRY(gguf_read_equal(w, fields[i].tail, 1, most, &value, err));
        TRY(gguf_set(w->root, fields[i].key, json_integer(value), err));
    } else {
        TRY(gguf_read_number(w->gguf, key, &number, err));
        TRY(gguf_set(w->root, fields[i].key, gguf_json_number(number), err));
    }
out:
    return rc;
}

static int int_of(const struct gguf_writing *w, const char *key)
{
    return (int)json_integer_value(json_object_get(w->root, key));
}

/* Heads of keys and their width, where other keys say them. */
static int write_heads(const struct gguf_writing *w, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    int n_heads = int_of(w, "num_attention_heads"), dim = int_of(w, "hidden_size"), rc = 0;
    int n_kv_heads = n_heads, head_dim = dim / n_heads;
    TRY(gguf_read_equal(w, "attention.head_count_kv", 1, GGUF_INT_MOST, &n_kv_heads, err));
    TRY(gguf_read_equal(w, "attention.key_length", 1, GGUF_INT_MOST, &head_dim, err));
    int value_dim = head_dim;
    TRY(gguf_read_equal(w, "attention.value_length", 1, GGUF_INT_MOST, &value_dim, err));
    if (value_dim != head_dim) {
        return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %d is not supported with keys of %d",
                         gguf_origin(w->gguf), gguf_arch_key(w, "attention.value_length", key),
                         value_dim, head_dim);
    }
    TRY(gguf_set(w->root, "num_key_value_heads", json_integer(n_kv_heads), err));
    TRY(gguf_set(w->root, "head_dim", json_integer(head_dim), err));
out:
    return rc;
}

/* Gemma's scale of the scores is not in the file: it follows from the head's width, but in the
 * largest model of each generation from the model's. */
static int write_query_scalar(const struct gguf_writing *w, struct error *err)
{
    enum { GEMMA2_LARGEST = 46, GEMMA3_LARGEST = 62 };
    int n_layers = int_of(w, "num_hidden_layers"), scalar = int_of(w, "head_dim");
    bool is_gemma2 = w->arch->id == GGUF_ARCH_GEMMA2;
    if (!is_gemma2 && w->arch->id != GGUF_ARCH_GEMMA3) return 0;
    if (n_layers == (is_gemma2 ? GEMMA2_LARGEST : GEMMA3_LARGEST)) {
        scalar = int_of(w, "hidden_size") / int_of(w, "num_attention_heads");
    }
    return gguf_set(w->root, "query_pre_attn_scalar", json_integer(scalar), err);
}

/* Ministral 3 scales q by position; other models of its architecture do not. */
static int write_ministral(const struct gguf_writing *w, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    double beta = 0;
    int rc = 0;
    if (w->arch->id != GGUF_ARCH_MISTRAL3) return 0;
    TRY(gguf_read_number(w->gguf, gguf_arch_key(w, "attention.temperature_scale", key), &beta,
                         err));
    if (beta == 0) goto out;
    TRY(gguf_set_class(w, "Ministral3ForCausalLM", "ministral3", err));
    TRY(gguf_set(json_object_get(w->root, "rope_scaling"), "llama_4_scaling_beta",
                 gguf_json_number(beta), err));
out:
    return rc;
}

/* Switches that are refused unless they are off. */
static int check_switches(const struct gguf_writing *w, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    int n_experts = 0, rc = 0;
    bool is_causal = true;
    TRY(gguf_read_equal(w, "expert_count", 0, GGUF_INT_MOST, &n_experts, err));
    if (n_experts) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"%s\" = %d is not supported: models with experts are not read",
                         gguf_origin(w->gguf), gguf_arch_key(w, "expert_count", key), n_experts);
    }
    TRY(gguf_read_bool(w->gguf, gguf_arch_key(w, "attention.causal", key), &is_causal, err));
    if (!is_causal) {
        rc = error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = false is not supported",
                       gguf_origin(w->gguf), key);
    }
out:
    return rc;
}

static bool is_known(const struct gguf_writing *w, const char *tail)
{
    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].tail, tail) == 0) return fields[i].archs >> w->arch->id & 1;
    }
    for (size_t i = 0; i < sizeof other_keys / sizeof *other_keys; i++) {
        if (strcmp(other_keys[i], tail) == 0) return true;
    }
    return false;
}

static int write_unknown(const struct gguf_writing *w, struct error *err)
{
    size_t len = strlen(w->arch->name);
    int rc = 0;
    for (size_t i = 0; i < gguf_n_keys(w->gguf); i++) {
        const char *key = gguf_key(w->gguf, i);
        if (strncmp(key, w->arch->name, len) != 0 || key[len] != '.') continue;
        if (!is_known(w, key + len + 1)) TRY(gguf_set(w->root, key, json_true(), err));
    }
out:
    return rc;
}

/* Biases, and a head of its own, are where their tensors are. */
static int write_tensors(const struct gguf_writing *w, struct error *err)
{
    bool has_head = gguf_find_tensor(w->gguf, "output.weight");
    bool has_mlp_bias = gguf_find_tensor(w->gguf, "blk.0.ffn_down.bias");
    bool has_attention_bias =
        gguf_find_tensor(w->gguf, "blk.0.attn_output.bias") ||
        (gguf_find_tensor(w->gguf, "blk.0.attn_q.bias") && w->arch->id != GGUF_ARCH_QWEN2);
    int rc = 0;
    TRY(gguf_set(w->root, "tie_word_embeddings", json_boolean(!has_head), err));
    if (has_attention_bias) TRY(gguf_set(w->root, "attention_bias", json_true(), err));
    if (has_mlp_bias) TRY(gguf_set(w->root, "mlp_bias", json_true(), err));
out:
    return rc;
}

static int write_config(const struct gguf_writing *w, struct error *err)
{
    static const char embedding_name[] = "token_embd.weight";
    const struct gguf_tensor *embedding = gguf_find_tensor(w->gguf, embedding_name);
    int rc = 0;
    if (!embedding || embedding->n_dims != 2 || embedding->dims[1] > GGUF_INT_MOST) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %s of two dimensions",
                         gguf_origin(w->gguf), embedding_name);
    }
    int n_vocab = (int)embedding->dims[1];
    TRY(gguf_set_class(w, classes[w->arch->id].architecture, classes[w->arch->id].model_type, err));
    for (int i = 0; i < N_FIELDS; i++) {
        TRY(write_field(w, i, err));
    }
    TRY(gguf_set(w->root, "vocab_size", json_integer(n_vocab), err));
    TRY(write_heads(w, err));
    TRY(check_switches(w, err));
    TRY(write_tensors(w, err));
    TRY(gguf_write_rope(w, int_of(w, "head_dim"), int_of(w, "max_position_embeddings"), err));
    TRY(write_query_scalar(w, err));
    TRY(write_ministral(w, err));
    TRY(gguf_write_layers(w, int_of(w, "num_hidden_layers"), err));
    TRY(gguf_write_tokens(w, n_vocab, err));
    TRY(write_unknown(w, err));
out:
    return rc;
}

static int dump(char **text, const json_t *root, struct error *err)
{
    *text = json_dumps(root, JSON_COMPACT);
    return *text ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for a config");
}

int gguf_config_write(struct gguf_config *out, const struct gguf *gguf,
                      const struct gguf_arch *arch, struct error *err)
{
    const struct gguf_writing w = {.gguf = gguf, .arch = arch, .root = json_object(), .out = out};
    json_t *sampling = json_object();
    int rc = 0;
    *out = (struct gguf_config){0};
    if (!w.root || !sampling) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for a config");
        goto out;
    }
    TRY(write_config(&w, err));
    TRY(gguf_write_sampling(gguf, sampling, err));
    TRY(dump(&out->config, w.root, err));
    TRY(dump(&out->sampling, sampling, err));
out:
    json_decref(w.root);
    json_decref(sampling);
    if (rc) gguf_config_free(out);
    return rc;
}

void gguf_config_free(struct gguf_config *config)
{
    free(config->config);
    free(config->sampling);
    *config = (struct gguf_config){0};
}
