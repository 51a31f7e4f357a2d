/* A growing byte buffer. */
#include "base/text/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { BUFFER_LEAST_BYTES = 4096 };

int buffer_reserve(struct buffer *buf, size_t capacity, struct error *err)
{
    size_t wanted = capacity < BUFFER_LEAST_BYTES ? BUFFER_LEAST_BYTES : capacity;
    if (capacity <= buf->capacity) return 0;
    return mem_grow(&buf->data, &buf->capacity, wanted, err);
}

int buffer_append(struct buffer *buf, const void *data, size_t n, struct error *err)
{
    if (n > SIZE_MAX - buf->len) {
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu more bytes", n);
    }
    int rc = buffer_reserve(buf, buf->len + n, err);
    if (rc) return rc;
    if (n) memcpy(buf->data + buf->len, data, n);
    buf->len += n;
    return 0;
}

void buffer_free(struct buffer *buf)
{
    free(buf->data);
    *buf = (struct buffer){0};
}
