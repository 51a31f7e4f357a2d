/* Everything is written as text at once: a prompt of a thousand tokens with 64 alternatives each
 * would make a tree of hundreds of thousands of values. */
#include "coordinator/openai/logprobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/json_text.h"
#include "model/tokenizer/utf8.h"

enum { TEXT_BYTES = 512, NUMBER_BYTES = 32 };

/* Indices of lists. */
enum { TOKENS, LOGPROBS, TOP, OFFSETS, CONTENT = TOKENS };

/* OpenAI's value for a token without mass, because JSON has no infinity. */
#define LOGPROB_NONE (-9999.0F)

/* One token as both shapes need it. */
struct token_shown {
    int32_t id;
    bool has_logprob;
    float logprob;
    int n_top;
    const struct token_alternative *top;
};

/* ---- parts ---- */

static int put(struct buffer *out, const char *text, struct error *err)
{
    return buffer_append(out, text, strlen(text), err);
}

/* The token's text; of bytes that are no text alone, "bytes:\xe4\xbd" as OpenAI writes them. */
static int put_token(struct buffer *out, const struct tokenizer *tok, int32_t id, struct error *err)
{
    char text[TEXT_BYTES];
    size_t len;
    const char *piece = tokenizer_piece(tok, id, &len);
    if (len < TEXT_BYTES && text_valid_length(piece, len) == len && !memchr(piece, 0, len)) {
        return json_text_string(out, piece, len, err);
    }
    size_t n = (size_t)snprintf(text, TEXT_BYTES, "bytes:");
    for (size_t i = 0; i < len && n + 5 < TEXT_BYTES; i++) {
        n += (size_t)snprintf(text + n, TEXT_BYTES - n, "\\x%02x", (unsigned char)piece[i]);
    }
    return json_text_string(out, text, n, err);
}

static int put_bytes(struct buffer *out, const struct tokenizer *tok, int32_t id, struct error *err)
{
    size_t len;
    const char *piece = tokenizer_piece(tok, id, &len);
    int rc = put(out, "[", err);
    for (size_t i = 0; i < len && !rc; i++) {
        rc = json_text_format(out, err, i ? ",%d" : "%d", (unsigned char)piece[i]);
    }
    return rc ? rc : put(out, "]", err);
}

/* Nine digits tell every float from the next one; one without a point is no float for some
 * clients. */
static int put_logprob(struct buffer *out, float logprob, struct error *err)
{
    char text[NUMBER_BYTES];
    snprintf(text, sizeof text, "%.9g", (double)(isfinite(logprob) ? logprob : LOGPROB_NONE));
    int rc = put(out, text, err);
    return rc || strpbrk(text, ".e") ? rc : put(out, ".0", err);
}

/* ---- a chat's ---- */

static int put_entry(struct buffer *out, const struct tokenizer *tok, int32_t id, float logprob,
                     struct error *err)
{
    int rc = 0;
    TRY(put(out, "{\"token\":", err));
    TRY(put_token(out, tok, id, err));
    TRY(put(out, ",\"logprob\":", err));
    TRY(put_logprob(out, logprob, err));
    TRY(put(out, ",\"bytes\":", err));
    TRY(put_bytes(out, tok, id, err));
out:
    return rc;
}

static int add_content(struct openai_logprobs *l, const struct tokenizer *tok,
                       const struct token_shown *t, struct error *err)
{
    struct buffer *out = &l->lists[CONTENT];
    int rc = 0;
    TRY(put_entry(out, tok, t->id, t->logprob, err));
    TRY(put(out, ",\"top_logprobs\":[", err));
    for (int i = 0; i < t->n_top; i++) {
        if (i) TRY(put(out, ",", err));
        TRY(put_entry(out, tok, t->top[i].id, t->top[i].logprob, err));
        TRY(put(out, "}", err));
    }
    TRY(put(out, "]},", err));
out:
    return rc;
}

/* ---- a completion's ---- */

static bool is_alike(const struct tokenizer *tok, int32_t a, int32_t b)
{
    size_t len_a, len_b;
    const char *piece_a = tokenizer_piece(tok, a, &len_a);
    const char *piece_b = tokenizer_piece(tok, b, &len_b);
    return len_a == len_b && memcmp(piece_a, piece_b, len_a) == 0;
}

