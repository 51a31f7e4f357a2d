/* struct model_config to config.json: the way back of config.c and config_rope.c. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint/family.h"
#include "model/export/text.h"

enum { NUMBER_BYTES = 40 };

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* The shortest text that is read back as this number, and never one that could be taken for an integer:
 * some classes insist on floats. */
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

static void write_shape(FILE *out, const struct model_config *cfg)
{
    char eps[NUMBER_BYTES];
    fprintf(out, "  \"hidden_act\": \"silu\",\n");
    fprintf(out, "  \"hidden_size\": %d,\n", cfg->dim);
    fprintf(out, "  \"intermediate_size\": %d,\n", cfg->ffn_dim);
    fprintf(out, "  \"num_hidden_layers\": %d,\n", cfg->n_layers);
    fprintf(out, "  \"num_attention_heads\": %d,\n", cfg->n_heads);
    fprintf(out, "  \"num_key_value_heads\": %d,\n", cfg->n_kv_heads);
    fprintf(out, "  \"head_dim\": %d,\n", cfg->head_dim);
    fprintf(out, "  \"vocab_size\": %d,\n", cfg->vocab_size);
    fprintf(out, "  \"max_position_embeddings\": %d,\n", cfg->max_positions);
    fprintf(out, "  \"rms_norm_eps\": %s,\n", single(eps, cfg->norm_eps));
    fprintf(out, "  \"tie_word_embeddings\": %s,\n", truth(cfg->tied_embeddings));
    fprintf(out, "  \"attention_dropout\": 0.0,\n  \"initializer_range\": 0.02,\n");
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
    static const char *const kinds[] = {
        [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    const struct rope_config *rope = &cfg->rope;
    char a[NUMBER_BYTES], b[NUMBER_BYTES], c[NUMBER_BYTES];
    fprintf(out, "  \"rope_theta\": %s,\n", real(a, rope->theta));
    if (rope->kind == ROPE_DEFAULT) {
        fprintf(out, "  \"rope_scaling\": null,\n");
        return;
    }
    fprintf(out, "  \"rope_scaling\": {\n    \"rope_type\": \"%s\",\n    \"factor\": %s",
            kinds[rope->kind], real(a, rope->factor));
    if (rope->kind == ROPE_LLAMA3) {
        fprintf(out, ",\n    \"low_freq_factor\": %s,\n    \"high_freq_factor\": %s",
                real(a, rope->low_freq_factor), real(b, rope->high_freq_factor));
    }
    if (rope->kind == ROPE_YARN) {
        fprintf(
            out, ",\n    \"beta_fast\": %s,\n    \"beta_slow\": %s,\n    \"attention_factor\": %s",
            real(a, rope->beta_fast), real(b, rope->beta_slow), real(c, rope->attention_factor));
        if (!rope->truncate) fprintf(out, ",\n    \"truncate\": false");
    }
    if (rope->kind != ROPE_LINEAR) {
        fprintf(out, ",\n    \"original_max_position_embeddings\": %d",
                rope->original_max_positions);
    }
    fprintf(out, "\n  },\n");
}

/* Keys that only some classes know; a window is written as the limit that config.c makes of it. */
static void write_family(FILE *out, const struct model_config *cfg,
                         const struct model_family *family)
{
    bool slides = cfg->sliding_window > 0;
    if (family->has_attention_bias) {
        fprintf(out, "  \"attention_bias\": %s,\n", truth(cfg->o_bias));
    }
    if (family->has_mlp_bias) {
        fprintf(out, "  \"mlp_bias\": %s,\n", truth(cfg->mlp_bias));
    }
    if (family->has_window_switch) {
        fprintf(out, "  \"use_sliding_window\": %s,\n  \"max_window_layers\": %d,\n", truth(slides),
                slides ? 0 : cfg->n_layers);
    }
    if (!family->has_window) return;
    if (slides) {
        fprintf(out, "  \"sliding_window\": %d,\n", cfg->sliding_window);
    } else {
        fprintf(out, "  \"sliding_window\": null,\n");
    }
}

/* As the library compressed-tensors writes it; config_quant.c reads it back. */
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

int export_config_text(const struct model_config *cfg, char **text, size_t *len, struct error *err)
{
    const struct model_family *family = family_of_architecture(cfg->architecture);
    assert(family); /* config_parse and the named shapes know no other */
    *text = NULL;
    FILE *out = open_memstream(text, len);
    if (!out) return error_set(err, ERR_NO_MEMORY, "no memory for config.json");
    fprintf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
            cfg->architecture, family->model_type);
    write_shape(out, cfg);
    write_family(out, cfg, family);
    write_rope(out, cfg);
    write_ids(out, cfg);
    write_quantization(out, cfg);
    fprintf(out, "  \"torch_dtype\": \"bfloat16\",\n  \"use_cache\": true\n}\n");
    if (fclose(out) == 0) return 0;
    free(*text);
    *text = NULL;
    return error_set(err, ERR_NO_MEMORY, "no memory for config.json");
}
