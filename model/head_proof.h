/* A head that proves itself: it guesses on texts of its target, with the target's features as each
 * plausible reading of its file has them, and the guesses are held against the target's own best
 * tokens (model/head_table.h).
 *
 * Guesses are teacher forced: guess s of a start reads the text's own tokens, and from the second
 * one on the head's own output in place of features. P-EAGLE's further guesses read masks instead,
 * block drafters read a block, chained to the text's tokens, and a head of places makes as many
 * guesses as it has places, from one feature. Everything is done
 * in small pieces, so that a server can do something else between them. Owned by one thread. */
#pragma once

#include "model/head_proof_guess.h"

/* Errors: those of checkpoint_open_head, head_readings and model_open; ERR_ARGUMENT the reading
 * that is given does not fit. */
int head_proof_open(struct head_proof **proof, const struct head_proof_options *options,
                    struct error *err);
void head_proof_close(struct head_proof *proof);

/* The features of the texts: the boundaries of all readings. */
const struct feature_wish *head_proof_wish(const struct head_proof *proof);
/* Digest of the head's weights and of the readings that are tried. */
uint64_t head_proof_digest(const struct head_proof *proof);

/* Begins with texts, which are kept. Errors: ERR_ARGUMENT they are too short for a start, or one is
 * too long; ERR_NO_MEMORY. */
int head_proof_begin(struct head_proof *proof, const struct head_proof_text *texts, int n_texts,
                     struct error *err);
/* Does a piece, a few passes of the head. *is_done: the table is complete. Errors: ERR_UNAVAILABLE
 * the device is lost, ERR_NO_MEMORY. */
int head_proof_next(struct head_proof *proof, bool *is_done, struct error *err);
/* The trials; complete when head_proof_next has said so. */
const struct head_table *head_proof_table(const struct head_proof *proof);
