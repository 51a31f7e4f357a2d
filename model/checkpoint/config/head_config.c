/* config.json of a head. What it says about the head's layers is put together as the config.json of
 * a model of these layers, which config_parse reads with all of its checks. Sources: EAGLE's
 * cnets.py, vLLM's llama_eagle3.py and configs/speculators, SGLang's llama_eagle3.py, speculators'
 * eagle3/config.py, llama.cpp's eagle3.cpp; for MTP layers vLLM's mimo_mtp.py. */
#include "model/checkpoint/config/head_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/block_config.h"

enum { DIM_MAX = 1 << 20, COLUMNS_MAX = 1 << 24 };

struct reading {
    json_t *root, *eagle; /* the file, and its "eagle_config" or "dflash_config", or NULL */
    const char *origin;
    bool is_block, is_dspark;
};

/* ---- what is no head that is read here ---- */

static const char look_ahead_key[] = "n_lookahead"; /* model/look_ahead.h */

/* Drafters of other kinds, by a part of their architecture or model type, or by a key. */
static const struct {
    const char *word, *key, *name;
} others[] = {
    {"hydra", "hydra_num_heads", "Hydra heads"},
    {"redrafter", NULL, "a ReDrafter"},
    {"recurrentdraft", NULL, "a ReDrafter"},
    {"recurrent_draft", NULL, "a ReDrafter"},
    {"dflash2", "selector_rank", "a DFlash2 drafter, with convolutions over the block"},
    {"dflash2", "conv_kernel_size", "a DFlash2 drafter, with convolutions over the block"},
    {"dflashlinear", NULL, "a linear DFlash drafter, which keeps a state in place of a context"},
    {"domino", "gru_hidden_dim", "a Domino drafter, with a GRU over the guesses"},
    {"lilicorr", NULL, "a LiLiCorr drafter, with a learned choice among candidates"},
    {"xpress", "xpress_rank", "an XPress drafter, with passes that refine the guesses"},
    {"dflare", NULL, "a DFlare drafter"},
    {"dfly", NULL, "a DFly drafter"},
    {"mlp_speculator", NULL, "an MLP speculator"},
    {"mlpspeculator", NULL, "an MLP speculator"},
    {"gemma4_assistant", NULL, "an assistant of Gemma 4"},
    {"gemma4_unified_assistant", NULL, "an assistant of Gemma 4"},
};

/* Models whose MTP layers are of the model's own kind, which has to be supported first. */
static const struct {
    const char *type, *name;
} mtp_families[] = {
    {"deepseek_v3", "DeepSeek-V3"},  {"deepseek_v32", "DeepSeek-V3.2"},
    {"kimi_k2", "Kimi-K2"},          {"glm4_moe", "GLM-4.5 and later"},
    {"glm4_moe_lite", "GLM-4.7"},    {"glm_moe_dsa", "GLM-5"},
    {"glm4v_moe", "GLM-4.5V"},       {"kimi_k25", "Kimi-K2.5"},
    {"qwen3_next", "Qwen3-Next"},    {"qwen3_5", "Qwen3.5"},
    {"qwen3_5_text", "Qwen3.5"},     {"qwen3_5_moe", "Qwen3.5"},
    {"qwen3_5_moe_text", "Qwen3.5"}, {"mimo_v2_flash", "MiMo-V2"},
    {"ernie4_5_moe", "ERNIE 4.5"},   {"longcat_flash", "LongCat"},
};

static void lower(const char *text, char out[HEAD_NAME_BYTES])
{
    size_t i = 0;
    for (; text && text[i] && i + 1 < HEAD_NAME_BYTES; i++) {
        out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    }
    out[i] = '\0';
}

enum { KIND_WORDS = 5 };

/* The words of a file that say which drafter it is of. */
static void kind_words(const json_t *root, char words[KIND_WORDS][HEAD_NAME_BYTES])
{
    const json_t *block = json_member(root, "dflash_config");
    lower(json_string_value(json_array_get(json_member(root, "architectures"), 0)), words[0]);
    lower(json_string_value(json_member(root, "model_type")), words[1]);
    lower(json_string_value(json_member(root, "speculators_model_type")), words[2]);
    lower(json_string_value(json_member(root, "projector_type")), words[3]);
    lower(json_string_value(json_member(block, "projector_type")), words[4]);
}

