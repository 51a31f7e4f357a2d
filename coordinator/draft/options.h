/* Options that a drafter is opened with. Only the files that make these options or read them
 * include it. */
#pragma once

#include <stdbool.h>

#include "model/backend/open.h"

struct drafter;

struct drafter_options {
    const char *name;               /* as --draft names it; of a finder what follows its name */
    struct backend_options backend; /* where it computes */
    const char *target;             /* folder of the target; NULL = it is not known here */
    int n_sequences;                /* slots of sequences, 0 .. n_sequences - 1 */
    int support;                    /* q is the draft's best `support` tokens, renormalised */
    int kv_tokens;                  /* of a KV cache, over all sequences */
    /* "FILE[:N]": guesses are made among the N most frequent tokens of a list
     * (coordinator/draft/vocabulary.h), and lm_head is that much smaller; NULL = among all. Legal
     * for every rule, since q may have any support. */
    const char *vocabulary;
    int store_tokens;           /* of a store: the room for texts */
    bool is_strict;             /* keys of config.json that nobody knows are an error */
    bool is_shared;             /* what texts of one API key have taught may be used for all */
    const struct drafter *like; /* of the same options: its weights are used again; NULL = none */
};
