/* Text that is written piece by piece, up to a limit. */
#pragma once

#include "base/text/buffer.h"
#include "model/jinja/value.h"

struct writer {
    struct buffer *out;
    size_t most_bytes; /* of out */
};

/* Errors: ERR_EXHAUSTED, ERR_NO_MEMORY. */
int writer_put(struct writer *w, const char *data, size_t len, struct error *err);
int writer_text(struct writer *w, const char *text, struct error *err);
