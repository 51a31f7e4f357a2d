/* Ids to text. At load every token gets its piece, the bytes it stands for in running text; what is
 * left for the stream is what depends on neighbours: bytes that only together are a character, the
 * blank that a first token sheds, and what is stripped from the ends.
 *
 * Byte-level tokens join into one string of bytes, so text comes out as soon as a character is whole.
 * A run of fallback byte tokens ("<0xE2><0x98>") is read as a whole once it ends, for Hugging Face
 * prints a run that is not UTF-8 as one U+FFFD for each byte, its valid characters included: such
 * text appears only with the next ordinary token. */
#include "model/tokenizer/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/tokenizer/internal.h"

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

/* ---- pieces ---- */

/* Every occurrence of mark becomes with. */
static int replace_mark(struct text in, const char *mark, const char *with, struct text_buf *out,
                        struct error *err)
{
    size_t mark_len = strlen(mark);
    int rc = 0;
    for (size_t at = 0; !rc && at < in.len;) {
        if (in.len - at >= mark_len && memcmp(in.data + at, mark, mark_len) == 0) {
            rc = text_buf_append(out, with, strlen(with), err);
            at += mark_len;
        } else {
            rc = text_buf_append(out, in.data + at, 1, err);
            at++;
        }
    }
    return rc;
}

/* What the decoder's stages that look at one token alone make of content; *out may lie in scratch. */
static int token_text(const struct decoder *decoder, const struct matcher *matcher,
                      struct text content, struct normalizer_scratch *scratch, struct text *out,
                      struct error *err)
{
    *out = content;
    if (decoder->byte_level) {
        size_t len;
        scratch->bufs[0].len = 0;
        int rc = text_buf_append(&scratch->bufs[0], content.data, content.len, err);
        if (rc) return rc;
        if (byte_level_decode(content, scratch->bufs[0].data, &len)) {
            *out = (struct text){scratch->bufs[0].data, len};
        }
        return 0;
    }
    if (decoder->metaspace[0]) {
        scratch->bufs[0].len = 0;
        int rc = replace_mark(content, decoder->metaspace, " ", &scratch->bufs[0], err);
        *out = (struct text){scratch->bufs[0].data, scratch->bufs[0].len};
        return content.len ? rc : 0;
    }
    return normalizer_run(decoder->replaces, decoder->n_replaces, matcher, content, false, scratch,
                          out, err);
}

int decoder_make_piece(const struct decoder *decoder, const struct matcher *matcher,
                       struct token_table *table, int32_t id, struct text content,
                       struct normalizer_scratch *scratch, struct error *err)
{
    struct text text;
    int rc = token_text(decoder, matcher, content, scratch, &text, err);
    if (rc) return rc;
    int byte = decoder->byte_fallback ? byte_token_value(text) : -1;
    if (byte < 0) return token_table_set_piece(table, id, text.data, text.len, err);
    char value = (char)byte;
    table->flags[id] |= TOKEN_BYTE;
    return token_table_set_piece(table, id, &value, 1, err);
}

/* ---- the stream ---- */

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

/* The first token of a Metaspace decoder sheds its marks instead of making blanks of them. */
static int emit_first(struct detokenizer *d, int32_t id, struct error *err)
{
    struct text_buf bare = {0};
    const char *mark = d->tok->decoder.metaspace;
    int rc = replace_mark(token_table_content(&d->tok->table, id), mark, "", &bare, err);
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
