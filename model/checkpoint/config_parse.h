/* Reading a Hugging Face config.json. What would change the result and is not understood is refused
 * by name. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "model/checkpoint/config.h"

/* Parses config.json (and generation_config.json, which may be NULL). `origin` names the file in
 * errors. On failure *cfg is zeroed. Errors: ERR_FORMAT the text is not JSON or a value has a wrong
 * type, ERR_UNSUPPORTED names the key and its value. */
int config_parse(struct model_config *cfg, const char *config_json, size_t config_len,
                 const char *generation_json, size_t generation_len, const char *origin,
                 struct error *err);