/* Returns true if one of the first n alternatives has the text of this token. */
static bool is_among(const struct tokenizer *tok, const struct token_shown *t, int n, int32_t id)
{
    for (int i = 0; i < n; i++) {
        if (is_alike(tok, t->top[i].id, id)) return true;
    }
    return false;
}

static int put_alternative(struct buffer *out, const struct tokenizer *tok, int32_t id,
                           float logprob, struct error *err)
{
    int rc = 0;
    if (out->data[out->len - 1] != '{') TRY(put(out, ",", err));
    TRY(put_token(out, tok, id, err));
    TRY(put(out, ":", err));
    TRY(put_logprob(out, logprob, err));
out:
    return rc;
}

/* Appends the alternatives, and the token itself among them; of those with equal texts only the
 * best one is shown. */
static int put_alternatives(struct buffer *out, const struct tokenizer *tok,
                            const struct token_shown *t, struct error *err)
{
    int rc = 0;
    TRY(put(out, "{", err));
    for (int i = 0; i < t->n_top; i++) {
        if (is_among(tok, t, i, t->top[i].id)) continue;
        TRY(put_alternative(out, tok, t->top[i].id, t->top[i].logprob, err));
    }
    if (!is_among(tok, t, t->n_top, t->id)) {
        TRY(put_alternative(out, tok, t->id, t->logprob, err));
    }
    TRY(put(out, "},", err));
out:
    return rc;
}

static int add_lists(struct openai_logprobs *l, const struct tokenizer *tok,
                     const struct token_shown *t, struct error *err)
{
    int rc = 0;
    TRY(put_token(&l->lists[TOKENS], tok, t->id, err));
    TRY(put(&l->lists[TOKENS], ",", err));
    TRY(json_text_format(&l->lists[OFFSETS], err, "%" PRId64 ",", l->offset));
    if (!t->has_logprob) {
        TRY(put(&l->lists[LOGPROBS], "null,", err));
        return put(&l->lists[TOP], "null,", err);
    }
    TRY(put_logprob(&l->lists[LOGPROBS], t->logprob, err));
    TRY(put(&l->lists[LOGPROBS], ",", err));
    TRY(put_alternatives(&l->lists[TOP], tok, t, err));
out:
    return rc;
}

/* ---- both ---- */

static int add(struct openai_logprobs *l, enum openai_kind kind, const struct tokenizer *tok,
               const struct token_shown *t, struct error *err)
{
    return kind == OPENAI_CHAT ? add_content(l, tok, t, err) : add_lists(l, tok, t, err);
}

/* Each character has one byte that does not continue another. */
static int64_t characters_in(const char *text, size_t len)
{
    int64_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += (text[i] & 0xc0) != 0x80;
    }
    return n;
}

/* Holds the token that was just added until the text after its beginning has left. */
static int hold(struct openai_logprobs *l, const struct tokenizer *tok, int32_t id,
                struct error *err)
{
    int rc = 0;
    const char *text;
    size_t len;
    if (!l->detok) TRY(detokenizer_open(&l->detok, tok, !l->shows_special, err));
    TRY(mem_grow(&l->marks, &l->marks_capacity, l->n_marks + 1, err));
    struct openai_logprobs_mark *mark = &l->marks[l->n_marks++];
    mark->begin_bytes = l->n_bytes;
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        mark->ends[i] = l->lists[i].len;
    }
    TRY(detokenizer_push(l->detok, id, &text, &len, err));
    l->n_bytes += len;
    l->offset += characters_in(text, len);
out:
    return rc;
}

int openai_logprobs_add(struct openai_logprobs *l, enum openai_kind kind,
                        const struct tokenizer *tok, const struct generate_tokens *tokens,
                        struct error *err)
{
    int rc = 0;
    if (!tokens->logprobs) return 0;
    for (int i = 0; i < tokens->n && !rc; i++) {
        const struct token_logprob *one = &tokens->logprobs[i];
        const struct token_shown shown = {.id = tokens->ids[i],
                                          .has_logprob = true,
                                          .logprob = one->logprob,
                                          .n_top = one->n_top,
                                          .top = one->top};
        rc = add(l, kind, tok, &shown, err);
        if (!rc) rc = hold(l, tok, shown.id, err);
    }
    return rc;
}

