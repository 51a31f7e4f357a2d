/* The chat template of a GGUF file, and the texts of special tokens that templates are given. */
#pragma once

#include <jansson.h>

#include "model/gguf/gguf.h"

/* Sets *text to the template "default", which points into the file; it is empty where the file has
 * none. Errors: ERR_FORMAT there are templates, but none of them is "default", or it is no text. */
int gguf_chat_template(struct gguf_text *text, const struct gguf *gguf, struct error *err);

/* Makes an object, name to text (bos_token, ...), which the caller frees with json_decref.
 * Errors: ERR_FORMAT; ERR_NO_MEMORY. */
int gguf_special_texts(json_t **special, const struct gguf *gguf, struct error *err);
