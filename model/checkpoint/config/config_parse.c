/* config.json to struct model_config. Defaults are those of the configuration classes of
 * transformers, but a dimension for which they would assume a value must be in the file. */
#include "model/checkpoint/config/config_parse.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/json.h"
#include "model/checkpoint/config/config_family.h"
#include "model/checkpoint/config/config_keys.h"
#include "model/checkpoint/config/config_quant.h"
#include "model/checkpoint/config/config_rope.h"
#include "model/checkpoint/config/config_window.h"
#include "model/checkpoint/config/family.h"

enum {
    MOST_WIDTH = 1 << 20, /* of anything but the vocabulary */
    MOST_VOCAB = 1 << 24,
    MOST_POSITIONS = 1 << 30,
    HEAD_DIM_UNIT = 16,
    NOT_SET = 0
};

/* One file being read. */
struct reading {
    struct model_config *cfg;
    json_t *root; /* the file, or its "text_config" */
    bool is_text_part;
    const struct model_family *family;
    const char *origin;
    struct quant_scheme scheme;
};

static int unsupported(const struct reading *in, const char *key, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s is not supported", in->origin, key,
                     config_keys_show(json_object_get(in->root, key), shown));
}

static int wrong_family(const struct reading *in, const char *key, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES], list[400];
    family_list(list, sizeof list);
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s is not supported; these are: %s",
                     in->origin, key, config_keys_show(json_object_get(in->root, key), shown),
                     list);
}

/* Models that also see: their text part is a model of a family here. */
static const struct {
    const char *architecture, *model_type;
} seeing[] = {
    {"Gemma3ForConditionalGeneration", "gemma3"},
    {"Mistral3ForConditionalGeneration", "mistral3"},
};

/* Makes the text part of such a model the object that is read. What the file has outside of it and
 * what holds for texts, too, is taken over. */
