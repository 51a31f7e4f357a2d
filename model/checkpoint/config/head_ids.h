/* The lists of layers in config.json of heads. */
#pragma once

#include "base/error.h"

enum { HEAD_FEATURES_MAX = 8 };

struct json_t;

/* Reads a list of layers, which become ids[*n], ascending. Errors: ERR_FORMAT. */
int head_ids_read(int ids[HEAD_FEATURES_MAX], int *n, const struct json_t *list, const char *key,
                  const char *origin, struct error *err);
