/* quantization_config: how the matrices of the layers are stored. One convention is understood:
 * that of the library compressed-tensors, which vLLM and transformers read too, with symmetric
 * integers of 4 or 8 bits and one bf16 scale for each group of a row. Everything else is refused by
 * name. */
#include "model/checkpoint/config/config_quant.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"

enum { MOST_GROUP = 1 << 20 };

/* Activation order "weight" and "static" sort the columns before they are quantized and store them
 * in their own order again, so that the numbers are ordinary; "group" stores an order besides
 * (weight_g_idx), which nobody here reads. */

/* A key and the only values that it may have, as JSON. Null means "not set" and always passes. */
struct allowed {
    const char *key;
    const char *values[3];
    bool is_free; /* any value passes */
    bool is_demanded;
};

static const struct allowed top_keys[] = {
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

static const struct allowed group_keys[] = {
    {"weights", {0}, true, true},
    {"targets", {"[\"Linear\"]"}, false, true},
    {"format", {"\"pack-quantized\""}, false, false},
    {"input_activations", {0}, false, false},
    {"output_activations", {0}, false, false},
    {0},
};

static const struct allowed weight_keys[] = {
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

static const char only[] =
    "only compressed-tensors' \"pack-quantized\" is: symmetric integers of 4 or "
    "8 bits in groups of a multiple of 32, all matrices but lm_head";

static bool value_is_allowed(const struct allowed *key, const json_t *value)
{
    if (key->is_free || json_is_null(value)) return true;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bool fits = false;
    for (int i = 0; text && i < 3 && key->values[i]; i++) {
        fits |= strcmp(text, key->values[i]) == 0;
    }
    free(text);
    return fits;
}

static int check_object(json_t *object, const struct allowed *keys, const char *origin,
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
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const struct allowed *key = keys;
        const json_t *value = json_object_iter_value(at);
        while (key->key && strcmp(key->key, json_object_iter_key(at)) != 0)
            key++;
        if (key->key && value_is_allowed(key, value)) continue;
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s: \"quantization_config\" has \"%.64s\" = %s, which is not supported; %s", origin,
            json_object_iter_key(at), config_keys_show(value, shown), only);
    }
    return 0;
}

static int read_weights(struct model_config *cfg, json_t *weights, const char *origin,
                        struct error *err)
{
    int n_bits = 0, rc = 0;
    TRY(check_object(weights, weight_keys, origin, err));
    TRY(json_read_int(weights, "num_bits", 4, 8, &n_bits, origin, err));
    TRY(json_read_int(weights, "group_size", 1, MOST_GROUP, &cfg->stored_group, origin, err));
    if (cfg->stored_group % QUANT_GROUP) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"quantization_config\" has \"group_size\" = %d, which is no "
                         "multiple of %d",
                         origin, cfg->stored_group, QUANT_GROUP);
    }
    cfg->stored = n_bits == 8 ? WEIGHTS_INT8 : WEIGHTS_INT4;
out:
    return rc;
}

/* The method first, because the keys of another one say little. Of bitsandbytes old files say only
 * how it loads. */
static int check_method(json_t *quantization, const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    const json_t *method = json_member(quantization, "quant_method");
    if (!method && (json_is_true(json_member(quantization, "load_in_8bit")) ||
                    json_is_true(json_member(quantization, "load_in_4bit")))) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: the weights are quantized by \"bitsandbytes\", which is not "
                         "supported; %s",
                         origin, only);
    }
    if (!method || value_is_allowed(&top_keys[0], method)) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: the weights are quantized by %s, which is not supported; %s", origin,
                     config_keys_show(method, shown), only);
}

int config_quant_read(struct model_config *cfg, const json_t *root, const char *origin,
                      struct error *err)
{
    json_t *quantization = json_member(root, "quantization_config");
    int rc = 0;
    if (!quantization) return 0;
    TRY(check_method(quantization, origin, err));
    TRY(check_object(quantization, top_keys, origin, err));
    json_t *groups = json_member(quantization, "config_groups");
    if (json_object_size(groups) != 1) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"quantization_config\" has %zu config_groups; one is supported",
                         origin, json_object_size(groups));
    }
    json_t *group = json_object_iter_value(json_object_iter(groups));
    TRY(check_object(group, group_keys, origin, err));
    TRY(read_weights(cfg, json_member(group, "weights"), origin, err));
out:
    return rc;
}
