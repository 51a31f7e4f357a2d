/* The token ids that end a text, as the model's configuration lists them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { END_IDS_MAX = 16 };

struct end_ids {
    int n;
    int32_t ids[END_IDS_MAX]; /* ascending */
};

static inline bool end_ids_have(const struct end_ids *ends, int32_t id)
{
    for (int i = 0; i < ends->n; i++) {
        if (ends->ids[i] == id) return true;
    }
    return false;
}
