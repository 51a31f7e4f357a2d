/* From committed ids to the text a client may see. */
#include "coordinator/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_CAPACITY = 256 };

int output_open(struct output *out, const struct tokenizer *tok, const char *const *stops,
                int n_stops, struct error *err)
{
    int rc = 0;
    *out = (struct output){.stops = stops, .n_stops = n_stops, .capacity = FIRST_CAPACITY};
    for (int i = 0; i < n_stops; i++) {
        size_t len = strlen(stops[i]);
        if (len > out->longest_stop) out->longest_stop = len;
    }
    TRY(mem_array(&out->text, out->capacity, 1, err));
    TRY(detokenizer_open(&out->detok, tok, true, err));
out:
    if (rc) output_close(out);
    return rc;
}

void output_close(struct output *out)
{
    detokenizer_close(out->detok);
    free(out->text);
    *out = (struct output){0};
}

static int append(struct output *out, const char *text, size_t len, struct error *err)
{
    int rc = mem_grow(&out->text, &out->capacity, out->len + len + 1, err);
    if (rc) return rc;
    memcpy(out->text + out->len, text, len);
    out->len += len;
    out->text[out->len] = '\0';
    return 0;
}

/* As strstr from byte `from`, but it goes on behind NUL bytes, which a text may hold. */
static const char *find_in_text(const struct output *out, size_t from, const char *stop)
{
    const char *end = out->text + out->len;
    for (const char *at = out->text + from; at < end; at += strlen(at) + 1) {
        const char *found = strstr(at, stop);
        if (found) return found;
    }
    return NULL;
}

/* Looks for the earliest stop string that ends after byte `old_len`. */
static void find_stop(struct output *out, size_t old_len)
{
    size_t from = old_len > out->longest_stop ? old_len - out->longest_stop : 0;
    const char *first = NULL;
    for (int i = 0; i < out->n_stops; i++) {
        const char *found = find_in_text(out, from, out->stops[i]);
        if (found && (!first || found < first)) {
            first = found;
            out->matched = out->stops[i];
        }
    }
    if (!first) return;
    out->len = (size_t)(first - out->text);
    out->text[out->len] = '\0';
}

int output_push(struct output *out, int32_t id, struct error *err)
{
    const char *text;
    size_t len, old_len = out->len;
    int rc = 0;
    TRY(detokenizer_push(out->detok, id, &text, &len, err));
    TRY(append(out, text, len, err));
    if (len) find_stop(out, old_len);
out:
    return rc;
}

int output_finish(struct output *out, struct error *err)
{
    const char *text;
    size_t len, old_len = out->len;
    int rc = 0;
    if (out->matched) return 0;
    TRY(detokenizer_finish(out->detok, &text, &len, err));
    TRY(append(out, text, len, err));
    if (len) find_stop(out, old_len);
    out->n_stops = 0; /* nothing follows, so nothing is held back any more */
out:
    return rc;
}

size_t output_ready(const struct output *out)
{
    if (out->matched) return out->len;
    size_t held = 0;
    for (int i = 0; i < out->n_stops; i++) {
        size_t stop_len = strlen(out->stops[i]);
        size_t most = stop_len - 1 < out->len ? stop_len - 1 : out->len;
        for (size_t n = most; n > held; n--) {
            if (memcmp(out->text + out->len - n, out->stops[i], n) == 0) {
                held = n;
                break;
            }
        }
    }
    return out->len - held;
}

void output_drop(struct output *out, size_t n)
{
    memmove(out->text, out->text + n, out->len - n + 1);
    out->len -= n;
}
