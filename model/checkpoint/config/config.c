/* Values that follow from the dimensions of a model, and the kinds of its layers. */
#include "model/checkpoint/config/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "model/numerics/quant.h"

/* n shares of all heads: each of kv heads has as many, or its one is that of neighbours, too. */
static bool shares_heads(const struct model_config *cfg, int n)
{
    bool kv_fits = cfg->n_kv_heads % n == 0 || n % cfg->n_kv_heads == 0;
    return cfg->n_heads % n == 0 && kv_fits;
}

/* A model that is stored in groups of weights, which three slices would cut, say, is not cut at
 * all. */
static bool keeps_groups(const struct model_config *cfg, int n)
{
    if (cfg->stored == WEIGHTS_BF16) return true;
    int head_cols = cfg->n_heads / n * cfg->head_dim, ffn = cfg->ffn_dim / n;
    return head_cols % QUANT_GROUP == 0 && ffn % QUANT_GROUP == 0;
}

int config_slices(const struct model_config *cfg)
{
    static const int others[] = {7, 6, 5, 3};
    for (int n = SLICES_MAX; n > 1; n /= 2) {
        bool is_whole = cfg->stored != WEIGHTS_BLOCKS || keeps_groups(cfg, n);
        if (shares_heads(cfg, n) && cfg->ffn_dim / 2 % n == 0 && is_whole) return n;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int n = others[i];
        if (shares_heads(cfg, n) && cfg->ffn_dim / 2 % n == 0 && keeps_groups(cfg, n)) return n;
    }
    return 1;
}

bool config_takes_ranks(const struct model_config *cfg, int n_ranks)
{
    return n_ranks > 0 && config_slices(cfg) % n_ranks == 0 && shares_heads(cfg, n_ranks);
}

char *config_rank_list(const struct model_config *cfg, const char *between, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "1");
    for (int t = 2; t <= SLICES_MAX && len < size; t++) {
        if (!config_takes_ranks(cfg, t)) continue;
        len += (size_t)snprintf(text + len, size - len, "%s%d", between, t);
    }
    return text;
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
