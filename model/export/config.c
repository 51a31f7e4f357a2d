/* struct model_config to config.json: what model/checkpoint/config/config_parse.c reads. Most lines
 * come from the table of model/checkpoint/config/config_fields.c. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/config/config_fields.h"
#include "model/checkpoint/config/config_rope.h"
#include "model/checkpoint/config/family.h"
#include "model/export/text.h"

enum { NUMBER_BYTES = 40 };

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* The shortest text that is read back as this number, and never one that could be taken for an
 * integer: some classes insist on floats. */
static const char *real(char text[NUMBER_BYTES], double value)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(text, NUMBER_BYTES, "%.1f", value);
        return text;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

/* A float's own shortest text: 1e-05, not 9.999999747378752e-06. */
static const char *single(char text[NUMBER_BYTES], float value)
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, NUMBER_BYTES, "%.*g", digits, (double)value);
        if ((float)strtod(text, NULL) == value) break;
    }
    return text;
}

/* The field's value as JSON. */
static const char *value_text(char text[NUMBER_BYTES], const struct config_field *field,
                              const struct model_config *cfg)
{
    const void *value = config_field_value(field, cfg);
    switch (field->type) {
    case CONFIG_INT:
        snprintf(text, NUMBER_BYTES, "%d", *(const int *)value);
        return text;
    case CONFIG_BOOL:
        return truth(*(const bool *)value);
    case CONFIG_FLOAT:
        return single(text, *(const float *)value);
    case CONFIG_DOUBLE:
        return real(text, *(const double *)value);
    case CONFIG_TEXT:
    case CONFIG_IDS:
    case CONFIG_FLOATS:
    case CONFIG_ROPE:
    case CONFIG_LAYERS:
        break;
    }
    assert(false); /* these are written by hand */
    return "";
}

/* The lines of the fields that the table has at `place`. */
static void write_fields(FILE *out, const struct model_config *cfg, enum config_field_place place)
{
    const struct model_family *family = family_of_architecture(cfg->architecture);
    bool is_in_rope = place == CONFIG_IN_ROPE;
    int n;
    const struct config_field *field = config_fields(&n);
    for (; n > 0; n--, field++) {
        char text[NUMBER_BYTES];
        if (field->place != place) continue;
        if (is_in_rope && !(field->kinds >> cfg->ropes[0].kind & 1)) continue;
        if (place == CONFIG_IN_FAMILY && !family_has_key(family, field->key)) continue;
        const char *value = value_text(text, field, cfg);
        if (field->left_out && strcmp(value, field->left_out) == 0) continue;
        fprintf(out, is_in_rope ? ",\n    \"%s\": %s" : "  \"%s\": %s,\n", field->key, value);
    }
}

static void write_ids(FILE *out, const struct model_config *cfg)
{
    if (cfg->bos_id >= 0) {
        fprintf(out, "  \"bos_token_id\": %d,\n", cfg->bos_id);
    } else {
        fprintf(out, "  \"bos_token_id\": null,\n");
    }
    if (cfg->ends.n == 0) fprintf(out, "  \"eos_token_id\": null,\n");
    if (cfg->ends.n == 1) fprintf(out, "  \"eos_token_id\": %" PRId32 ",\n", cfg->ends.ids[0]);
    if (cfg->ends.n < 2) return;
    fprintf(out, "  \"eos_token_id\": [");
    for (int i = 0; i < cfg->ends.n; i++) {
        fprintf(out, "%s%" PRId32, i ? ", " : "", cfg->ends.ids[i]);
    }
    fprintf(out, "],\n");
}

static void write_rope(FILE *out, const struct model_config *cfg)
{
    write_fields(out, cfg, CONFIG_BESIDE_ROPE);
    if (cfg->ropes[0].kind == ROPE_DEFAULT) {
        fprintf(out, "  \"rope_scaling\": null,\n");
        return;
    }
    fprintf(out, "  \"rope_scaling\": {\n    \"rope_type\": \"%s\"",
            config_rope_kind_name(cfg->ropes[0].kind));
    write_fields(out, cfg, CONFIG_IN_ROPE);
    fprintf(out, "\n  },\n");
}

/* The window of the layers that have one, which is the same for all in the families that are known;
 * 0: none has. */
static int window_of(const struct model_config *cfg)
{
    int window = 0;
    for (int i = 0; i < cfg->n_layers && window == 0; i++) {
        window = config_layer(cfg, i)->window;
    }
    return window;
}

/* Layers from here on have a window. */
static int first_window(const struct model_config *cfg)
{
    int first = cfg->n_layers;
    while (first > 0 && config_layer(cfg, first - 1)->window > 0) {
        first--;
    }
    return first;
}

