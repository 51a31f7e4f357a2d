/* A growing array of token ids. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero it before first use, free it with token_ids_free. */
struct token_ids {
    int32_t *data;
    size_t n, capacity;
};

/* Appends data[n]. Errors: ERR_NO_MEMORY; *ids is as before then. */
int token_ids_append(struct token_ids *ids, const int32_t *data, size_t n, struct error *err);
void token_ids_free(struct token_ids *ids);
