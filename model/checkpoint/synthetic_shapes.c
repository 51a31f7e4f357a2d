/* The dimensions of well-known models, for synthetic models of their shape, which cost as much to
 * run as the originals and need no download. From the config.json that each is published with. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint/config/family.h"
#include "model/checkpoint/internal.h"

struct shape {
    const char *name, *model_type;
    int n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim, vocab_size, max_positions;
    float norm_eps;
    double theta;
    double llama3_factor; /* 0: plain rope */
    bool tied_embeddings;
};

#define SIZE(layers, width, heads, kv_heads, head_width, ffn, vocab, positions)         \
    .n_layers = (layers), .dim = (width), .n_heads = (heads), .n_kv_heads = (kv_heads), \
    .head_dim = (head_width), .ffn_dim = (ffn), .vocab_size = (vocab),                  \
    .max_positions = (positions)
#define MATH(eps, rope_theta, factor, tied) \
    .norm_eps = (eps), .theta = (rope_theta), .llama3_factor = (factor), .tied_embeddings = (tied)

static const struct shape shapes[] = {
    {"tiny", "llama", SIZE(2, 128, 8, 4, 16, 256, 512, 512), MATH(1e-5f, 1e4, 0, false)},
    /* Heads that 3, 5, 6 and 7 ranks can share, and no power of two. */
    {"tiny-3", "llama", SIZE(2, 128, 9, 3, 16, 192, 512, 512), MATH(1e-5f, 1e4, 0, false)},
    {"tiny-5", "llama", SIZE(2, 128, 10, 5, 16, 320, 512, 512), MATH(1e-5f, 1e4, 0, false)},
    {"tiny-6", "llama", SIZE(2, 128, 12, 3, 16, 192, 512, 512), MATH(1e-5f, 1e4, 0, false)},
    {"tiny-7", "llama", SIZE(2, 128, 7, 7, 16, 224, 512, 512), MATH(1e-5f, 1e4, 0, false)},
    {"tinyllama-1.1b", "llama", SIZE(22, 2048, 32, 4, 64, 5632, 32000, 2048),
     MATH(1e-5f, 1e4, 0, false)},
    {"llama-2-7b", "llama", SIZE(32, 4096, 32, 32, 128, 11008, 32000, 4096),
     MATH(1e-5f, 1e4, 0, false)},
    {"llama-3.2-1b", "llama", SIZE(16, 2048, 32, 8, 64, 8192, 128256, 131072),
     MATH(1e-5f, 5e5, 32, true)},
    {"llama-3.2-3b", "llama", SIZE(28, 3072, 24, 8, 128, 8192, 128256, 131072),
     MATH(1e-5f, 5e5, 32, true)},
    {"llama-3.1-8b", "llama", SIZE(32, 4096, 32, 8, 128, 14336, 128256, 131072),
     MATH(1e-5f, 5e5, 8, false)},
    {"llama-3.1-70b", "llama", SIZE(80, 8192, 64, 8, 128, 28672, 128256, 131072),
     MATH(1e-5f, 5e5, 8, false)},
    {"smollm2-135m", "llama", SIZE(30, 576, 9, 3, 64, 1536, 49152, 8192),
     MATH(1e-5f, 1e5, 0, true)},
    {"smollm2-360m", "llama", SIZE(32, 960, 15, 5, 64, 2560, 49152, 8192),
     MATH(1e-5f, 1e5, 0, true)},
    {"mistral-7b", "mistral", SIZE(32, 4096, 32, 8, 128, 14336, 32768, 32768),
     MATH(1e-5f, 1e6, 0, false)},
    {"qwen2.5-0.5b", "qwen2", SIZE(24, 896, 14, 2, 64, 4864, 151936, 32768),
     MATH(1e-6f, 1e6, 0, true)},
    {"qwen2.5-1.5b", "qwen2", SIZE(28, 1536, 12, 2, 128, 8960, 151936, 32768),
     MATH(1e-6f, 1e6, 0, true)},
    {"qwen2.5-7b", "qwen2", SIZE(28, 3584, 28, 4, 128, 18944, 152064, 32768),
     MATH(1e-6f, 1e6, 0, false)},
    {"qwen3-0.6b", "qwen3", SIZE(28, 1024, 16, 8, 128, 3072, 151936, 40960),
     MATH(1e-6f, 1e6, 0, true)},
    {"qwen3-8b", "qwen3", SIZE(36, 4096, 32, 8, 128, 12288, 151936, 40960),
     MATH(1e-6f, 1e6, 0, false)},
};

static struct rope_config rope_of(const struct shape *shape)
{
    struct rope_config rope = {
        .theta = shape->theta,
        .factor = 1,
        .attention_factor = 1,
        .original_max_positions = shape->max_positions,
    };
    if (shape->llama3_factor > 0) {
        rope.kind = ROPE_LLAMA3;
        rope.factor = shape->llama3_factor;
        rope.low_freq_factor = 1;
        rope.high_freq_factor = 4;
        rope.original_max_positions = 8192;
    }
    return rope;
}

static void config_of(const struct shape *shape, struct model_config *cfg)
{
    const struct model_family *family = family_of_type(shape->model_type);
    assert(family); /* every shape names a row of family.c */
    *cfg = (struct model_config){
        .n_layers = shape->n_layers,
        .dim = shape->dim,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
        .ffn_dim = shape->ffn_dim,
        .vocab_size = shape->vocab_size,
        .max_positions = shape->max_positions,
        .norm_eps = shape->norm_eps,
        .ropes = {rope_of(shape)},
        .tied_embeddings = shape->tied_embeddings,
        .qkv_bias = family->qkv_bias,
        .qk_norm = family->qk_norm,
        .bos_id = -1,
    };
    snprintf(cfg->architecture, sizeof cfg->architecture, "%s", family->architecture);
}

bool checkpoint_named_shape(const char *name, struct model_config *cfg)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) != 0) continue;
        config_of(&shapes[i], cfg);
        return true;
    }
    return false;
}

void checkpoint_shape_names(char *text, size_t text_bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && len < text_bytes; i++) {
        int n = snprintf(text + len, text_bytes - len, "%s%s", i ? ", " : "", shapes[i].name);
        len += (size_t)n;
    }
}
