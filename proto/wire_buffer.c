/* The growing byte buffer that messages are encoded into and received in. */
#include <stdlib.h>

#include "proto/target_wire.h"

enum { WIRE_BUFFER_MIN_BYTES = 4096 };

int wire_buffer_reserve(struct wire_buffer *buf, size_t capacity, struct error *err)
{
    if (capacity <= buf->capacity) return 0;
    if (capacity < WIRE_BUFFER_MIN_BYTES) capacity = WIRE_BUFFER_MIN_BYTES;
    uint8_t *data = realloc(buf->data, capacity);
    if (!data) {
        return error_set(err, ERR_NO_MEMORY, "no memory for a message of %zu bytes", capacity);
    }
    buf->data = data;
    buf->capacity = capacity;
    return 0;
}

void wire_buffer_free(struct wire_buffer *buf)
{
    free(buf->data);
    *buf = (struct wire_buffer){0};
}
