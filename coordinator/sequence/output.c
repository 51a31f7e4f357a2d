/* From committed ids to the text a client may see. */
#include "coordinator/sequence/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_CAPACITY = 256 };

int output_open(struct output *out, const struct tokenizer *tok, const char *const *stops,
                int n_stops, bool hides_special, struct error *err)
{
    int rc = 0;
    *out = (struct output){.tok = tok,
                           .stops = stops,
                           .n_stops = n_stops,
                           .capacity = FIRST_CAPACITY,
                           .hides_special = hides_special};
    for (int i = 0; i < n_stops; i++) {
        size_t len = strlen(stops[i]);
        if (len > out->longest_stop) out->longest_stop = len;
    }
    TRY(mem_array(&out->text, out->capacity, 1, err));
    TRY(detokenizer_open(&out->detok, tok, hides_special, err));
out:
    if (rc) output_close(out);
    return rc;
}

void output_close(struct output *out)
{
    detokenizer_close(out->detok);
    free(out->text);
    free(out->hidden);
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

/* As strstr from byte `from`, but it goes on after NUL bytes, which a text may hold. */
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
    if (from < out->n_settled) from = out->n_settled; /* hidden bytes are missing before that */
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
    while (out->n_hidden && out->hidden[out->n_hidden - 1].end > out->len) {
        struct output_hidden *last = &out->hidden[out->n_hidden - 1];
        if (last->begin < out->len) {
            last->end = out->len;
        } else {
            out->n_hidden--;
        }
    }
}

/* The text of a special token that the client does not see, for stop strings alone. */
static int append_hidden(struct output *out, int32_t id, struct error *err)
{
    size_t len, begin = out->len;
    const char *text = tokenizer_piece(out->tok, id, &len);
    int rc = 0;
    TRY(mem_grow(&out->hidden, &out->hidden_capacity, out->n_hidden + 1, err));
    TRY(append(out, text, len, err));
    out->hidden[out->n_hidden++] = (struct output_hidden){begin, out->len};
out:
    return rc;
}

int output_push(struct output *out, int32_t id, struct error *err)
{
    const char *text;
    size_t len, old_len = out->len;
    int rc = 0;
    if (out->hides_special && out->n_stops && tokenizer_is_special(out->tok, id)) {
        TRY(append_hidden(out, id, err));
        find_stop(out, old_len);
        goto out;
    }
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

/* How many bytes at the front cannot become a part of a stop string any more. */
static size_t settled_bytes(const struct output *out)
{
    if (out->matched) return out->len;
    size_t held = 0, n_open = out->len - out->n_settled;
    for (int i = 0; i < out->n_stops; i++) {
        size_t stop_len = strlen(out->stops[i]);
        size_t most = stop_len - 1 < n_open ? stop_len - 1 : n_open;
        for (size_t n = most; n > held; n--) {
            if (memcmp(out->text + out->len - n, out->stops[i], n) == 0) {
                held = n;
                break;
            }
        }
    }
    return out->len - held;
}

/* Takes n bytes out; the hidden ones from span `first` on come after them. */
static void take_out(struct output *out, size_t at, size_t n, size_t first)
{
    memmove(out->text + at, out->text + at + n, out->len - at - n + 1);
    out->len -= n;
    for (size_t i = first; i < out->n_hidden; i++) {
        out->hidden[i].begin -= n;
        out->hidden[i].end -= n;
    }
}

/* A part of a span is held where it may begin a stop string. */
static size_t take_out_hidden(struct output *out, size_t settled)
{
    struct output_hidden *span = &out->hidden[0];
    size_t n = (span->end < settled ? span->end : settled) - span->begin;
    take_out(out, span->begin, n, 1);
    span->end -= n;
    if (span->end == span->begin) {
        out->n_hidden--;
        memmove(span, span + 1, out->n_hidden * sizeof *span);
    }
    return n;
}

size_t output_ready(struct output *out)
{
    size_t settled = settled_bytes(out);
    while (out->n_hidden && out->hidden[0].begin < settled) {
        settled -= take_out_hidden(out, settled);
    }
    out->n_settled = settled;
    return settled;
}

void output_drop(struct output *out, size_t n)
{
    take_out(out, 0, n, 0);
    out->n_settled -= n;
}
