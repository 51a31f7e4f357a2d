/* Names of tensors. */
#include "model/checkpoint/gguf/names.h"

#include <stdio.h>
#include <string.h>

/* Names outside of the layers. */
static const struct {
    const char *file, *folder;
} whole_names[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
enum { N_WHOLE = sizeof whole_names / sizeof *whole_names };

enum {
    ANY = 1 << GGUF_LAYOUT_PLAIN | 1 << GGUF_LAYOUT_NORMS_AROUND | 1 << GGUF_LAYOUT_NORMS_AFTER |
          1 << GGUF_LAYOUT_FUSED,
    SPLIT = ANY & ~(1 << GGUF_LAYOUT_FUSED),
    BEFORE = 1 << GGUF_LAYOUT_PLAIN | 1 << GGUF_LAYOUT_FUSED,
    AROUND = 1 << GGUF_LAYOUT_NORMS_AROUND,
    AFTER = 1 << GGUF_LAYOUT_NORMS_AFTER
};

/* Names within a layer, before ".weight" or ".bias", in the layouts that have them. */
static const struct {
    const char *file, *folder;
    unsigned layouts;
} layer_names[] = {
    {"attn_norm", "input_layernorm", BEFORE | AROUND},
    {"ffn_norm", "post_attention_layernorm", BEFORE},
    {"ffn_norm", "pre_feedforward_layernorm", AROUND},
    {"post_attention_norm", "post_attention_layernorm", AROUND | AFTER},
    {"post_ffw_norm", "post_feedforward_layernorm", AROUND | AFTER},
    {"attn_q", "self_attn.q_proj", SPLIT},
    {"attn_k", "self_attn.k_proj", SPLIT},
    {"attn_v", "self_attn.v_proj", SPLIT},
    {"attn_qkv", "self_attn.qkv_proj", 1 << GGUF_LAYOUT_FUSED},
    {"attn_q_norm", "self_attn.q_norm", ANY},
    {"attn_k_norm", "self_attn.k_norm", ANY},
    {"attn_output", "self_attn.o_proj", ANY},
    {"ffn_gate", "mlp.gate_proj", SPLIT},
    {"ffn_up", "mlp.up_proj", SPLIT},
    {"ffn_up", "mlp.gate_up_proj", 1 << GGUF_LAYOUT_FUSED},
    {"ffn_down", "mlp.down_proj", ANY},
};
enum { N_LAYER = sizeof layer_names / sizeof *layer_names };

/* The layer's number and the place of what follows it and a point; NULL: the name does not begin
 * with the prefix and a number as numbers are written. */
static const char *after_layer(const char *name, const char *prefix, int *layer)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0) return NULL;
    const char *digits = name + len;
    size_t n = strspn(digits, "0123456789");
    if (n < 1 || n > 6 || digits[n] != '.' || (n > 1 && digits[0] == '0')) return NULL;
    sscanf(digits, "%d", layer);
    return digits + n + 1;
}

/* True if `part` is `stem` with the ending of a weight or a bias, which *ending is set to. */
static bool has_stem(const char *part, const char *stem, const char **ending)
{
    size_t len = strlen(stem);
    if (strncmp(part, stem, len) != 0) return false;
    *ending = part + len;
    return strcmp(*ending, ".weight") == 0 || strcmp(*ending, ".bias") == 0;
}

bool gguf_folder_name(const struct gguf_arch *arch, const char *gguf_name,
                      char name[GGUF_NAME_BYTES])
{
    const char *ending;
    int layer;
    for (int i = 0; i < N_WHOLE; i++) {
        if (strcmp(whole_names[i].file, gguf_name) != 0) continue;
        snprintf(name, GGUF_NAME_BYTES, "%s", whole_names[i].folder);
        return true;
    }
    const char *part = after_layer(gguf_name, "blk.", &layer);
    for (int i = 0; part && i < N_LAYER; i++) {
        if (!(layer_names[i].layouts >> arch->layout & 1)) continue;
        if (!has_stem(part, layer_names[i].file, &ending)) continue;
        snprintf(name, GGUF_NAME_BYTES, "model.layers.%d.%s%s", layer, layer_names[i].folder,
                 ending);
        return true;
    }
    return false;
}

bool gguf_file_name(const struct gguf_arch *arch, const char *folder_name,
                    char name[GGUF_NAME_BYTES])
{
    const char *ending;
    int layer;
    for (int i = 0; i < N_WHOLE; i++) {
        if (strcmp(whole_names[i].folder, folder_name) != 0) continue;
        snprintf(name, GGUF_NAME_BYTES, "%s", whole_names[i].file);
        return true;
    }
    const char *part = after_layer(folder_name, "model.layers.", &layer);
    for (int i = 0; part && i < N_LAYER; i++) {
        if (!(layer_names[i].layouts >> arch->layout & 1)) continue;
        if (!has_stem(part, layer_names[i].folder, &ending)) continue;
        snprintf(name, GGUF_NAME_BYTES, "blk.%d.%s%s", layer, layer_names[i].file, ending);
        return true;
    }
    return false;
}

bool gguf_is_of_q_or_k(const char *gguf_name)
{
    const char *ending;
    int layer;
    const char *part = after_layer(gguf_name, "blk.", &layer);
    return part && (has_stem(part, "attn_q", &ending) || has_stem(part, "attn_k", &ending));
}

bool gguf_is_table(const char *gguf_name)
{
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    const char *ending;
    int layer;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], gguf_name) == 0) return true;
    }
    const char *part = after_layer(gguf_name, "blk.", &layer);
    return part && has_stem(part, "attn_rot_embd", &ending);
}
