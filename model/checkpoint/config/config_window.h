/* The sliding windows in a config.json. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/family.h"

/* Fills cfg->layers; cfg->n_layers and cfg->max_positions must be set. Errors: ERR_FORMAT,
 * ERR_UNSUPPORTED. */
int config_window_read(struct model_config *cfg, const json_t *root,
                       const struct model_family *family, const char *origin, struct error *err);
