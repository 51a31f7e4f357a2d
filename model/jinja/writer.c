/* Text that is written piece by piece, up to a limit. */
#include "model/jinja/writer.h"

#include <string.h>

int writer_put(struct writer *w, const char *data, size_t len, struct error *err)
{
    if (w->out->len > w->most_bytes || len > w->most_bytes - w->out->len) {
        return error_set(err, ERR_EXHAUSTED, "the template writes more than %zu bytes",
                         w->most_bytes);
    }
    return len ? buffer_append(w->out, data, len, err) : 0;
}

int writer_text(struct writer *w, const char *text, struct error *err)
{
    return writer_put(w, text, strlen(text), err);
}
