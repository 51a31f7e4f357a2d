/* Texts and options of a head's proof (model/head_proof.h), its state, which is for
 * model/head_proof*.c alone, and its passes. */
#pragma once

#include "base/memory.h"
#include "model/backend/open.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "model/head_table.h"
#include "model/logits/feature_wish.h"
#include "model/model.h"

enum {
    HEAD_PROOF_ROWS = 64,
    /* Starts of a pass of a head of places, or rows of a block that are chained at once. */
    HEAD_PROOF_LANES = HEAD_PROOF_ROWS / HEAD_TABLE_GUESSES,
    HEAD_PROOF_VARIANTS = 2
};

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

/* The head with one value of norm_before_residual. */
struct head_proof_variant {
    struct checkpoint *ck;
    struct model *model;
};

struct head_proof {
    struct head_proof_options options;
    struct backend *backend;
    struct head_proof_variant variants[HEAD_PROOF_VARIANTS]; /* [n_variants] */
    int n_variants, n_readings;
    struct feature_wish wish;
    struct head_table table;
    int width, dim; /* of the target's features, of the head */
    const struct head_proof_text *texts;
    int n_texts;
    uint8_t *right;    /* [n_trials][n_starts] bit s: guess s is right */
    float *scores;     /* [n_trials][n_starts] log q of the right token at the first guess */
    uint16_t *rows;    /* [HEAD_PROOF_ROWS][width or dim, whichever is more] */
    uint16_t *outputs; /* [n_tokens_max][dim] of the rows of the text */
    int32_t *blocks;
    struct arena arena;
    /* Next, rows of the text from n_read on are read, then starts down to 0 guess. */
    int trial, text, n_read, start;
    int n_before; /* starts of the texts before */
};

/* Places whose guesses are looked at; 0: the head is none of places. */
static inline int head_proof_places(const struct head_proof *p)
{
    return least(checkpoint_head(p->variants[0].ck)->places.n, HEAD_TABLE_GUESSES);
}

/* Size 0: the head is no block drafter. */
static inline const struct head_block *head_proof_block(const struct head_proof *p)
{
    return &checkpoint_head(p->variants[0].ck)->block;
}

/* Starts of a text, from row n_begin on; the last guess is held against the text, too. */
static inline int head_proof_starts(const struct head_proof *p, const struct head_proof_text *text)
{
    int n = text->n - HEAD_TABLE_GUESSES - text->n_begin;
    return n > 0 ? (n + p->options.every - 1) / p->options.every : 0;
}

static inline int head_proof_row(const struct head_proof *p, const struct head_proof_text *text,
                                 int start)
{
    return text->n_begin + start * p->options.every;
}

/* The start's index among all of the trial that goes on. */
static inline size_t head_proof_index(const struct head_proof *p, int start)
{
    size_t first = (size_t)p->trial * (size_t)p->table.n_starts;
    return first + (size_t)(p->n_before + start);
}

/* ---- model/head_proof_guess.c ---- */

/* Reads the next rows, of n_rows, and makes the first guesses of the starts among them. */
int head_proof_read(struct head_proof *proof, const struct head_proof_text *text, int n_rows,
                    struct error *err);
/* The further guesses of the next start, or all guesses of some. */
int head_proof_guess(struct head_proof *proof, const struct head_proof_text *text,
                     struct error *err);

/* Measures a pass of n_rows, 1 .. HEAD_PROOF_ROWS, on the first text, with the best ids of its
 * rows: the shortest of a few. Of a head of places or a block drafter the rows are places, and no
 * more than it has. The table must be complete. Errors: as head_proof_next. */
int head_proof_time(struct head_proof *proof, int n_rows, double *us, struct error *err);