static int find_text_part(struct reading *in, struct error *err)
{
    static const char *const shared[] = {"bos_token_id", "eos_token_id", "quantization_config",
                                         "tie_word_embeddings"};
    const json_t *list = json_member(in->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    const char *type = json_string_value(json_member(in->root, "model_type"));
    json_t *text = json_member(in->root, "text_config");
    bool is_seeing = false;
    for (size_t i = 0; i < sizeof seeing / sizeof *seeing; i++) {
        const char *value = name ? name : type;
        const char *wanted = name ? seeing[i].architecture : seeing[i].model_type;
        is_seeing = is_seeing || (value && strcmp(value, wanted) == 0);
    }
    if (!is_seeing) return 0;
    if (!json_is_object(text)) {
        return error_set(err, ERR_FORMAT, "%s lacks the object \"text_config\"", in->origin);
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        json_t *value = json_member(in->root, shared[i]);
        if (value && !json_member(text, shared[i])) json_object_set(text, shared[i], value);
    }
    json_object_del(text, "architectures");
    in->root = text;
    in->is_text_part = true;
    return 0;
}

/* transformers chooses the class by model_type, other programs by architectures: both must
 * agree. */
static int read_family(struct reading *in, struct error *err)
{
    const char *type = NULL;
    int rc = 0;
    TRY(json_read_string(in->root, "model_type", &type, in->origin, err));
    const json_t *list = json_member(in->root, "architectures");
    if (!list && !type) {
        return error_set(err, ERR_FORMAT, "%s lacks \"architectures\"", in->origin);
    }
    const char *name = json_string_value(json_array_get(list, 0));
    if (list && (json_array_size(list) != 1 || !name))
        return wrong_family(in, "architectures", err);
    in->family = list ? family_of_architecture(name) : family_of_type(type);
    if (!in->family) return wrong_family(in, list ? "architectures" : "model_type", err);
    if (type && strcmp(type, in->family->model_type) != 0)
        return unsupported(in, "model_type", err);
    snprintf(in->cfg->architecture, sizeof in->cfg->architecture, "%s", in->family->architecture);
out:
    return rc;
}

/* The text part of a model that also sees may leave out what its class has as default. */
static int default_dimension(const struct reading *in, const char *key)
{
    const struct model_family *family = in->family;
    if (!in->is_text_part) return NOT_SET;
    if (strcmp(key, "num_attention_heads") == 0) return family->text_heads;
    if (strcmp(key, "vocab_size") == 0) return family->text_vocab;
    if (strcmp(key, "max_position_embeddings") == 0) return family->text_positions;
    return NOT_SET;
}

static int read_demanded(const struct reading *in, const char *key, int least, int most, int *out,
                         struct error *err)
{
    if (!json_member(in->root, key)) {
        *out = default_dimension(in, key);
        if (*out != NOT_SET) return 0;
        return error_set(err, ERR_FORMAT, "%s lacks \"%s\"", in->origin, key);
    }
    return json_read_int(in->root, key, least, most, out, in->origin, err);
}

/* Returns the value of a key that is not set: `value`, the class's default, where it is missing and
 * `derived` where it is null or the class has no default. */
static int default_of(const struct reading *in, const char *key, int value, int derived)
{
    bool is_missing = json_object_get(in->root, key) == NULL;
    return is_missing && value != NOT_SET ? value : derived;
}

static int read_heads(const struct reading *in, struct error *err)
{
    struct model_config *cfg = in->cfg;
    int rc = 0;
    TRY(read_demanded(in, "num_attention_heads", 1, MOST_WIDTH, &cfg->n_heads, err));
    cfg->n_kv_heads = default_of(in, "num_key_value_heads", in->family->kv_heads, cfg->n_heads);
    TRY(json_read_int(in->root, "num_key_value_heads", 1, MOST_WIDTH, &cfg->n_kv_heads, in->origin,
                      err));
    if (cfg->n_heads % cfg->n_kv_heads) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"num_attention_heads\" = %d is no multiple of "
                         "\"num_key_value_heads\" = %d",
                         in->origin, cfg->n_heads, cfg->n_kv_heads);
    }
    cfg->head_dim = default_of(in, "head_dim", in->family->head_dim, NOT_SET);
    TRY(json_read_int(in->root, "head_dim", 1, MOST_WIDTH, &cfg->head_dim, in->origin, err));
    if (cfg->head_dim == NOT_SET && cfg->dim % cfg->n_heads) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"hidden_size\" = %d is no multiple of \"num_attention_heads\" = %d",
                         in->origin, cfg->dim, cfg->n_heads);
    }
    if (cfg->head_dim == NOT_SET) cfg->head_dim = cfg->dim / cfg->n_heads;
out:
    return rc;
}

/* Packed matrices hold pairs of inputs, so widths are even; attention works on whole vectors of
 * HEAD_DIM_UNIT. */
static int check_geometry(const struct reading *in, struct error *err)
{
    const struct model_config *cfg = in->cfg;
    if (cfg->head_dim % HEAD_DIM_UNIT || cfg->head_dim > HEAD_DIM_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"head_dim\" = %d is not supported (multiples of %d up to %d are)",
                         in->origin, cfg->head_dim, HEAD_DIM_UNIT, HEAD_DIM_MAX);
    }
    if ((int64_t)cfg->n_heads * cfg->head_dim > MOST_WIDTH) {
        return error_set(err, ERR_UNSUPPORTED, "%s: %d heads of %d are wider than %d", in->origin,
                         cfg->n_heads, cfg->head_dim, MOST_WIDTH);
    }
    if (cfg->dim % 2) return unsupported(in, "hidden_size", err);
    if (cfg->ffn_dim % 2) return unsupported(in, "intermediate_size", err);
    return 0;
}

