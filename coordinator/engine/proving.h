/* A head proves itself on texts of the group: the group writes short texts greedily, with the
 * features of all readings, and the head guesses on them (model/head_proof.h). All of it is done in
 * pieces, while no text is served. Owned by the engine thread. */
#pragma once

#include "coordinator/kv/blocks.h"
#include "coordinator/target/target.h"
#include "model/head_proof.h"
#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/tokenizer.h"

enum {
    PROVING_TOKENS = 256,        /* that the group writes, ... */
    PROVING_TOKENS_MAX = 1024,   /* ... and at most, where these leave doubts */
    PROVING_PART_TOKENS = 64,    /* written at a time after a prompt, ... */
    PROVING_PARTS = 4,           /* ... and at most so often, ... */
    PROVING_PROMPT_TOKENS = 320, /* ... where the prompt has at most so many */
    PROVING_TEXT_TOKENS = PROVING_PROMPT_TOKENS + PROVING_PARTS * PROVING_PART_TOKENS
};

/* All of it outlives the proving. */
struct proving_options {
    struct target *target;
    struct block_pool *pool;  /* of the target */
    struct head_proof *proof; /* for texts of at most PROVING_TEXT_TOKENS */
    const struct tokenizer *tok;
    struct chat_template *chat; /* NULL: none; the proving holds it, too */
};

struct proving;

/* Errors: ERR_NO_MEMORY. */
int proving_open(struct proving **proving, const struct proving_options *options,
                 struct error *err);
void proving_close(struct proving *proving);

/* Goes on for about a twentieth of a second, at least by a step or a pass. No text may have a
 * place. *is_done: the proof's table is complete. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is
 * lost; ERR_INTERNAL it cannot say what is asked of it; ERR_EXHAUSTED there are no blocks for a
 * text; ERR_NO_MEMORY; those of head_proof_begin and head_proof_next. */
int proving_next(struct proving *proving, bool *is_done, struct error *err);

/* A text is about to get a place: gives back all blocks. What the group has written stays, and the
 * text that it was writing is read again later. */
void proving_rest(struct proving *proving);