/* The name of the drafter that the file is of; NULL: of none of those. */
static const char *find_other(const json_t *root)
{
    char words[KIND_WORDS][HEAD_NAME_BYTES];
    const json_t *block = json_member(root, "dflash_config");
    kind_words(root, words);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *key = others[i].key;
        if (key && (json_member(root, key) || json_member(block, key))) return others[i].name;
        for (int k = 0; k < KIND_WORDS; k++) {
            if (strstr(words[k], others[i].word)) return others[i].name;
        }
    }
    return NULL;
}

/* True if the file is of DFlash or DSpark. */
static bool find_block(const json_t *root, bool *is_dspark)
{
    char words[KIND_WORDS][HEAD_NAME_BYTES];
    bool is_block = json_member(root, "dflash_config") != NULL;
    kind_words(root, words);
    *is_dspark = false;
    for (int k = 0; k < KIND_WORDS; k++) {
        *is_dspark = *is_dspark || strstr(words[k], "dspark");
        is_block = is_block || strstr(words[k], "dflash");
    }
    return is_block || *is_dspark;
}

/* Models that also take images have the type of their text part in "text_config". */
static int refuse_mtp_family(const struct reading *in, const json_t *object, struct error *err)
{
    const char *type = json_string_value(json_member(object, "model_type"));
    for (size_t i = 0; type && i < sizeof mtp_families / sizeof *mtp_families; i++) {
        if (strcmp(type, mtp_families[i].type) != 0) continue;
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s: the MTP layers of %s are of its own kind and will be read when models "
            "of \"model_type\" = \"%s\" are, which are not supported yet",
            in->origin, mtp_families[i].name, type);
    }
    return 0;
}

static int refuse_others(const struct reading *in, struct error *err)
{
    static const char *const kinds[] = {"eagle3", "peagle", "dflash", "dspark"};
    int rc = 0;
    const char *other = find_other(in->root);
    const char *kind = json_string_value(json_member(in->root, "speculators_model_type"));
    bool is_known = !kind;
    if (json_member(in->root, look_ahead_key)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s is of look-ahead embeddings (PaSS), which are no head: workers and "
                         "coordinators read them with --head, and the target guesses with them",
                         in->origin);
    }
    if (other) {
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s is of %s, which is not supported; heads of EAGLE-1 to 3, of Medusa, of "
            "blockwise decoding, of DFlash and DSpark, and the MTP layers of MiMo are",
            in->origin, other);
    }
    TRY(refuse_mtp_family(in, in->root, err));
    TRY(refuse_mtp_family(in, json_member(in->root, "text_config"), err));
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++) {
        is_known = is_known || strcmp(kind, kinds[i]) == 0;
    }
    if (!is_known) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"speculators_model_type\" = \"%.64s\" is not supported (eagle3, "
                         "peagle, dflash and dspark are)",
                         in->origin, kind);
    }
out:
    return rc;
}

/* ---- the head's own keys ---- */

/* Keys of heads, at the top or in "eagle_config", that a model of the layers does not have. */
static const char *const head_keys[] = {
    "architectures",
    "auto_map",
    "bias",
    "draft_vocab_size",
    "eagle_aux_hidden_state_layer_ids",
    "eagle_config",
    "embed_requires_grad",
    "fc_norm",
    "has_no_defaults_at_init",
    "logit_scale",
    "mask_token_id",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "num_aux_hidden_states",
    "num_nextn_predict_layers",
    "pard_token",
    "parallel_drafting",
    "ptd_token_id",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "target_hidden_size",
    "target_model_type",
    "tie_word_embeddings",
    "use_aux_hidden_state",
    "use_aux_norm",
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
};

/* The object that has the key: the file, or its "eagle_config". */
static const json_t *owner(const struct reading *in, const char *key)
{
    return in->eagle && !json_member(in->root, key) ? in->eagle : in->root;
}

static int read_flag(const struct reading *in, const char *key, bool *out, struct error *err)
{
    return json_read_bool(owner(in, key), key, out, in->origin, err);
}

static int read_choice(const struct reading *in, const char *key, enum head_choice *out,
                       struct error *err)
{
    bool is_on = false;
    int rc = read_flag(in, key, &is_on, err);
    bool is_there = json_member(owner(in, key), key) != NULL;
    *out = !is_there ? HEAD_AS_STORED : is_on ? HEAD_YES : HEAD_NO;
    return rc;
}

