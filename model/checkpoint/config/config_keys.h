/* Checks the keys of a config.json that may change the result. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "model/checkpoint/config/family.h"

enum { CONFIG_VALUE_BYTES = 96, CONFIG_UNKNOWN_BYTES = 240 };

/* The value as JSON, cut to fit, for error texts. NULL gives "nothing". Returns text. */
const char *config_keys_show(const json_t *value, char text[CONFIG_VALUE_BYTES]);

/* Refuses every key of the object that is known to change the result and that nobody reads for this
 * family. Errors: ERR_UNSUPPORTED names the key and its value. */
int config_keys_check(json_t *root, const struct model_family *family, const char *origin,
                      struct error *err);

/* The number of keys that nobody knows and whose value switches something on; text lists the first
 * of them. */
int config_keys_unknown(json_t *root, const struct model_family *family,
                        char text[CONFIG_UNKNOWN_BYTES]);
