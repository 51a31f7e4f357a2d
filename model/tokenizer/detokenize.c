/* Ids to text. Every token has its piece, its bytes in running text (decode.c). The stream handles
 * everything that depends on neighbours: bytes that are a character only together, the blank that a
 * first token loses, and what is stripped from the ends.
 *
 * Byte-level tokens join into one string of bytes, so text comes out as soon as a character is
 * whole. A run of fallback byte tokens ("<0xE2><0x98>") is read as a whole once it ends, because
 * Hugging Face prints a run that is not UTF-8 as one U+FFFD for each byte, its valid characters
 * included. The text of such a run therefore appears only with the next ordinary token. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/tokenizer/internal.h"
#include "model/tokenizer/tokenizer.h"

static const char replacement_char[] = "\xef\xbf\xbd";

struct detokenizer {
    const struct tokenizer *tok;
    bool skip_special;
    bool any;              /* a token has come */
    int n_start;           /* characters that may still be stripped at the start */
    int n_held;            /* characters held back: they are stripped if nothing follows */
    struct text_buf bytes; /* that are not yet characters */
    struct text_buf out;
};

int detokenizer_open(struct detokenizer **detok, const struct tokenizer *tok, bool skip_special,
                     struct error *err)
{
    int rc = mem_array(detok, 1, sizeof **detok, err);
    if (rc) return rc;
    (*detok)->tok = tok;
    (*detok)->skip_special = skip_special;
    (*detok)->n_start = tok->decoder.strip_start;
    return 0;
}

void detokenizer_close(struct detokenizer *detok)
{
    if (!detok) return;
    text_buf_free(&detok->bytes);
    text_buf_free(&detok->out);
    free(detok);
}

/* Whole characters on their way out, through the stripping of both ends. */
static int emit(struct detokenizer *d, const char *data, size_t len, struct error *err)
{
    const struct decoder *decoder = &d->tok->decoder;
    size_t strip_len = strlen(decoder->strip);
    if (!strip_len) return text_buf_append(&d->out, data, len, err);
    int rc = 0;
    for (size_t at = 0; !rc && at < len;) {
        size_t used = text_char_length(data[at]);
        bool same = used == strip_len && memcmp(data + at, decoder->strip, used) == 0;
        if (same && d->n_start) {
            d->n_start--;
        } else if (same && d->n_held < decoder->strip_stop) {
            d->n_held++;
        } else {
            for (; !same && d->n_held && !rc; d->n_held--) {
                rc = text_buf_append(&d->out, decoder->strip, strip_len, err);
            }
            d->n_start = 0;
            if (!rc) rc = text_buf_append(&d->out, data + at, used, err);
        }
        at += used;
    }
    return rc;
}

/* Reads the bytes that are there as far as characters are whole; `last` reads them to the end. */
static int emit_bytes(struct detokenizer *d, bool last, struct error *err)
{
    const char *data = d->bytes.data;
    size_t at = 0, used;
    int rc = 0;
    while (!rc && at < d->bytes.len) {
        size_t valid = text_valid_length(data + at, d->bytes.len - at);
        if (valid) rc = emit(d, data + at, valid, err);
        at += valid;
        if (rc || at == d->bytes.len) break;
        int whole = text_classify(data + at, d->bytes.len - at, &used);
        if (whole == 0 && !last) break;
        rc = emit(d, replacement_char, 3, err);
        at += used;
    }
    if (at) memmove(d->bytes.data, data + at, d->bytes.len - at);
    d->bytes.len -= at;
    return rc;
}

/* A run of fallback byte tokens has ended: one string, or one U+FFFD for each byte. */
static int emit_byte_run(struct detokenizer *d, struct error *err)
{
    size_t n = d->bytes.len;
    int rc = 0;
    d->bytes.len = 0;
    if (n && text_valid_length(d->bytes.data, n) == n) return emit(d, d->bytes.data, n, err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = emit(d, replacement_char, 3, err);
    return rc;
}

/* With a Metaspace decoder. The marks of the first token are dropped; those of later tokens become
 * blanks. */
static int emit_first(struct detokenizer *d, int32_t id, struct error *err)
{
    struct text_buf bare = {0};
    const char *mark = d->tok->decoder.metaspace;
    int rc = text_buf_replace(&bare, token_table_content(&d->tok->table, id), mark, "", err);
    if (!rc && bare.len) rc = emit(d, bare.data, bare.len, err);
    text_buf_free(&bare);
    return rc;
}

static int push_token(struct detokenizer *d, int32_t id, struct error *err)
{
    const struct decoder *decoder = &d->tok->decoder;
    struct text piece = token_table_piece(&d->tok->table, id);
    bool first = !d->any;
    d->any = true;
    if (decoder->byte_level) {
        int rc = text_buf_append(&d->bytes, piece.data, piece.len, err);
        return rc ? rc : emit_bytes(d, false, err);
    }
    if (d->tok->table.flags[id] & TOKEN_BYTE) {
        return text_buf_append(&d->bytes, piece.data, piece.len, err);
    }
    int rc = emit_byte_run(d, err);
    if (rc) return rc;
    if (first && decoder->drop_first) return emit_first(d, id, err);
    if (!first && decoder->space_between) rc = emit(d, " ", 1, err);
    return rc ? rc : emit(d, piece.data, piece.len, err);
}

static int hand_out(struct detokenizer *d, const char **text, size_t *len, struct error *err)
{
    int rc = text_buf_append(&d->out, "", 1, err);
    *text = rc ? "" : d->out.data;
    *len = rc ? 0 : d->out.len - 1;
    return rc;
}

int detokenizer_push(struct detokenizer *d, int32_t id, const char **text, size_t *len,
                     struct error *err)
{
    const struct token_table *table = &d->tok->table;
    bool known = id >= 0 && id < table->n_ids && (table->flags[id] & TOKEN_PRESENT);
    int rc = 0;
    d->out.len = 0;
    *text = "";
    *len = 0;
    if (known && !(d->skip_special && (table->flags[id] & TOKEN_SPECIAL))) {
        rc = push_token(d, id, err);
    }
    return rc ? rc : hand_out(d, text, len, err);
}

int detokenizer_finish(struct detokenizer *d, const char **text, size_t *len, struct error *err)
{
    d->out.len = 0;
    *text = "";
    *len = 0;
    int rc = d->tok->decoder.byte_level ? emit_bytes(d, true, err) : emit_byte_run(d, err);
    d->any = false;
    d->n_held = 0;
    d->n_start = d->tok->decoder.strip_start;
    d->bytes.len = 0;
    return rc ? rc : hand_out(d, text, len, err);
}

int tokenizer_token_text(const struct tokenizer *tok, int32_t id, char *out, size_t size,
                         struct error *err)
{
    struct detokenizer *detok = NULL;
    const char *part;
    size_t len, n = 0;
    int rc = 0;
    out[0] = '\0';
    TRY(detokenizer_open(&detok, tok, false, err));
    for (int step = 0; step < 2; step++) {
        TRY(step == 0 ? detokenizer_push(detok, id, &part, &len, err)
                      : detokenizer_finish(detok, &part, &len, err));
        if (n + len >= size) break;
        memcpy(out + n, part, len + 1);
        n += len;
    }
out:
    detokenizer_close(detok);
    return rc;
}
