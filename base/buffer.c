/* A growing byte buffer. */
#include "base/buffer.h"

#include <stdlib.h>

enum { BUFFER_LEAST_BYTES = 4096 };

int buffer_reserve(struct buffer *buf, size_t capacity, struct error *err)
{
    if (capacity <= buf->capacity) return 0;
    /* Doubling keeps a buffer that grows message by message from being moved each time. */
    size_t wanted = buf->capacity > SIZE_MAX / 2 ? capacity : 2 * buf->capacity;
    if (wanted < capacity) wanted = capacity;
    if (wanted < BUFFER_LEAST_BYTES) wanted = BUFFER_LEAST_BYTES;
    uint8_t *data = realloc(buf->data, wanted);
    if (!data) {
        return error_set(err, ERR_NO_MEMORY, "no memory for a message of %zu bytes", capacity);
    }
    buf->data = data;
    buf->capacity = wanted;
    return 0;
}

void buffer_free(struct buffer *buf)
{
    free(buf->data);
    *buf = (struct buffer){0};
}
