/* A head that proves itself: it guesses on texts of its target, with the target's features as each
 * plausible reading of its file has them, and the guesses are held against the target's own best
 * tokens (model/head_table.h).
 *
 * Guesses are teacher forced: guess s of a start reads the text's own tokens, and from the second
 * one on the head's own output in place of features. P-EAGLE's further guesses read masks instead,
 * and a head of places makes as many guesses as it has places, from one feature. Everything is done
 * in small pieces, so that a server can do something else between them. Owned by one thread. */
#pragma once

#include "model/backend/open.h"
#include "model/checkpoint/head.h"
#include "model/head_table.h"
#include "model/logits/feature_wish.h"

enum { HEAD_PROOF_ROWS = 64 };

struct head_proof;
struct model;

struct head_proof_options {
    const char *folder; /* of the head */
    /* norm_before_residual: HEAD_AS_STORED tries both values where the format has it, what the file
     * says first. */
    struct head_options head;
    int n_layers; /* of the target */
    /* Where the head computes, on a backend of its own. */
    struct backend_options backend;
    /* A model of the same head on the same kind of backend, whose weights are used again; NULL:
     * they are read. Lent, as all of these. */
    const struct model *like;
    const struct head_reading *given; /* is tried too, after the others; NULL: none */
    int n_tokens_max;                 /* of a text */
    int every;                        /* rows from one start to the next, >= 1 */
};

/* A text of the target: its tokens, of which the first n_begin are not the target's own, its best
 * token after each of them, and the features of each, [n][columns][dim] by head_proof_wish. */
struct head_proof_text {
    int n, n_begin;
    const int32_t *ids, *best;
    const uint16_t *features;
};

/* Errors: those of checkpoint_open_head, head_readings and model_open; ERR_ARGUMENT the reading that
 * is given does not fit. */
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
/* Measures a pass of n_rows, 1 .. HEAD_PROOF_ROWS, on the first text, with the best ids of its
 * rows: the shortest of a few. Of a head of places or a block drafter the rows are places, and no
 * more than it has. The table must be complete. Errors: as head_proof_next. */
int head_proof_time(struct head_proof *proof, int n_rows, double *us, struct error *err);
