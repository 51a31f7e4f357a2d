/* A growing byte buffer that is reused, for example from message to message: it keeps its memory
 * until it is freed. A zeroed buffer is empty. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct buffer {
    uint8_t *data;
    size_t len, capacity;
};

void buffer_free(struct buffer *buf);

/* Grows to at least capacity bytes; data[0, len) is kept. Errors: ERR_NO_MEMORY. */
int buffer_reserve(struct buffer *buf, size_t capacity, struct error *err);

/* Adds n bytes at the end. Errors: ERR_NO_MEMORY; the buffer is as before then. */
int buffer_append(struct buffer *buf, const void *data, size_t n, struct error *err);
