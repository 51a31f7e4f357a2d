/* Executes steps: checks every lane against what this rank knows, keeps the slots' block tables, runs
 * the forward pass and answers the row wishes. It never decides anything: all ranks get the same step
 * and come to the same result, errors included. Owned by the engine thread. */
#pragma once

#include "model/model.h"
#include "proto/target_wire.h"

struct verifier;

struct verifier_options {
    int n_slots;
    int n_kv_blocks;
    int max_step_tokens;
    int max_step_rows;
    int n_vocab;
};

/* keeps ck, comm and be. */
int verifier_open(struct verifier **verifier, const struct checkpoint *ck, struct comm *comm,
                  struct backend *be, const struct verifier_options *options, struct error *err);
void verifier_close(struct verifier *verifier);

const struct model *verifier_model(const struct verifier *verifier);

/* Forgets all slots and ids: a new stream begins. */
void verifier_reset(struct verifier *verifier);

/* Executes one step (or answers more rows of the last). reply and its arrays live until the next
 * call; a step that makes no sense becomes a reply with error_text and leaves the KV as it was.
 * Errors: ERR_UNAVAILABLE the group is broken, and with it this process's reason to live. */
int verifier_step(struct verifier *verifier, const struct step *step, struct step_reply *reply,
                  struct error *err);