static int read_number(const struct reading *in, const char *key, int most, int *out,
                       struct error *err)
{
    return json_read_int(owner(in, key), key, 1, most, out, in->origin, err);
}

/* Engines keep features in the order of the layers, whatever the order of the list. */
static int read_ids(struct head_config *head, const struct reading *in, struct error *err)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *at_top = json_member(in->root, key);
    const json_t *list = at_top ? at_top : in->eagle ? json_member(in->eagle, key) : NULL;
    if (!list) return 0;
    head->ids_from = at_top ? HEAD_IDS_AT_TOP : HEAD_IDS_IN_EAGLE_CONFIG;
    return head_ids_read(head->ids, &head->n_ids, list, key, in->origin, err);
}

static int read_mask(struct head_config *head, const struct reading *in, struct error *err)
{
    static const char *const keys[] = {"mask_token_id", "pard_token", "ptd_token_id"};
    int rc = 0;
    head->mask_token_id = -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && head->mask_token_id < 0; i++) {
        TRY(json_read_int(owner(in, keys[i]), keys[i], 0, COLUMNS_MAX, &head->mask_token_id,
                          in->origin, err));
    }
out:
    return rc;
}

static int read_head(struct head_config *head, struct head_claims *claims, const struct reading *in,
                     struct error *err)
{
    bool uses_aux = true, has_old_norms = false;
    int rc = 0;
    TRY(read_ids(head, in, err));
    TRY(read_mask(head, in, err));
    TRY(read_number(in, "target_hidden_size", DIM_MAX, &claims->target_dim, err));
    TRY(read_number(in, "num_aux_hidden_states", HEAD_FEATURES_MAX, &claims->n_features, err));
    TRY(read_number(in, "draft_vocab_size", COLUMNS_MAX, &claims->n_columns, err));
    TRY(read_flag(in, "norm_before_fc", &claims->has_features_norm, err));
    TRY(read_flag(in, "fc_norm", &claims->has_fc_norms, err));
    TRY(read_flag(in, "use_aux_norm", &has_old_norms, err));
    TRY(read_flag(in, "use_aux_hidden_state", &uses_aux, err));
    TRY(read_choice(in, "norm_before_residual", &claims->norm_before_residual, err));
    TRY(read_choice(in, "norm_output", &claims->norm_output, err));
    claims->has_fc_norms = claims->has_fc_norms || has_old_norms;
    claims->is_single = !uses_aux;
    if (claims->has_features_norm && claims->has_fc_norms) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s: \"norm_before_fc\" and \"fc_norm\" cannot both be true", in->origin);
    }
out:
    return rc;
}

/* ---- its layers as a model ---- */

/* speculators writes a config of transformers without the values that its class has as default. */
static const struct {
    const char *type, *key;
    int value;
} class_defaults[] = {
    {"llama", "vocab_size", 32000},        {"llama", "hidden_size", 4096},
    {"llama", "intermediate_size", 11008}, {"llama", "num_hidden_layers", 32},
    {"llama", "num_attention_heads", 32},  {"llama", "max_position_embeddings", 2048},
    {"qwen3", "vocab_size", 151936},       {"qwen3", "hidden_size", 4096},
    {"qwen3", "intermediate_size", 22016}, {"qwen3", "num_hidden_layers", 32},
    {"qwen3", "num_attention_heads", 32},  {"qwen3", "max_position_embeddings", 32768},
};

static const char *layer_type(const json_t *layer)
{
    const char *type = json_string_value(json_member(layer, "model_type"));
    return type ? type : "llama";
}

static const char *layer_architecture(const char *type)
{
    if (strcmp(type, "llama") == 0) return "LlamaForCausalLM";
    if (strcmp(type, "qwen3") == 0) return "Qwen3ForCausalLM";
    if (strcmp(type, "qwen2") == 0) return "Qwen2ForCausalLM";
    if (strcmp(type, "mimo") == 0) return "MiMoForCausalLM";
    return NULL;
}

static int no_memory(struct error *err)
{
    return error_set(err, ERR_NO_MEMORY, "no memory for the config of a head");
}

/* A copy of the object without the keys of heads; NULL: no memory, where jansson leaves out keys
 * without an error. */
static json_t *copy_layers(json_t *object)
{
    json_t *copy = json_copy(object);
    if (copy && json_object_size(copy) != json_object_size(object)) {
        json_decref(copy);
        copy = NULL;
    }
    for (size_t i = 0; copy && i < sizeof head_keys / sizeof *head_keys; i++) {
        json_object_del(copy, head_keys[i]);
    }
    return copy;
}

