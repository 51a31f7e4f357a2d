/* Runs steps: checks every lane against what this rank knows, keeps the slots' block tables, runs
 * the forward pass and answers the row wishes. It makes no decisions: all ranks get the same step
 * and come to the same result, errors included. Owned by the engine thread. */
#pragma once

#include "model/look_ahead.h"
#include "model/model.h"
#include "proto/target_wire.h"

struct verifier;

struct verifier_options {
    int n_slots;
    int n_kv_blocks; /* 0: verifier_open_kv says it before the first step */
    int max_step_tokens;
    int max_step_rows;
    int n_vocab;
    unsigned witnessed;                  /* of model_options */
    const struct checkpoint *projection; /* of model_options, on rank 0; kept */
    const struct look_ahead *look_ahead; /* kept; with n = 0, or NULL, there is none */
};

/* keeps ck, comm and be. */
int verifier_open(struct verifier **verifier, const struct checkpoint *ck, struct comm *comm,
                  struct backend *be, const struct verifier_options *options, struct error *err);
/* Makes the KV cache and the tables of its blocks. Errors: those of model_open_kv; then the
 * verifier can only be closed. */
int verifier_open_kv(struct verifier *verifier, int n_blocks, struct error *err);
void verifier_close(struct verifier *verifier);

const struct model *verifier_model(const struct verifier *verifier);

/* How many KV blocks were written since the last reset. */
int verifier_blocks_written(const struct verifier *verifier);

/* Forgets all slots and step ids, because a new stream begins. */
void verifier_reset(struct verifier *verifier);

/* Runs one step, or answers further values of the last step's rows. reply and its arrays are valid
 * until the next call. A step that makes no sense gets a reply with error_text and leaves the KV
 * cache as it was.
 * Errors: ERR_UNAVAILABLE the group is broken, so the process must end. */
int verifier_step(struct verifier *verifier, const struct step *step, struct step_reply *reply,
                  struct error *err);
