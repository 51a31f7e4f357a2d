/* The settings of the rotary embedding in a config.json. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"

/* Fills cfg->rope; cfg->max_positions must be set. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_rope_read(struct model_config *cfg, json_t *root, const char *origin, struct error *err);

/* The name that "rope_type" has for it. */
const char *config_rope_kind_name(enum rope_kind kind);
