/* Heads that guess several places from one feature: their config.json, and the names of their
 * tensors. Sources: Medusa's medusa_model.py; vLLM's medusa.py; TGI's medusa.py, whose heads of
 * version 2 share the target's lm_head; for blockwise parallel decoding Stern et al. 2018 (arXiv
 * 1811.03115, section 6) and its code, tensor2tensor's transformer_parallel.py.
 *
 *   Medusa     config.json has "medusa_num_heads", "medusa_num_layers" and the name of the target;
 *              model.safetensors or medusa_lm_head.safetensors has of place k and its block i of l
 *                {k}.{i}.linear.weight [D][D], {k}.{i}.linear.bias [D], {k}.{l}.weight [V][D]
 *              after "medusa_head." or "medusa_heads.", or nothing; or as vLLM names them
 *                blocks.{k}.layers.{i}.weight, blocks.{k}.layers.{i}.bias, lm_heads.{k}.weight
 *              Without matrices to the vocabulary lm_head.weight is that of all places, and where
 *              that is not there either, the target's. Published files announce other numbers than
 *              they have, so the tensors are counted.
 *   blockwise  The paper's authors published no files, so this is a format of our own:
 *                {"model_type": "blockwise", "block_size": k, "base_model_name_or_path": ...}
 *              and in model.safetensors, with n = k - 1 places and a hidden layer of any width W,
 *              in the paper k times the width of the model's MLP:
 *                hidden.weight [W][D], hidden.bias [W], output.weight [n D][W], output.bias [n D]
 *              Rows j D and on of output are those of place j. lm_head.weight [V][D] is the
 *              target's unless it is there. The paper's layer has k outputs, of which the first
 *              changes what the model itself predicts; here p_1 is the target as it is, because
 *              texts must be its own, and the outputs are those of p_2 .. p_k. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/checkpoint/config/config.h"

enum {
    PLACES_MAX = DRAFT_MAX,
    PLACE_BLOCKS_MAX = 8, /* residual blocks of a place */
    PLACE_NAME_BYTES = 64
};

enum places_format { PLACES_NONE, PLACES_MEDUSA, PLACES_BLOCKWISE };

/* How the logits of each place follow from the feature g. With blocks:
 *   y = g, then n_blocks times y = y + silu(W y + b); W and b are those of the block or, where the
 *   place has stored one alone, of that one each time
 * With a hidden layer, which all places share:
 *   y = g + (W relu(hidden g + hidden_bias) + b)
 * The logits are those of y by the place's own matrix, or by one lm_head for all. */
struct head_places {
    int n;                         /* of places; 0: the head is none of these */
    int n_blocks, n_stored_blocks; /* of a place; 0 with a hidden layer */
    int hidden_dim;                /* of the hidden layer; 0: there is none */
    bool has_bias;                 /* of blocks; a hidden layer has biases always */
    bool has_logits;               /* a matrix of each place */
    bool is_listed;                /* the names are vLLM's */
    char root[16];                 /* before the names of all tensors */
};

/* Statements of config.json; 0: it does not say. */
struct places_claims {
    int n, n_blocks;
};

/* PLACES_NONE: the config.json is of something else. */
enum places_format places_config_find(const json_t *root);

/* Reads a config.json of the format; *cfg gets all but the width and the vocabulary, which are 0,
 * because only the tensors tell. Errors: ERR_FORMAT. */
int places_config_parse(enum places_format format, struct places_claims *claims,
                        struct model_config *cfg, const json_t *root, const char *origin,
                        struct error *err);

enum place_tensor {
    PLACE_WEIGHT, /* of a block */
    PLACE_BIAS,
    PLACE_LOGITS, /* the place's own lm_head */
    PLACE_HIDDEN, /* of all places; neither place nor block is used */
    PLACE_HIDDEN_BIAS,
    PLACE_OUTPUT,
    PLACE_OUTPUT_BIAS
};

/* The name of a tensor; returns text. */
const char *places_name(const struct head_places *places, enum place_tensor which, int place,
                        int block, char text[PLACE_NAME_BYTES]);
