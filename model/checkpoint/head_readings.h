/* Which features of its target a head may mean. Two conventions that differ by one are in use for
 * the ids in a head's config.json, and a head that gets the wrong features guesses badly without
 * any error. So all readings are listed, the likeliest first, for a loader that can try them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/checkpoint/config/head_config.h"

enum { HEAD_READINGS_MAX = 4, HEAD_READING_BYTES = 160 };

/* n = A boundaries, ascending; or none and the normed feature alone. */
struct head_reading {
    const char *name; /* "as written", "one layer later", "default", "normed", "last layer" */
    int n, boundaries[HEAD_FEATURES_MAX];
    bool normed;
};

/* The readings for a target of n_layers, of which none is another one again; *n of them. Errors:
 * ERR_UNSUPPORTED no reading gives A features of such a target. */
int head_readings(const struct head_config *head, int n_layers,
                  struct head_reading out[HEAD_READINGS_MAX], int *n, struct error *err);

/* Writes the features that the first reading means, and why, for people; without a target ids that
 * are missing are shown as formulas. Returns text. */
const char *head_reading_show(const struct head_config *head, char text[HEAD_READING_BYTES]);
