/* The parts of reading a config.json: config.c takes the shape, config_rope.c the rotary embedding,
 * config_quant.c how matrices are stored, config_keys.c judges every key that none of them reads. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "model/checkpoint/config.h"

enum { CONFIG_VALUE_BYTES = 96 };

/* The value as JSON, cut to fit, for error texts. NULL gives "nothing". Returns text. */
const char *config_show(const json_t *value, char text[CONFIG_VALUE_BYTES]);

/* Refuses every key of the object that might change the result and that nobody reads.
 * Errors: ERR_UNSUPPORTED names the key and its value. */
int config_check_keys(json_t *root, const char *origin, struct error *err);

/* Fills cfg->stored and cfg->stored_group. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_read_quantization(struct model_config *cfg, const json_t *root, const char *origin,
                             struct error *err);

/* Fills cfg->rope; max_positions must be set. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_read_rope(struct model_config *cfg, json_t *root, const char *origin, struct error *err);
