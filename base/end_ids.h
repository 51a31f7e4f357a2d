/* The token ids that end a text, as the model's configuration lists them or a request does. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    END_IDS_MAX = 16,                /* of a model */
    TEXT_ENDS_MAX = END_IDS_MAX + 64 /* with those of a request */
};

struct end_ids {
    int n;
    int32_t ids[TEXT_ENDS_MAX]; /* a model's ascend, and are at most END_IDS_MAX */
};

/* Puts an end of a model in its place, unless it is there; false: there is no room for it. */
static inline bool end_ids_add(struct end_ids *ends, int32_t id)
{
    int at = 0;
    while (at < ends->n && ends->ids[at] < id) {
        at++;
    }
    if (at < ends->n && ends->ids[at] == id) return true;
    if (ends->n >= END_IDS_MAX) return false;
    for (int i = ends->n++; i > at; i--) {
        ends->ids[i] = ends->ids[i - 1];
    }
    ends->ids[at] = id;
    return true;
}

static inline bool end_ids_have(const struct end_ids *ends, int32_t id)
{
    for (int i = 0; i < ends->n; i++) {
        if (ends->ids[i] == id) return true;
    }
    return false;
}
