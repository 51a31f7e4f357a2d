/* Declarations that the files of a head's proof share (model/head_proof.h). */
#pragma once

#include "base/memory.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "model/head_proof.h"
#include "model/model.h"

enum {
    CHUNK = HEAD_PROOF_ROWS,
    LANES = CHUNK / HEAD_TABLE_GUESSES, /* starts of a pass of a head of places; rows of a chain */
    VARIANTS = 2
};

/* The head with one value of norm_before_residual. */
struct variant {
    struct checkpoint *ck;
    struct model *model;
};

struct head_proof {
    struct head_proof_options options;
    struct backend *backend;
    struct variant variants[VARIANTS]; /* [n_variants] */
    int n_variants, n_readings;
    struct feature_wish wish;
    struct head_table table;
    int width, dim; /* of the target's features, of the head */
    const struct head_proof_text *texts;
    int n_texts;
    uint8_t *right;    /* [n_trials][n_starts] bit s: guess s is right */
    float *scores;     /* [n_trials][n_starts] log q of the right token at the first guess */
    uint16_t *rows;    /* [CHUNK][width or dim, whichever is more] */
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

/* Of size 0: the head is no block drafter. */
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