/* Makes *layers, the object that config_parse understands. The caller calls json_decref. */
static int make_layers(json_t **layers, const struct head_config *head, const struct reading *in,
                       struct error *err)
{
    json_t *nested = json_member(in->root, "transformer_layer_config");
    json_t *copy = copy_layers(head->is_speculators ? nested : in->root);
    bool is_short = false;
    if (!copy) return no_memory(err);
    *layers = copy;
    if (in->is_block && !block_config_strip(copy, in->eagle)) return no_memory(err);
    const char *type = layer_type(copy), *architecture = layer_architecture(type);
    if (!architecture || (in->is_block && strcmp(type, "qwen3") != 0)) {
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s: layers of \"model_type\" = \"%.64s\" are not supported in %s", in->origin, type,
            in->is_block ? "block drafters (qwen3 is)" : "heads (llama, qwen2 and qwen3 are)");
    }
    for (size_t i = 0; head->is_speculators && i < sizeof class_defaults / sizeof *class_defaults;
         i++) {
        if (strcmp(class_defaults[i].type, type) != 0) continue;
        if (json_object_get(copy, class_defaults[i].key)) continue;
        json_t *value = json_integer(class_defaults[i].value);
        is_short = json_object_set_new(copy, class_defaults[i].key, value) || is_short;
    }
    json_t *list = json_pack("[s]", architecture);
    is_short = json_object_set_new(copy, "architectures", list) || is_short;
    is_short = json_object_set_new(copy, "tie_word_embeddings", json_false()) || is_short;
    if (head->format == HEAD_MTP) {
        is_short = json_object_set_new(copy, "num_hidden_layers", json_integer(1)) || is_short;
    }
    return is_short ? no_memory(err) : 0;
}

static int read_layers(struct model_config *cfg, struct config_rest *rest,
                       const struct head_config *head, const struct reading *in, struct error *err)
{
    json_t *layers = NULL;
    char *text = NULL;
    double scale = 0;
    int rc = 0;
    TRY(make_layers(&layers, head, in, err));
    text = json_dumps(layers, JSON_COMPACT);
    if (!text) {
        rc = no_memory(err);
        goto out;
    }
    TRY(config_parse(cfg, text, strlen(text), NULL, 0, in->origin, rest, err));
    TRY(json_read_double(owner(in, "logit_scale"), "logit_scale", &scale, in->origin, err));
    if (!(scale >= 0 && scale <= 1e6)) {
        rc = error_set(err, ERR_FORMAT, "%s: \"logit_scale\" = %g is outside of 0..1e6", in->origin,
                       scale);
        goto out;
    }
    if (scale != 0 && scale != 1) cfg->logit_scale = (float)scale;
    if (cfg->stored != WEIGHTS_BF16 || rest->scheme.method != QUANT_NONE) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s: heads that are stored quantized are not supported; one of BF16, F16 or "
                       "F32 is",
                       in->origin);
    }
out:
    free(text);
    json_decref(layers);
    return rc;
}

/* The MTP layer of a model is read from the model's own folder. */
static int read_mtp(struct head_config *head, const struct reading *in, struct error *err)
{
    int n = 0, rc = 0;
    TRY(json_read_int(in->root, "num_nextn_predict_layers", 0, LAYERS_MAX, &n, in->origin, err));
    if (n != 1) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: a head of %d MTP layers is not supported (one of 1 is)", in->origin,
                         n);
    }
    head->format = HEAD_MTP;
    head->entry.lacks_first = true; /* in vLLM, as in the families of DeepSeek and GLM */
out:
    return rc;
}

static int read_block(struct head_config *head, struct model_config *cfg, const struct reading *in,
                      struct error *err)
{
    const struct block_source source = {.root = in->root,
                                        .inner = in->eagle ? in->eagle : in->root,
                                        .origin = in->origin,
                                        .is_dspark = in->is_dspark,
                                        .is_speculators = head->is_speculators};
    struct block_layers layers;
    int rc = 0;
    head->format = HEAD_BLOCK;
    TRY(block_config_parse(&head->block, &layers, cfg, &source, err));
    memcpy(head->ids, layers.ids, sizeof head->ids);
    head->n_ids = layers.n;
    head->ids_from = layers.are_outputs ? HEAD_IDS_OF_OUTPUTS : HEAD_IDS_AT_TOP;
    if (head->mask_token_id < 0) {
        rc = error_set(err, ERR_FORMAT,
                       "%s lacks \"mask_token_id\", the token of the rows that guess", in->origin);
    }
out:
    return rc;
}

