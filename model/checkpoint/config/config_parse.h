/* Reading a Hugging Face config.json. What would change the result and is not understood is refused
 * by name, and so is
 * a key that is known to change it; other keys are listed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/config_keys.h"
#include "model/checkpoint/config/config_quant.h"

/* The token that takes the place of one that is not known yet, of a parallel draft. */
struct config_mask {
    const char *key; /* of config.json; NULL: there is none */
    int id;          /* maybe no token of the model */
};

/* The contents of a config.json that are no part of struct model_config. */
struct config_rest {
    /* Keys that nobody knows, as config_keys_unknown lists them, and their number. */
    char unknown[CONFIG_UNKNOWN_BYTES];
    int n_unknown;
    /* Layers after the model's own, which guess further tokens and whose tensors are not read. */
    int n_guessing_layers;
    /* The file is of a model that also sees, and what was read is its "text_config". */
    bool is_text_part;
    struct quant_scheme scheme; /* with cfg->stored == WEIGHTS_BLOCKS */
    struct config_mask mask;
};

/* Parses config.json (and generation_config.json, which may be NULL). `origin` names the file in
 * errors; rest may be NULL. On failure *cfg is zeroed. Errors: ERR_FORMAT the text is not JSON or a
 * value has a wrong type, ERR_UNSUPPORTED names the key and its value. */
int config_parse(struct model_config *cfg, const char *config_json, size_t config_len,
                 const char *generation_json, size_t generation_len, const char *origin,
                 struct config_rest *rest, struct error *err);
