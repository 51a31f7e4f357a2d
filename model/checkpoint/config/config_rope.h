/* The settings of the rotary embedding in a config.json. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/family.h"

/* Fills cfg->ropes and the scale of q, if it is among these settings; cfg->max_positions and
 * cfg->head_dim must be set. Where layers with a window have a rotation of their own, it is
 * ropes[1], which is zero otherwise. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_rope_read(struct model_config *cfg, json_t *root, const struct model_family *family,
                     const char *origin, struct error *err);

/* The name that "rope_type" has for it. */
const char *config_rope_kind_name(enum rope_kind kind);