static int read_shape(const struct reading *in, struct error *err)
{
    struct model_config *cfg = in->cfg;
    double eps = in->family->norm_eps > 0 ? in->family->norm_eps : 1e-6;
    int rc = 0;
    TRY(read_demanded(in, "num_hidden_layers", 1, LAYERS_MAX, &cfg->n_layers, err));
    TRY(read_demanded(in, "hidden_size", 1, MOST_WIDTH, &cfg->dim, err));
    bool is_shared = in->family->tensors == TENSORS_OF_SHARED_MLP;
    TRY(read_demanded(in, is_shared ? "shared_intermediate_size" : "intermediate_size", 1,
                      MOST_WIDTH, &cfg->ffn_dim, err));
    TRY(read_demanded(in, "vocab_size", 1, MOST_VOCAB, &cfg->vocab_size, err));
    TRY(read_demanded(in, "max_position_embeddings", 1, MOST_POSITIONS, &cfg->max_positions, err));
    TRY(read_heads(in, err));
    TRY(check_geometry(in, err));
    TRY(json_read_double(in->root, "rms_norm_eps", &eps, in->origin, err));
    if (!(eps >= 1e-30 && eps <= 1)) {
        return error_set(err, ERR_FORMAT, "%s: \"rms_norm_eps\" = %g is outside of 1e-30..1",
                         in->origin, eps);
    }
    cfg->norm_eps = (float)eps;
    cfg->tied_embeddings = in->family->tied_embeddings;
    TRY(json_read_bool(in->root, "tie_word_embeddings", &cfg->tied_embeddings, in->origin, err));
out:
    return rc;
}

/* A bias key that this family does not know must not ask for a bias. */
static int read_biases(const struct reading *in, struct error *err)
{
    struct model_config *cfg = in->cfg;
    bool attention = false, mlp = false;
    int rc = 0;
    TRY(json_read_bool(in->root, "attention_bias", &attention, in->origin, err));
    TRY(json_read_bool(in->root, "mlp_bias", &mlp, in->origin, err));
    if (mlp && !family_has_key(in->family, "mlp_bias")) return unsupported(in, "mlp_bias", err);
    if (attention && !family_has_key(in->family, "attention_bias")) {
        return unsupported(in, "attention_bias", err);
    }
    cfg->qkv_bias = attention || in->family->qkv_bias;
    cfg->o_bias = attention && !in->family->qkv_bias; /* MiMo's q, k and v have one anyway */
    cfg->mlp_bias = mlp;
out:
    return rc;
}

static int add_eos(struct model_config *cfg, const json_t *id, const char *origin,
                   struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= cfg->vocab_size) {
        return error_set(err, ERR_FORMAT, "%s: \"eos_token_id\" has %s, which is no token", origin,
                         config_keys_show(id, shown));
    }
    if (end_ids_add(&cfg->ends, (int32_t)value)) return 0;
    return error_set(err, ERR_UNSUPPORTED, "%s: more than %d ids in \"eos_token_id\"", origin,
                     END_IDS_MAX);
}

static int add_eos_of(struct model_config *cfg, const json_t *root, const char *origin,
                      struct error *err)
{
    const json_t *ids = json_member(root, "eos_token_id");
    if (!ids) return 0;
    if (!json_is_array(ids)) return add_eos(cfg, ids, origin, err);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int rc = add_eos(cfg, json_array_get(ids, i), origin, err);
        if (rc) return rc;
    }
    return 0;
}

/* -1 is "all", as in vLLM. do_sample is left aside, as vLLM does. */
static int read_sampling(struct model_config *cfg, const json_t *root, const char *origin,
                         struct error *err)
{
    struct config_sampling *s = &cfg->sampling;
    const struct {
        const char *key;
        float *out;
        double least, most;
    } numbers[] = {{"temperature", &s->temperature, 0, 100},
                   {"top_p", &s->top_p, 1e-6, 1},
                   {"min_p", &s->min_p, 0, 1},
                   {"repetition_penalty", &s->repetition_penalty, (double)REPETITION_PENALTY_MIN,
                    (double)REPETITION_PENALTY_MAX}};
    int rc = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = CONFIG_OPEN;
        bool is_there = json_member(root, numbers[i].key);
        TRY(json_read_double(root, numbers[i].key, &value, origin, err));
        if (is_there && !(value >= numbers[i].least && value <= numbers[i].most)) {
            return error_set(err, ERR_FORMAT, "%s: \"%s\" is %g, must be %g to %g", origin,
                             numbers[i].key, value, numbers[i].least, numbers[i].most);
        }
        *numbers[i].out = (float)value;
    }
    /* Greedy, in the words of libraries that divide by it. */
    if (s->temperature >= 0 && s->temperature < 1e-3f) s->temperature = 0;
    bool has_top_k = json_member(root, "top_k");
    TRY(json_read_int(root, "top_k", -1, INT32_MAX, &s->top_k, origin, err));
    if (has_top_k && s->top_k < 0) s->top_k = 0;
