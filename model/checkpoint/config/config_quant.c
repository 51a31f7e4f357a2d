/* quantization_config: how the matrices of the layers are stored. A model whose matrices are all
 * symmetric integers of 4 or 8 bits with one scale for each group of a row, as the library
 * compressed-tensors packs them, is stored in int8 or int4. Others are stored in blocks: AWQ, GPTQ,
 * FP8 and the other formats of compressed-tensors. Everything else is refused by name. */
#include "model/checkpoint/config/config_quant.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"

enum { MOST_GROUP = 1 << 20, MOST_VALUES = 5 };

/* Activation order "weight" and "static" sort the columns before they are quantized and store them
 * in their own order again, so that the numbers are ordinary; "group" stores an order besides
 * (weight_g_idx). */

/* A key and the only values that it may have, as JSON. Null means "not set" and always passes. */
struct allowed {
    const char *key;
    const char *values[MOST_VALUES];
    bool is_free; /* any value passes */
    bool is_demanded;
};

/* ---- tables of keys ---- */

/* Models that are computed in one form, int8 or int4, as `outrider export` writes them. */
static const struct allowed uniform_top[] = {
    {"quant_method", {"\"compressed-tensors\""}, false, true},
    {"format", {"\"pack-quantized\""}, false, true},
    {"config_groups", {0}, true, true},
    {"ignore", {"[\"lm_head\"]", "[]"}, false, false},
    {"quantization_status", {"\"compressed\""}, false, false},
    {"kv_cache_scheme", {0}, false, false},
    {"sparsity_config", {"{}"}, false, false},
    {"transform_config", {"{}"}, false, false},
    {"global_compression_ratio", {0}, true, false},
    {"version", {0}, true, false},
    {0},
};

static const struct allowed uniform_group[] = {
    {"weights", {0}, true, true},
    {"targets", {"[\"Linear\"]"}, false, true},
    {"format", {"\"pack-quantized\""}, false, false},
    {"input_activations", {0}, false, false},
    {"output_activations", {0}, false, false},
    {0},
};

static const struct allowed uniform_weights[] = {
    {"num_bits", {"4", "8"}, false, true},
    {"type", {"\"int\""}, false, true},
    {"symmetric", {"true"}, false, true},
    {"strategy", {"\"group\""}, false, true},
    {"group_size", {0}, true, true},
    {"dynamic", {"false"}, false, false},
    {"actorder", {"false", "\"weight\"", "\"static\""}, false, false},
    {"block_structure", {0}, false, false},
    {"observer", {0}, true, false},
    {"observer_kwargs", {0}, true, false},
    {"scale_dtype", {0}, false, false},
    {"zp_dtype", {0}, false, false},
    {0},
};

/* Others of compressed-tensors. Whatever the tensors themselves say is free: which matrices are
 * quantized, with how many scales, with zeros or without. */
#define FORMATS                                                                                  \
    {                                                                                            \
        "\"pack-quantized\"", "\"int-quantized\"", "\"float-quantized\"", "\"naive-quantized\"", \
            "\"mixed-precision\""                                                                \
    }

static const struct allowed top_keys[] = {
    {"quant_method", {"\"compressed-tensors\""}, false, true},
    {"format", FORMATS, false, true},
    {"config_groups", {0}, true, true},
    {"ignore", {0}, true, false},
    {"quantization_status", {"\"compressed\""}, false, false},
    {"kv_cache_scheme", {0}, true, false},
    {"sparsity_config", {"{}"}, false, false},
    {"transform_config", {"{}"}, false, false},
    {"global_compression_ratio", {0}, true, false},
    {"version", {0}, true, false},
    {0},
};

static const struct allowed group_keys[] = {
    {"weights", {0}, true, true},
    {"targets", {0}, true, false},
    {"format", FORMATS, false, false},
    {"input_activations", {0}, true, false},
    {"output_activations", {0}, true, false},
    {0},
};

static const struct allowed weight_keys[] = {
    {"num_bits", {"4", "8"}, false, true},
    {"type", {"\"int\"", "\"float\""}, false, true},
    {"symmetric", {"true", "false"}, false, false},
    {"strategy", {"\"group\"", "\"channel\"", "\"tensor\"", "\"block\""}, false, false},
    {"group_size", {0}, true, false},
    {"dynamic", {"false"}, false, false},
    {"actorder", {0}, true, false},
    {"block_structure", {0}, true, false},
    {"observer", {0}, true, false},
    {"observer_kwargs", {0}, true, false},
    {"scale_dtype", {0}, true, false},
    {"zp_dtype", {0}, true, false},
    {0},
};

/* Keys of the other methods that change what a number means. Tools write many more. */
static const struct allowed awq_keys[] = {
    {"bits", {"4"}, false, true},
    {"version", {"\"gemm\"", "\"GEMM\""}, false, false},
    {"backend", {"\"autoawq\"", "\"auto\""}, false, false},
    {0},
};