int head_config_parse(struct head_config *head, struct head_claims *claims,
                      struct model_config *cfg, struct config_rest *rest, const char *text,
                      size_t len, const char *origin, struct error *err)
{
    struct reading in = {.origin = origin};
    json_t *root = NULL;
    int rc = 0;
    memset(head, 0, sizeof *head);
    *claims = (struct head_claims){0};
    *rest = (struct config_rest){0};
    TRY(json_parse_python(&root, text, len, origin, err));
    if (!json_is_object(root)) {
        rc = error_set(err, ERR_FORMAT, "%s is not an object", origin);
        goto out;
    }
    enum places_format places = places_config_find(root);
    if (places != PLACES_NONE) {
        head->format = places == PLACES_MEDUSA ? HEAD_MEDUSA : HEAD_BLOCKWISE;
        head->mask_token_id = -1;
        TRY(places_config_parse(places, &claims->places, cfg, root, origin, err));
        goto out;
    }
    in.root = root;
    in.eagle = json_member(root, "eagle_config");
    in.is_block = find_block(root, &in.is_dspark);
    if (in.is_block) in.eagle = json_member(root, "dflash_config");
    if (!json_is_object(in.eagle)) in.eagle = NULL;
    TRY(refuse_others(&in, err));
    head->is_speculators = json_is_object(json_member(root, "transformer_layer_config"));
    TRY(read_head(head, claims, &in, err));
    bool is_mtp = !in.is_block && strcmp(layer_type(root), "mimo") == 0;
    if (is_mtp) TRY(read_mtp(head, &in, err));
    TRY(read_layers(cfg, rest, head, &in, err));
    if (in.is_block) TRY(read_block(head, cfg, &in, err));
    if (head->mask_token_id >= cfg->vocab_size) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: \"mask_token_id\" = %d is outside of the vocabulary "
                       "of %d",
                       origin, head->mask_token_id, cfg->vocab_size);
    }
out:
    json_decref(root);
    return rc;
}

bool head_config_is_head(const char *text, size_t len)
{
    static const char *const keys[] = {"speculators_model_type", "draft_vocab_size", "eagle_config",
                                       "eagle_aux_hidden_state_layer_ids"};
    struct error ignored;
    char architecture[HEAD_NAME_BYTES];
    json_t *root = NULL;
    bool is_head = false, is_dspark;
    if (json_parse_python(&root, text, len, "config.json", &ignored)) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        is_head = is_head || json_member(root, keys[i]) != NULL;
    }
    lower(json_string_value(json_array_get(json_member(root, "architectures"), 0)), architecture);
    is_head = is_head || strstr(architecture, "eagle") || find_other(root) ||
              places_config_find(root) != PLACES_NONE;
    is_head = is_head || find_block(root, &is_dspark) || json_member(root, look_ahead_key);
    json_decref(root);
    return is_head;
}

const char *head_layer_name(const struct head_config *head, int layer, char text[HEAD_NAME_BYTES])
{
    if (layer == 0) {
        snprintf(text, HEAD_NAME_BYTES, "%s", head->first_layer);
    } else {
        snprintf(text, HEAD_NAME_BYTES, "%s%d.", head->layers, layer);
    }
    return text;
}

bool head_feeds_joined(const struct head_config *head)
{
    return head && !head->entry.has_join && head->block.size == 0;
}

bool head_is_causal(const struct head_config *head, int window)
{
    if (!head || head->block.size == 0) return true;
    return window > 0 ? head->block.window_is_causal : head->block.is_causal;
}

const char *head_format_name(const struct head_config *head)
{
    static const char *const names[] = {
        [HEAD_EAGLE3] = "EAGLE-3", [HEAD_EAGLE1] = "EAGLE-1 or 2", [HEAD_MTP] = "MTP",
        [HEAD_MEDUSA] = "Medusa",  [HEAD_BLOCKWISE] = "blockwise", [HEAD_BLOCK] = "DFlash"};
    return head->block.rank > 0 ? "DSpark" : names[head->format];
}