/* Says which layers have a window, for families in which not all do. A list is written only where
 * the older key cannot say it. */
static void write_window_layers(FILE *out, const struct model_config *cfg)
{
    int first = first_window(cfg);
    bool are_full_before = true;
    for (int i = 0; i < first; i++) {
        are_full_before = are_full_before && config_layer(cfg, i)->window == 0;
    }
    fprintf(out, "  \"use_sliding_window\": %s,\n  \"max_window_layers\": %d,\n",
            truth(window_of(cfg) > 0), first);
    if (are_full_before) return;
    fprintf(out, "  \"layer_types\": [");
    for (int i = 0; i < cfg->n_layers; i++) {
        fprintf(out, "%s\n    \"%s_attention\"", i ? "," : "",
                config_layer(cfg, i)->window > 0 ? "sliding" : "full");
    }
    fprintf(out, "\n  ],\n");
}

static void write_window(FILE *out, const struct model_config *cfg)
{
    const struct model_family *family = family_of_architecture(cfg->architecture);
    int window = window_of(cfg);
    if (family_has_key(family, "use_sliding_window")) write_window_layers(out, cfg);
    if (!family_has_key(family, "sliding_window")) return;
    if (window > 0) {
        fprintf(out, "  \"sliding_window\": %d,\n", window);
    } else {
        fprintf(out, "  \"sliding_window\": null,\n");
    }
}

/* As the library compressed-tensors writes it; model/checkpoint/config/config_quant.c reads it
 * back. */
static void write_quantization(FILE *out, const struct model_config *cfg)
{
    if (cfg->stored == WEIGHTS_BF16) return;
    fprintf(out,
            "  \"quantization_config\": {\n"
            "    \"quant_method\": \"compressed-tensors\",\n"
            "    \"format\": \"pack-quantized\",\n"
            "    \"quantization_status\": \"compressed\",\n"
            "    \"global_compression_ratio\": null,\n"
            "    \"kv_cache_scheme\": null,\n"
            "    \"ignore\": [\"lm_head\"],\n"
            "    \"config_groups\": {\n"
            "      \"group_0\": {\n"
            "        \"targets\": [\"Linear\"],\n"
            "        \"input_activations\": null,\n"
            "        \"output_activations\": null,\n"
            "        \"weights\": {\n"
            "          \"num_bits\": %d,\n"
            "          \"type\": \"int\",\n"
            "          \"symmetric\": true,\n"
            "          \"strategy\": \"group\",\n"
            "          \"group_size\": %d,\n"
            "          \"dynamic\": false,\n"
            "          \"actorder\": null,\n"
            "          \"block_structure\": null,\n"
            "          \"observer\": \"minmax\",\n"
            "          \"observer_kwargs\": {}\n"
            "        }\n"
            "      }\n"
            "    }\n"
            "  },\n",
            cfg->stored == WEIGHTS_INT8 ? 8 : 4, cfg->stored_group);
}

int export_config_check(const struct model_config *cfg, struct error *err)
{
    if (!family_of_architecture(cfg->architecture)->is_read_only) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "models of the class %s cannot be exported; those of Llama, Mistral and Qwen "
                     "can. Other programs read the folder as it is, and --weights int8 or int4 of "
                     "the worker rounds it when it is loaded",
                     cfg->architecture);
}

int export_config_text(const struct model_config *cfg, char **text, size_t *len, struct error *err)
{
    const struct model_family *family = family_of_architecture(cfg->architecture);
    assert(family); /* config_parse and the named shapes know no other */
    *text = NULL;
    FILE *out = open_memstream(text, len);
    if (!out) return error_set(err, ERR_NO_MEMORY, "no memory for config.json");
    fprintf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
            cfg->architecture, family->model_type);
    fprintf(out, "  \"hidden_act\": \"silu\",\n");
    write_fields(out, cfg, CONFIG_AT_TOP);
    fprintf(out, "  \"attention_dropout\": 0.0,\n  \"initializer_range\": 0.02,\n");
    write_fields(out, cfg, CONFIG_IN_FAMILY);
    write_window(out, cfg);
    write_rope(out, cfg);
    write_ids(out, cfg);
    write_quantization(out, cfg);
    fprintf(out, "  \"torch_dtype\": \"bfloat16\",\n  \"use_cache\": true\n}\n");
    if (fclose(out) == 0) return 0;
    free(*text);
    *text = NULL;
    return error_set(err, ERR_NO_MEMORY, "no memory for config.json");
}