static const struct allowed gptq_keys[] = {
    {"bits", {"4", "8"}, false, true},
    {"checkpoint_format", {"\"gptq\"", "\"gptq_v2\""}, false, false},
    {"format", {"\"gptq\"", "\"gptq_v2\""}, false, false},
    {"is_marlin_format", {"false"}, false, false},
    {"pack_dtype", {"\"int32\""}, false, false},
    {"rotation", {0}, false, false},
    {0},
};

static const struct allowed fp8_keys[] = {
    {"fmt", {"\"e4m3\"", "\"float8_e4m3fn\""}, false, false},
    {"weight_block_size", {0}, true, false},
    {"activation_scheme", {0}, true, false},
    {"quant_algo", {"\"FP8\""}, false, false}, /* of modelopt, which has others */
    {0},
};

static const char only[] =
    "the ones that are: AWQ (4 bits, gemm), GPTQ (4 and 8 bits), FP8 (e4m3) and "
    "compressed-tensors' "
    "pack-, int-, float- and naive-quantized, of 4 and 8 bits in groups of a multiple of 32, rows "
    "or blocks";

/* ---- checking ---- */

static bool value_is_allowed(const struct allowed *key, const json_t *value)
{
    if (key->is_free || json_is_null(value)) return true;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bool fits = false;
    for (int i = 0; text && i < MOST_VALUES && key->values[i]; i++) {
        fits |= strcmp(text, key->values[i]) == 0;
    }
    free(text);
    return fits;
}

static int check_demanded(json_t *object, const struct allowed *keys, const char *origin,
                          struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    for (const struct allowed *key = keys; key->key; key++) {
        if (key->is_demanded && !json_member(object, key->key)) {
            return error_set(err, ERR_UNSUPPORTED,
                             "%s: \"quantization_config\" has %s, without \"%s\"; %s", origin,
                             config_keys_show(object, shown), key->key, only);
        }
    }
    return 0;
}

/* Refuses values that no row allows and, if is_closed, keys that have no row. */
static int check_object(json_t *object, const struct allowed *keys, bool is_closed,
                        const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    int rc = check_demanded(object, keys, origin, err);
    if (rc) return rc;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const struct allowed *key = keys;
        const json_t *value = json_object_iter_value(at);
        while (key->key && strcmp(key->key, json_object_iter_key(at)) != 0)
            key++;
        if (key->key ? value_is_allowed(key, value) : !is_closed) continue;
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s: \"quantization_config\" has \"%.64s\" = %s, which is not supported; %s", origin,
            json_object_iter_key(at), config_keys_show(value, shown), only);
    }
    return 0;
}

static int check_group_size(const json_t *object, int *group, const char *origin, struct error *err)
{
    int size = -1;
    int rc = json_read_int(object, "group_size", -1, MOST_GROUP, &size, origin, err);
    if (rc) return rc;
    if (size == 0 || (size > 0 && size % QUANT_GROUP)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"quantization_config\" has \"group_size\" = %d, which is no "
                         "multiple of %d",
                         origin, size, QUANT_GROUP);
    }
    *group = size < 0 ? 0 : size;
    return 0;
}

/* [rows, columns] that share a scale. */
static int read_block(struct quant_scheme *scheme, const json_t *sizes, const char *key,
                      const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    json_int_t rows = json_integer_value(json_array_get(sizes, 0));
    json_int_t cols = json_integer_value(json_array_get(sizes, 1));
    if (json_array_size(sizes) != 2 || rows < 1 || rows > MOST_GROUP || cols < 1 ||
        cols > MOST_GROUP || cols % QUANT_GROUP) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"%s\" is %s, not two sizes of which the second is a multiple of %d",
                         origin, key, config_keys_show(sizes, shown), QUANT_GROUP);
    }
    scheme->block_rows = (int)rows;
    scheme->block_cols = (int)cols;
    return 0;
}

/* ---- compressed-tensors ---- */

/* Sets cfg->stored and cfg->stored_group if the model has this one form; *err is set otherwise. */
static int read_uniform(struct model_config *cfg, json_t *quantization, const char *origin,
                        struct error *err)
{
    json_t *groups = json_member(quantization, "config_groups");
    json_t *group = json_object_iter_value(json_object_iter(groups));
    json_t *weights = json_member(group, "weights");
    int rc = 0, n_bits = 0, size = 0;
    TRY(check_object(quantization, uniform_top, true, origin, err));
    if (json_object_size(groups) != 1) return ERR_UNSUPPORTED;
    TRY(check_object(group, uniform_group, true, origin, err));
    TRY(check_object(weights, uniform_weights, true, origin, err));
    TRY(json_read_int(weights, "num_bits", 4, 8, &n_bits, origin, err));
    TRY(check_group_size(weights, &size, origin, err));
    if (size == 0) return ERR_UNSUPPORTED;
    cfg->stored = n_bits == 8 ? WEIGHTS_INT8 : WEIGHTS_INT4;
    cfg->stored_group = size;
out:
    return rc;
}

