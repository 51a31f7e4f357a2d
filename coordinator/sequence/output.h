/* From committed ids to the text that a client may see: detokenizes as tokens come, looks for stop
 * strings, and holds back text that may still become one. Stop strings are looked for in the text
 * with its special tokens, so that one may name a special token although the client's text leaves
 * these out. Owned by the engine thread. */
#pragma once

#include <stdbool.h>

#include "model/tokenizer/tokenizer.h"

/* Bytes of the text that are a special token, which the client does not see. */
struct output_hidden {
    size_t begin, end;
};

struct output {
    const struct tokenizer *tok;
    struct detokenizer *detok;
    const char *const *stops; /* lent */
    int n_stops;
    size_t longest_stop;
    char *text; /* detokenized and not yet dropped; NUL-terminated */
    size_t len, capacity;
    size_t n_settled; /* bytes at the front that are in no stop string, whatever follows */
    bool hides_special;
    struct output_hidden *hidden; /* [n_hidden], ascending; none while there are no stops */
    size_t n_hidden, hidden_capacity;
    const char *matched; /* the stop string that ended the text, NULL = none */
};

/* keeps tok and stops. hides_special: the client's text leaves special tokens out. */
int output_open(struct output *out, const struct tokenizer *tok, const char *const *stops,
                int n_stops, bool hides_special, struct error *err);
void output_close(struct output *out);

/* Adds a committed token. When a stop string is complete, the text ends before it and `matched` is
 * set: nothing may be pushed after that. */
int output_push(struct output *out, int32_t id, struct error *err);

/* The text is over: what was held back is ready now. */
int output_finish(struct output *out, struct error *err);

/* Bytes at the front of the text that the client may see now; special tokens that it does not see
 * are taken out of them. */
size_t output_ready(struct output *out);

/* Drops the first n bytes: they have been sent. */
void output_drop(struct output *out, size_t n);
