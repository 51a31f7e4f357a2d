/* Which layers of a config.json have a sliding window, and which rotation each has. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/family.h"

/* Fills cfg->layers with *common, what all layers have, and each layer's window and rotation;
 * cfg->n_layers, cfg->max_positions and cfg->ropes must be set. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
int config_window_read(struct model_config *cfg, const struct layer_kind *common,
                       const json_t *root, const struct model_family *family, const char *origin,
                       struct error *err);
