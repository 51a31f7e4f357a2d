/* Values that follow from the dimensions of a model, and the kinds of its layers. */
#include "model/checkpoint/config/config.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/limits.h"

int config_slices(const struct model_config *cfg)
{
    for (int n = SLICES_MAX; n > 1; n /= 2) {
        bool kv_fits = cfg->n_kv_heads % n == 0 || n % cfg->n_kv_heads == 0;
        if (cfg->n_heads % n == 0 && cfg->ffn_dim / 2 % n == 0 && kv_fits) return n;
    }
    return 1;
}

const struct layer_kind *config_layer(const struct model_config *cfg, int layer)
{
    return &cfg->layers.kinds[cfg->layers.of[layer]];
}

int config_n_ropes(const struct model_config *cfg)
{
    int n = 1;
    for (int i = 0; i < LAYER_KINDS_MAX; i++) {
        if (cfg->layers.kinds[i].rope >= n) n = cfg->layers.kinds[i].rope + 1;
    }
    return n;
}

float config_attention_scale(const struct model_config *cfg, const struct layer_kind *kind)
{
    if (kind->attention_scale != 0) return kind->attention_scale;
    return 1.0f / sqrtf((float)cfg->head_dim);
}

int config_window(const struct model_config *cfg)
{
    int widest = 0;
    for (int i = 0; i < cfg->n_layers; i++) {
        int window = config_layer(cfg, i)->window;
        if (window == 0) return 0;
        if (window > widest) widest = window;
    }
    return widest < cfg->max_positions ? widest : 0;
}

void layer_table_set(struct layer_table *table, int layer, const struct layer_kind *kind)
{
    int n_kinds = 0, i = 0;
    for (int before = 0; before < layer; before++) {
        if (table->of[before] >= n_kinds) n_kinds = table->of[before] + 1;
    }
    while (i < n_kinds && memcmp(&table->kinds[i], kind, sizeof *kind) != 0) {
        i++;
    }
    assert(layer < LAYERS_MAX && i < LAYER_KINDS_MAX);
    table->kinds[i] = *kind;
    table->of[layer] = (uint8_t)i;
}

void config_choose_layers(struct model_config *cfg, const int *layers, int n)
{
    struct layer_table table = {0};
    for (int i = 0; i < n; i++) {
        layer_table_set(&table, i, config_layer(cfg, layers ? layers[i] : i % cfg->n_layers));
    }
    cfg->layers = table;
    cfg->n_layers = n;
}
