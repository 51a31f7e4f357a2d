/* The tokens that end a text, as a GGUF file tells them. */
#pragma once

#include "base/end_ids.h"
#include "model/tokenizer/gguf/vocabulary.h"

/* True if the text of this token is known to end a text, whatever model has it. */
bool gguf_token_ends(const struct gguf_vocabulary *v, int id);

/* Adds the ids of eos_token_id, eot_token_id and eom_token_id, and those of the tokens with known
 * texts (<|im_end|>, <|eot_id|>, <end_of_turn>, ...). A file without tokens has none.
 * Errors: ERR_FORMAT; ERR_UNSUPPORTED there are more than END_IDS_MAX ends; ERR_NO_MEMORY. */
int gguf_ends_read(struct end_ids *ends, const struct gguf *gguf, struct error *err);
