/* Reads the keys of config.json that block drafters have: DFlash and DSpark. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/head_block.h"
#include "model/checkpoint/config/head_ids.h"

struct block_source {
    const json_t *root, *inner; /* the file, and its "dflash_config" or else the file again */
    const char *origin;
    bool is_dspark, is_speculators;
};

/* The layers of the target that it reads, ascending. */
struct block_layers {
    int n, ids[HEAD_FEATURES_MAX];
    bool are_outputs; /* of which the output is meant, not the input */
};

/* Reads the block of a drafter whose layers are read already, into cfg, where some of the block's
 * keys go too. Errors: ERR_FORMAT; ERR_UNSUPPORTED names the key and what it asks for. */
int block_config_parse(struct head_block *block, struct block_layers *layers,
                       struct model_config *cfg, const struct block_source *in, struct error *err);

/* Takes the keys of block drafters out of the config of their layers, and puts those of "inner"
 * into it that nobody knows, so that they are named with the others. False: no memory. */
bool block_config_strip(json_t *layers, json_t *inner);