out:
    return rc;
}

static int read_generation(struct model_config *cfg, const char *text, size_t len,
                           const char *origin, struct error *err)
{
    char own_origin[512];
    json_t *root = NULL;
    snprintf(own_origin, sizeof own_origin, "%.440s: generation_config.json", origin);
    int rc = json_parse_python(&root, text, len, own_origin, err);
    if (!rc && !json_is_object(root)) {
        rc = error_set(err, ERR_FORMAT, "%s is not an object", own_origin);
    }
    if (!rc) rc = add_eos_of(cfg, root, own_origin, err);
    if (!rc) rc = read_sampling(cfg, root, own_origin, err);
    json_decref(root);
    return rc;
}

static int read_all(struct reading *in, struct error *err)
{
    struct model_config *cfg = in->cfg;
    struct layer_kind kind = {0}; /* what all layers have */
    int rc = 0;
    if (!json_is_object(in->root)) {
        return error_set(err, ERR_FORMAT, "%s is not an object", in->origin);
    }
    TRY(find_text_part(in, err));
    TRY(read_family(in, err));
    TRY(config_keys_check(in->root, in->family, in->origin, err));
    TRY(read_shape(in, err));
    TRY(read_biases(in, err));
    TRY(config_family_read(cfg, &kind, in->root, in->family, in->origin, err));
    TRY(config_rope_read(cfg, in->root, in->family, in->origin, err));
    TRY(config_window_read(cfg, &kind, in->root, in->family, in->origin, err));
    TRY(config_quant_read(cfg, &in->scheme, in->root, in->origin, err));
    cfg->bos_id = -1;
    TRY(json_read_int(in->root, "bos_token_id", 0, cfg->vocab_size - 1, &cfg->bos_id, in->origin,
                      err));
    TRY(add_eos_of(cfg, in->root, in->origin, err));
out:
    return rc;
}

/* "pard_token" and "ptd_token_id" are of parallel drafts alone; "mask_token_id" may be anything
 * where it means something else. -1: the draft was made without one. */
static int read_mask(struct config_mask *mask, json_t *root, const char *origin, struct error *err)
{
    static const char *const keys[] = {"pard_token", "ptd_token_id", "mask_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_member(root, keys[i]);
        bool is_own = i + 1 < sizeof keys / sizeof *keys;
        if (!value || (!is_own && !json_is_integer(value))) continue;
        int rc = json_read_int(root, keys[i], -1, INT32_MAX, &mask->id, origin, err);
        if (!rc && mask->id >= 0) mask->key = keys[i];
        return rc;
    }
    return 0;
}

static int read_rest(struct config_rest *rest, json_t *root, const struct model_family *family,
                     const char *origin, struct error *err)
{
    int rc = 0;
    *rest = (struct config_rest){0};
    rest->n_unknown = config_keys_unknown(root, family, rest->unknown);
    TRY(read_mask(&rest->mask, root, origin, err));
    TRY(json_read_int(root, "num_nextn_predict_layers", 0, LAYERS_MAX, &rest->n_guessing_layers,
                      origin, err));
out:
    return rc;
}

int config_parse(struct model_config *cfg, const char *config_json, size_t config_len,
                 const char *generation_json, size_t generation_len, const char *origin,
                 struct config_rest *rest, struct error *err)
{
    struct reading in = {.cfg = cfg, .origin = origin};
    json_t *file = NULL;
    int rc = 0;
    *cfg = (struct model_config){
        .sampling = {CONFIG_OPEN, CONFIG_OPEN, CONFIG_OPEN, CONFIG_OPEN, CONFIG_OPEN}};
    TRY(json_parse_python(&file, config_json, config_len, origin, err));
    in.root = file;
    TRY(read_all(&in, err));
    if (generation_json) TRY(read_generation(cfg, generation_json, generation_len, origin, err));
    if (rest) TRY(read_rest(rest, in.root, in.family, origin, err));
    if (rest) rest->is_text_part = in.is_text_part;
    if (rest) rest->scheme = in.scheme;
out:
    json_decref(file);
    if (rc) *cfg = (struct model_config){0};
    return rc;
}
