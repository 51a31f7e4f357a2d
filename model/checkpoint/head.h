/* A head as a checkpoint: the folder of a published head, or that of a model with MTP layers
 * (model/checkpoint/config/head_config.h). Its config is that of its layers, its tensors are found
 * like those of a model, and model_open computes with it (model/model.h).
 *
 * Many heads share the embedding, or lm_head too, with their target and come without: then both are
 * the target's, whatever format its weights have. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "model/checkpoint/config/head_config.h"

struct checkpoint;

struct head_options {
    /* The model that the head guesses for. NULL: a head that lacks tensors of it can be looked at,
     * but not computed with. */
    const struct checkpoint *target;
    /* Decides where config.json does not say it, or says it wrong. */
    enum head_choice norm_before_residual;
};

/* name: a folder or ORG/NAME of the Hugging Face cache. options may be NULL. Keeps the target,
 * which must outlive the head. Errors: those of checkpoint_open; ERR_UNSUPPORTED names what the
 * folder has if it is no head that is read; ERR_FORMAT tensors that do not fit together or not to
 * the target. */
int checkpoint_open_head(struct checkpoint **ck, const char *name,
                         const struct head_options *options, struct error *err);

/* True if a folder's config.json says that it is a head. */
bool checkpoint_is_head_folder(const char *name);

/* NULL: the checkpoint is no head. */
const struct head_config *checkpoint_head(const struct checkpoint *ck);
/* [n_columns] the ids that the rows of a head's lm_head score, ascending; NULL: all of them. */
const int32_t *checkpoint_head_ids(const struct checkpoint *ck);
/* [A Ht] bf16: the features of P-EAGLE's rows after the first one; NULL: it has none. */
const uint16_t *checkpoint_head_mask(const struct checkpoint *ck);
/* True if the rows of lm_head are those of the whole vocabulary, of which head_ids chooses some. */
bool checkpoint_head_is_chosen(const struct checkpoint *ck);
/* Errors: ERR_ARGUMENT the head lacks tensors that its target has, and no target was given. */
int checkpoint_demand_target(const struct checkpoint *ck, struct error *err);