/* Counts the characters that the prompt's next token has in its text, and goes on to the one after
 * it. */
static int64_t next_characters(struct openai_logprobs *l, const struct tokenizer *tok, int32_t id)
{
    size_t len;
    const char *piece = tokenizer_piece(tok, id, &len);
    bool shows_special = l->n_prompt >= l->special_begin && l->n_prompt < l->special_end;
    l->n_prompt++;
    return tokenizer_is_special(tok, id) && !shows_special ? 0 : characters_in(piece, len);
}

int openai_logprobs_add_scores(struct openai_logprobs *l, enum openai_kind kind,
                               const struct tokenizer *tok, const struct score_reply *scores,
                               struct error *err)
{
    int rc = 0;
    for (int i = 0; i < scores->n && !rc; i++) {
        const struct score_token *one = &scores->tokens[i];
        const struct token_shown shown = {.id = one->id,
                                          .has_logprob = one->has_logprob,
                                          .logprob = one->logprob,
                                          .n_top = one->n_top,
                                          .top = one->top};
        rc = add(l, kind, tok, &shown, err);
        l->offset += next_characters(l, tok, one->id);
    }
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        l->ready[i] = l->lists[i].len;
    }
    return rc;
}

void openai_logprobs_release(struct openai_logprobs *l, uint64_t n_bytes)
{
    size_t n = 0;
    while (n < l->n_marks && l->marks[n].begin_bytes < n_bytes) {
        n++;
    }
    if (!n) return;
    memcpy(l->ready, l->marks[n - 1].ends, sizeof l->ready);
    l->n_marks -= n;
    memmove(l->marks, l->marks + n, l->n_marks * sizeof *l->marks);
}

bool openai_logprobs_are_ready(const struct openai_logprobs *l)
{
    return l->ready[0] > 0;
}

static int put_ready(struct buffer *out, const struct openai_logprobs *l, int i, struct error *err)
{
    return l && l->ready[i] ? buffer_append(out, l->lists[i].data, l->ready[i], err) : 0;
}

/* One list of the prompt and the text, without the last comma. */
static int put_list(struct buffer *out, const struct openai_logprobs *prompt,
                    const struct openai_logprobs *l, int i, struct error *err)
{
    int rc = 0;
    TRY(put(out, "[", err));
    TRY(put_ready(out, prompt, i, err));
    TRY(put_ready(out, l, i, err));
    if (out->data[out->len - 1] == ',') out->len--;
    TRY(put(out, "]", err));
out:
    return rc;
}

int openai_logprobs_put(struct buffer *out, enum openai_kind kind,
                        const struct openai_logprobs *prompt, const struct openai_logprobs *l,
                        struct error *err)
{
    static const char *const names[] = {
        "{\"tokens\":", ",\"token_logprobs\":", ",\"top_logprobs\":", ",\"text_offset\":"};
    int rc = 0;
    if (kind == OPENAI_CHAT) {
        TRY(put(out, "{\"content\":", err));
        TRY(put_list(out, prompt, l, CONTENT, err));
        return put(out, ",\"refusal\":null}", err);
    }
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        TRY(put(out, names[i], err));
        TRY(put_list(out, prompt, l, i, err));
    }
    TRY(put(out, "}", err));
out:
    return rc;
}

void openai_logprobs_drop(struct openai_logprobs *l)
{
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        struct buffer *list = &l->lists[i];
        if (!l->ready[i]) continue;
        list->len -= l->ready[i];
        memmove(list->data, list->data + l->ready[i], list->len);
        for (size_t m = 0; m < l->n_marks; m++) {
            l->marks[m].ends[i] -= l->ready[i];
        }
        l->ready[i] = 0;
    }
}

size_t openai_logprobs_bytes(const struct openai_logprobs *l)
{
    size_t n = l->marks_capacity * sizeof *l->marks;
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        n += l->lists[i].capacity;
    }
    return n;
}

void openai_logprobs_free(struct openai_logprobs *l)
{
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        buffer_free(&l->lists[i]);
    }
    free(l->marks);
    detokenizer_close(l->detok);
    *l = (struct openai_logprobs){0};
}
