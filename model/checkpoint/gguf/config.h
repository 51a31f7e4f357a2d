/* The metadata of a GGUF file as the config.json and the generation_config.json that a folder of
 * the same model would have, so that one reader and one table of families (model/checkpoint/config)
 * serve both. Keys of the architecture that are not known here appear under their own names, which
 * that reader lists as unknown. */
#pragma once

#include "base/limits.h"
#include "model/checkpoint/gguf/arch.h"

/* Two texts of JSON, and divisors of the frequencies of rope that no config.json could say. */
struct gguf_config {
    char *config, *sampling;
    float divisors[HEAD_DIM_MAX / 2];
    int n_divisors; /* 0: there are none; half of a head's width */
};

/* The caller calls gguf_config_free. Errors: ERR_FORMAT, ERR_UNSUPPORTED name the key of the
 * metadata; ERR_NO_MEMORY. */
int gguf_config_write(struct gguf_config *out, const struct gguf *gguf,
                      const struct gguf_arch *arch, struct error *err);
void gguf_config_free(struct gguf_config *config);
