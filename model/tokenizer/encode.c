/* Text to ids: the steps drawn in internal.h, from runs of valid UTF-8 down to words. */
#include <string.h>

#include "model/tokenizer/internal.h"
#include "model/tokenizer/tokenizer.h"

static const size_t max_text_bytes = (size_t)1 << 28;

/* One call of tokenizer_encode. */
struct encode_run {
    const struct tokenizer *tok;
    struct added_filter filter; /* which special tokens in the text count as such */
    struct matcher matcher;
    struct normalizer_scratch normalizer;
    struct text_buf bufs[SPLITTER_MAX_STAGES];
    struct bpe_scratch bpe;
    struct token_ids *ids;
};

static int encode_word(void *arg, struct text word, struct error *err)
{
    struct encode_run *run = arg;
    return bpe_encode_word(&run->tok->bpe, &run->tok->table, word, &run->bpe, run->ids, err);
}

static int encode_plain(struct encode_run *run, struct text text, unsigned piece, struct error *err)
{
    const struct split_run split = {
        .stages = run->tok->splitters,
        .n_stages = run->tok->n_splitters,
        .matcher = &run->matcher,
        .bufs = run->bufs,
        .take_word = encode_word,
        .arg = run,
    };
    return splitter_run(&split, text, piece, err);
}

typedef int part_fn(struct encode_run *run, struct text text, unsigned piece, struct error *err);

/* Cuts the tokens of set out of text; what lies between them goes to fn. */
static int cut_added(struct encode_run *run, const struct added_set *set,
                     const struct added_filter *filter, struct text text, unsigned piece,
                     part_fn *fn, struct error *err)
{
    size_t done = 0, at = 0, begin, end;
    const struct added_token *token = NULL;
    int rc = 0;
    if (!set->n) return fn(run, text, piece, err);
    while ((token = added_set_next(set, text, filter, done, &at, &begin, &end))) {
        struct text before = {text.data + done, begin > done ? begin - done : 0};
        if (before.len) rc = fn(run, before, done ? 0 : piece, err);
        if (!rc) rc = token_ids_append(run->ids, &token->id, 1, err);
        if (rc) return rc;
        done = end;
    }
    struct text rest = {text.data + done, text.len - done};
    return rest.len ? fn(run, rest, done ? 0 : piece, err) : 0;
}

static int encode_normalized(struct encode_run *run, struct text text, unsigned piece,
                             struct error *err)
{
    struct text normal;
    int rc = normalizer_run(&run->tok->normalizers, &run->matcher, text, piece & PIECE_CONTINUES,
                            &run->normalizer, &normal, err);
    if (rc) return rc;
    /* Breaks do not count in what is normalized: model/tokenizer/guard.h. */
    const struct added_filter filter = {.special = run->filter.special};
    return cut_added(run, &run->tok->normalized, &filter, normal, piece, encode_plain, err);
}

/* Runs of valid UTF-8 go through all steps; other bytes become their tokens one by one. */
static int encode_text(struct encode_run *run, const char *text, size_t len, struct error *err)
{
    for (size_t at = 0; at < len;) {
        struct text valid = {text + at, text_valid_length(text + at, len - at)};
        unsigned piece = at ? PIECE_CONTINUES : PIECE_FIRST;
        int rc = cut_added(run, &run->tok->raw, &run->filter, valid, piece, encode_normalized, err);
        if (rc) return rc;
        at += valid.len;
        if (at == len) break;
        int32_t id = bpe_byte(&run->tok->bpe, (uint8_t)text[at]);
        if (id < 0) return bpe_no_token(&run->bpe, text + at, 1, err);
        rc = token_ids_append(run->ids, &id, 1, err);
        if (rc) return rc;
        at++;
    }
    return 0;
}

/* Writes a sentence that tells where the text has characters that no token has. A normalizer may
 * have made it, and then it has no place. */
static int tell_place(const struct bpe_scratch *bpe, const char *text, size_t len,
                      struct error *err)
{
    size_t n = bpe->n_lacking;
    for (size_t at = 0; at + n <= len; at++) {
        if (memcmp(text + at, bpe->lacking, n) != 0) continue;
        return error_set(err, ERR_ARGUMENT,
                         "byte %zu of the text is 0x%02x, for which the model's tokenizer has no "
                         "token: leave the character out",
                         at, (unsigned)(uint8_t)text[at]);
    }
    return ERR_ARGUMENT;
}

static void encode_run_close(struct encode_run *run)
{
    matcher_close(&run->matcher);
    normalizer_scratch_free(&run->normalizer);
    for (int i = 0; i < SPLITTER_MAX_STAGES; i++)
        text_buf_free(&run->bufs[i]);
    bpe_scratch_free(&run->bpe);
}

int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len, unsigned flags,
                     struct token_ids *ids, struct error *err)
{
    return tokenizer_encode_broken(tok, text, len, flags, NULL, 0, ids, err);
}

int tokenizer_encode_broken(const struct tokenizer *tok, const char *text, size_t len,
                            unsigned flags, const size_t *breaks, size_t n_breaks,
                            struct token_ids *ids, struct error *err)
{
    int rc = 0;
    size_t n_before = ids->n;
    bool add_special = flags & TOKENIZER_ADD_SPECIAL;
    struct encode_run run = {.tok = tok,
                             .filter = {.special = flags & TOKENIZER_PARSE_SPECIAL,
                                        .origin = text,
                                        .breaks = breaks,
                                        .n_breaks = n_breaks},
                             .ids = ids};
    if (len > max_text_bytes) {
        return error_set(err, ERR_ARGUMENT, "a text of %zu bytes is longer than %zu", len,
                         max_text_bytes);
    }
    TRY(matcher_open(&run.matcher, err));
    if (add_special) TRY(token_ids_append(ids, tok->prefix.data, tok->prefix.n, err));
    TRY(encode_text(&run, text, len, err));
    if (add_special) TRY(token_ids_append(ids, tok->suffix.data, tok->suffix.n, err));
out:
    if (rc && run.bpe.n_lacking) rc = tell_place(&run.bpe, text, len, err);
    encode_run_close(&run);
    if (rc) ids->n = n_before;
    return rc;
}
