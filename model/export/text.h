/* The JSON files of an exported model, as texts. Each function allocates *text, which the caller
 * frees; errors: ERR_NO_MEMORY. */
#pragma once

#include <stddef.h>

#include "model/checkpoint/config/config.h"

/* Errors: ERR_UNSUPPORTED models of this architecture are read but not written. */
int export_config_check(const struct model_config *cfg, struct error *err);

/* config.json as Hugging Face's classes write it for this architecture, in the form of transformers
 * 4 ("rope_theta" beside "rope_scaling"), which its fifth version and other engines read as well.
 * Every key for which they may assume another value is written. config_parse of the text gives cfg
 * again, except for original_max_positions of rope kinds that do not use it. */
int export_config_text(const struct model_config *cfg, char **text, size_t *len, struct error *err);

/* tokenizer.json of a synthetic model, n_vocab >= 256: byte-level BPE without merges, ids 0..255
 * the bytes, the others fillers that no text encodes to. A tokenizer.json has no tokens without
 * text, so other engines print filler 300 as <300>, while ours prints nothing for the model that
 * was exported. */
int export_tokenizer_text(int n_vocab, char **text, size_t *len, struct error *err);
int export_tokenizer_config_text(int max_positions, char **text, size_t *len, struct error *err);
