/* The conventions in the model's folder, beside its weights: how conversations are written, which
 * tokens end a text, and how to sample where a request does not say. A rank tells its
 * coordinator. */
#pragma once

#include "base/end_ids.h"
#include "base/text/buffer.h"
#include "model/checkpoint/checkpoint.h"
#include "model/tokenizer/tokenizer.h"

/* Replaces out's content by the encoded answer of DescribeConventions, and adds to *ends the
 * eos_token of tokenizer_config.json, if it is one of n_vocab ids. A synthetic model has no
 * conventions.
 * Errors: those of chat_source_read; ERR_UNSUPPORTED the template has more than
 * WIRE_TEMPLATE_BYTES_MAX, or there are too many ends; ERR_NO_MEMORY. */
int conventions_read(struct buffer *out, struct end_ids *ends, const struct checkpoint *checkpoint,
                     const struct tokenizer *tok, int n_vocab, struct error *err);

/* The ids separated by commas, for a log; "none" without any. Returns text. */
const char *conventions_show_ends(const struct end_ids *ends, char *text, size_t size);
