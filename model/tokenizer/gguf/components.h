/* The tokenizer of a GGUF file as tokenizer.json would have it, without "vocab" and "merges", which
 * are lists (vocabulary.h). */
#pragma once

#include <jansson.h>

#include "model/tokenizer/gguf/vocabulary.h"

/* Makes the object with model, normalizer, pre_tokenizer, decoder, post_processor and added_tokens,
 * which the caller frees with json_decref. *remark is set to a sentence about the file that people
 * should know, or NULL.
 * Errors: ERR_FORMAT, ERR_UNSUPPORTED (names what is not understood), ERR_NO_MEMORY. */
int gguf_components_make(json_t **root, const struct gguf *gguf, const struct gguf_vocabulary *v,
                         const char **remark, struct error *err);