static int read_group(struct quant_scheme *scheme, json_t *group, const char *origin,
                      struct error *err)
{
    json_t *weights = json_member(group, "weights");
    const char *type = NULL;
    int rc = 0, n_bits = 0, unused = 0;
    TRY(check_object(group, group_keys, true, origin, err));
    TRY(check_object(weights, weight_keys, true, origin, err));
    TRY(json_read_int(weights, "num_bits", 4, 8, &n_bits, origin, err));
    TRY(json_read_string(weights, "type", &type, origin, err));
    TRY(check_group_size(weights, &unused, origin, err));
    if (strcmp(type, "float") == 0 && n_bits != 8) {
        rc =
            error_set(err, ERR_UNSUPPORTED,
                      "%s: \"quantization_config\" has floats of %d bits, which are not supported; "
                      "%s",
                      origin, n_bits, only);
    }
    const json_t *block = json_member(weights, "block_structure");
    if (block) TRY(read_block(scheme, block, "block_structure", origin, err));
    scheme->has_quantized_activations |= json_member(group, "input_activations") != NULL;
out:
    return rc;
}

static int read_compressed(struct model_config *cfg, struct quant_scheme *scheme,
                           json_t *quantization, const char *origin, struct error *err)
{
    json_t *groups = json_member(quantization, "config_groups");
    int rc = 0;
    if (!read_uniform(cfg, quantization, origin, err)) return 0;
    TRY(check_object(quantization, top_keys, true, origin, err));
    if (json_object_size(groups) < 1) {
        return error_set(err, ERR_UNSUPPORTED, "%s: \"quantization_config\" has no config_groups",
                         origin);
    }
    for (void *at = json_object_iter(groups); at; at = json_object_iter_next(groups, at)) {
        TRY(read_group(scheme, json_object_iter_value(at), origin, err));
    }
    scheme->has_quantized_activations |= json_member(quantization, "kv_cache_scheme") != NULL;
    scheme->method = QUANT_COMPRESSED;
out:
    return rc;
}

/* ---- the others ---- */

static int read_awq(struct quant_scheme *scheme, json_t *quantization, const char *origin,
                    struct error *err)
{
    int rc = 0;
    TRY(check_object(quantization, awq_keys, false, origin, err));
    TRY(check_group_size(quantization, &scheme->group, origin, err));
    scheme->method = QUANT_AWQ;
out:
    return rc;
}

static int read_gptq(struct quant_scheme *scheme, json_t *quantization, const char *origin,
                     struct error *err)
{
    const char *format = "gptq";
    int rc = 0;
    TRY(check_object(quantization, gptq_keys, false, origin, err));
    TRY(check_group_size(quantization, &scheme->group, origin, err));
    TRY(json_read_string(quantization, "format", &format, origin, err));
    TRY(json_read_string(quantization, "checkpoint_format", &format, origin, err));
    scheme->method = strcmp(format, "gptq_v2") == 0 ? QUANT_GPTQ_V2 : QUANT_GPTQ;
out:
    return rc;
}

static int read_fp8(struct quant_scheme *scheme, json_t *quantization, const char *origin,
                    struct error *err)
{
    static const char key[] = "weight_block_size";
    const json_t *block = json_member(quantization, key);
    int rc = 0;
    TRY(check_object(quantization, fp8_keys, false, origin, err));
    if (block) TRY(read_block(scheme, block, key, origin, err));
    scheme->method = QUANT_COMPRESSED;
    scheme->has_quantized_activations = true;
out:
    return rc;
}

static int refuse(json_t *quantization, const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    const json_t *method = json_member(quantization, "quant_method");
    if (method) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: the weights are quantized by %s, which is not supported; %s", origin,
                         config_keys_show(method, shown), only);
    }
    /* Old files of bitsandbytes say only how it loads. */
    if (json_is_true(json_member(quantization, "load_in_8bit")) ||
        json_is_true(json_member(quantization, "load_in_4bit"))) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: the weights are quantized by \"bitsandbytes\", which is not "
                         "supported; %s",
                         origin, only);
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: \"quantization_config\" has %s, without \"quant_method\"; %s", origin,
                     config_keys_show(quantization, shown), only);
}

int config_quant_read(struct model_config *cfg, struct quant_scheme *scheme, const json_t *root,
                      const char *origin, struct error *err)
{
    json_t *quantization = json_member(root, "quantization_config");
    if (!quantization) quantization = json_member(root, "compression_config"); /* its old name */
    const char *method = json_string_value(json_member(quantization, "quant_method"));
    int rc = 0;
    *scheme = (struct quant_scheme){0};
    if (!quantization) return 0;
    if (!method) return refuse(quantization, origin, err);
    if (strcmp(method, "compressed-tensors") == 0) {
        TRY(read_compressed(cfg, scheme, quantization, origin, err));
    } else if (strcmp(method, "awq") == 0) {
        TRY(read_awq(scheme, quantization, origin, err));
    } else if (strcmp(method, "gptq") == 0) {
        TRY(read_gptq(scheme, quantization, origin, err));
    } else if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0 ||
               strcmp(method, "modelopt") == 0) {
        TRY(read_fp8(scheme, quantization, origin, err));
    } else {
        return refuse(quantization, origin, err);
    }
    if (scheme->method) cfg->stored = WEIGHTS_BLOCKS;
out:
    return rc;
}
