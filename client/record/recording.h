/* A recorded text as a safetensors file, for training draft models: its tokens, the target's
 * features of each but the last, and what the target says after each of these. The tensors, of a
 * text of N tokens:
 *   tokens          I32  [N]
 *   features        BF16 [N - 1][columns][dim]   of tokens 0 .. N - 2
 *   logprobs        F32  [N - 1]                 of tokens 1 .. N - 1
 *   best_ids        I32  [N - 1][top]            the best after tokens 0 .. N - 2, -1: no more
 *   best_logprobs   F32  [N - 1][top]
 * The last two are there if top > 0. docs/jobs.md says what the metadata hold. */
#pragma once

#include "model/tokenizer/tokenizer.h"
#include "proto/generation_wire.h"

enum { RECORDING_RULE_BYTES = 32 };
/* In place of a rule: the answer was given, and is nobody knows whose. */
#define RECORDING_GIVEN "given"

/* Zero it before first use. */
struct recording {
    struct token_ids ids; /* prompt and answer */
    /* Rule of acceptance by which the answer came, or RECORDING_GIVEN; "": unknown, as in files of
     * older versions. */
    char rule[RECORDING_RULE_BYTES];
    size_t n_prompt;
    int n_columns, dim, top_n; /* columns and dim: of the first features that came */
    size_t n_scored, n_features;
    uint16_t *features;
    float *logprobs, *best_logprobs;
    int32_t *best_ids;
};

void recording_free(struct recording *recording);

/* Begins to take the scores of its ids, of which there are at least two. Errors: ERR_NO_MEMORY. */
int recording_begin(struct recording *recording, int n_columns, int top_n, struct error *err);
/* Takes a reply, which goes on where the last one ended. Errors: ERR_FORMAT it does not, or is of
 * another text or shape; ERR_NO_MEMORY. */
int recording_add(struct recording *recording, const struct score_reply *reply, struct error *err);
/* True if all of the text has come. */
bool recording_is_whole(const struct recording *recording);

/* Writes the file, so that there is a whole one or none. request: by which the answer was asked
 * for, if it was not given. Errors: ERR_IO, ERR_ARGUMENT the path is too long, ERR_NO_MEMORY. */
int recording_write(const struct recording *recording, const char *path,
                    const struct feature_wish *wish, const struct generate_request *request,
                    const struct service_description *served, struct error *err);

/* Reads ids, rule, n_prompt and features of a file, and which columns these have. Errors:
 * ERR_NOT_FOUND, ERR_IO, ERR_FORMAT it is no such file, ERR_NO_MEMORY. */
int recording_read(struct recording *recording, struct feature_wish *wish, const char *path,
                   struct error *err);
