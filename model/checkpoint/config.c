/* What follows from the dimensions of a model. */
#include "model/checkpoint/config.h"

#include "base/limits.h"

int config_slices(const struct model_config *cfg)
{
    for (int n = SLICES_MAX; n > 1; n /= 2) {
        bool kv_fits = cfg->n_kv_heads % n == 0 || n % cfg->n_kv_heads == 0;
        if (cfg->n_heads % n == 0 && cfg->ffn_dim / 2 % n == 0 && kv_fits) return n;
    }
    return 1;
}

int config_context_limit(const struct model_config *cfg)
{
    bool is_narrow = cfg->sliding_window > 0 && cfg->sliding_window < cfg->max_positions;
    return is_narrow ? cfg->sliding_window : cfg->max_positions;
}
