/* Which look-ahead embeddings somebody holds (model/look_ahead.h): a target's worker has
 * them, and a coordinator guesses by them. */
#pragma once

#include <stdint.h>

struct look_ahead_key {
    uint64_t digest; /* 0: there are none */
    int n;           /* tokens; in a step their ids follow those of the vocabulary */
};
