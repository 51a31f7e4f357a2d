/* The metadata of a GGUF file as the config.json and the generation_config.json that a folder of
 * the same model would have, so that one reader and one table of families (model/checkpoint/config)
 * serve both. Keys of the architecture that are not known here appear under their own names, which
 * that reader lists as unknown. */
#pragma once

#include "model/checkpoint/gguf/arch.h"

/* Two texts of JSON; the caller frees config and sampling. Errors: ERR_FORMAT, ERR_UNSUPPORTED name
 * the key of the metadata; ERR_NO_MEMORY. */
struct gguf_config {
    char *config, *sampling;
};
int gguf_config_write(struct gguf_config *out, const struct gguf *gguf,
                      const struct gguf_arch *arch, struct error *err);
void gguf_config_free(struct gguf_config *config);
