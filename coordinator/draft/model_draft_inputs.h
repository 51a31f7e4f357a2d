/* The features that a draft model reads besides its tokens (model/checkpoint/head.h): the target's
 * of committed tokens, kept from when they come until they are read, and in place of those of
 * guesses its own outputs. Row i of such a model has the token at i + 1 and the feature of position
 * i, so its KV of a text is one position shorter than the text, and a row that was read with a
 * guess's output is written again when the target's feature has come.
 * coordinator/draft/model_draft*.c alone. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "model/checkpoint/head_readings.h"
#include "model/model.h"

enum { DRAFT_INPUTS_ROWS = 1 + TREE_NODES_MAX };

/* The target's features of positions first .. + n of a text. */
struct feature_run {
    uint16_t *rows; /* [capacity][width] */
    int first, n, capacity;
};

struct draft_inputs {
    struct head_reading reading;
    struct feature_wish wish; /* for those of the reading, or for what fc makes of them */
    int feature_dim;          /* D of the target */
    int width, dim;           /* elements of what comes for a token, and of an output */
    int n_sequences;
    struct feature_run *runs; /* [n_sequences] by slot */
    /* [n_sequences][DRAFT_INPUTS_ROWS][dim] by slot: after the committed tokens, and after each
     * guess; and those of a step's lanes. */
    uint16_t *outputs, *gathered;
    struct forward_features *features; /* [n_sequences] of a step's lanes */
};

/* A reading of features that are all of width feature_dim. Errors: ERR_NO_MEMORY. */
int draft_inputs_open(struct draft_inputs **inputs, const struct head_reading *reading,
                      int feature_dim, int dim, int n_sequences, struct error *err);
void draft_inputs_close(struct draft_inputs *inputs);

/* Another wish for the features of the reading. No text has features here, or they are dropped. */
void draft_inputs_set_wish(struct draft_inputs *inputs, const struct feature_wish *wish);
/* True if the workers project the features, which are read in place of outputs then. */
static inline bool draft_inputs_are_projected(const struct draft_inputs *inputs)
{
    return inputs->wish.projection.key.digest != 0;
}

/* Keeps features that have come. needed: the first position whose feature is needed yet; those
 * before it are dropped but for one, because a token may be read once more. Errors: ERR_NO_MEMORY;
 * ERR_INTERNAL they do not go on from there. */
int draft_inputs_keep(struct draft_inputs *inputs, int slot, const struct draft_features *features,
                      int needed, struct error *err);
/* Puts the features of n masks after those that are there, until the next ones come. Errors:
 * ERR_NO_MEMORY. */
int draft_inputs_add_masks(struct draft_inputs *inputs, int slot, const uint16_t *mask, int n,
                           struct error *err);
void draft_inputs_forget(struct draft_inputs *inputs, int slot);

/* True if the target's features of positions first .. end are there. */
bool draft_inputs_have(const struct draft_inputs *inputs, int slot, int first, int end);
/* The position after the last one whose feature is there; 0: none is. */
int draft_inputs_end(const struct draft_inputs *inputs, int slot);

/* The target's features from position `first` on. */
const uint16_t *draft_inputs_rows(const struct draft_inputs *inputs, int slot, int first);
/* The output after a node of the slot's draft; -1: after the committed tokens. */
uint16_t *draft_inputs_output(const struct draft_inputs *inputs, int slot, int node);
/* Room for the outputs that lane `lane` of a step reads, and projected features before them: of
 * DRAFT_INPUTS_ROWS rows. */
uint16_t *draft_inputs_gathered(const struct draft_inputs *inputs, int lane);
