/* Added tokens that other files than tokenizer.json name. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* The files beside tokenizer.json; NULL where one is missing. */
struct named_files {
    json_t *config; /* tokenizer_config.json */
    json_t *map;    /* special_tokens_map.json */
    json_t *added;  /* added_tokens.json: text to id */
};

/* Makes an object with the member "added_tokens_decoder": id to token, as tokenizer_config.json has
 * it. In it are that of the config and, as special tokens, those that the config names (bos_token,
 * additional_special_tokens, ...), as far as they have an id: in tokenizer.json, or in
 * added_tokens.json. Others are no tokens of the model. Where the config has no such member, the
 * tokens that the map names are in it too, before the config's of the same name, and the entries of
 * added_tokens.json. root: tokenizer.json. The caller calls json_decref. Errors: ERR_NO_MEMORY. */
int named_tokens_gather(json_t **out, const json_t *root, const struct named_files *files,
                        struct error *err);
