/* How a config.json says that the matrices of the layers are stored. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"

/* Fills cfg->stored and cfg->stored_group. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_quant_read(struct model_config *cfg, const json_t *root, const char *origin,
                      struct error *err);
