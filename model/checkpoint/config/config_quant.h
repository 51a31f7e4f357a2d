/* How a config.json says that the matrices of the layers are stored. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"

enum quant_method {
    QUANT_NONE,
    QUANT_AWQ,       /* model/checkpoint/stored.h says how each stores a matrix */
    QUANT_GPTQ,      /* zeros are stored less one */
    QUANT_GPTQ_V2,   /* zeros are stored as they are */
    QUANT_COMPRESSED /* compressed-tensors, and all folders of fp8 */
};

/* Settings of a folder whose matrices are stored in several ways, WEIGHTS_BLOCKS: the tensors say
 * which of them are quantized, in how many bits and in which groups. */
struct quant_scheme {
    enum quant_method method;
    int group;                      /* of GPTQ and AWQ: k that share a scale; 0: all of a row */
    int block_rows, block_cols;     /* of fp8 that share a scale; 0: the tensors say it */
    bool has_quantized_activations; /* which are not computed as there */
};

enum { QUANT_BLOCK = 128 }; /* rows and columns that share a scale where no config says it */

static inline int quant_block_rows(const struct quant_scheme *scheme)
{
    return scheme->block_rows ? scheme->block_rows : QUANT_BLOCK;
}

static inline int quant_block_cols(const struct quant_scheme *scheme)
{
    return scheme->block_cols ? scheme->block_cols : QUANT_BLOCK;
}

/* Fills cfg->stored and cfg->stored_group; with WEIGHTS_BLOCKS the scheme, which is zeroed
 * otherwise. Errors: ERR_FORMAT, ERR_UNSUPPORTED. */
int config_quant_read(struct model_config *cfg, struct quant_scheme *scheme, const json_t *root,
                      const char *origin, struct error *err);
