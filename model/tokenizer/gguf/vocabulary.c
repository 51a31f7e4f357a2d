/* Checks and copies the lists of tokens. */
#include "model/tokenizer/gguf/vocabulary.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/utf8.h"

static const char space_mark[] = "\xe2\x96\x81";

int gguf_is_sentencepiece(const struct gguf *gguf, bool *is, struct error *err)
{
    struct gguf_text name = {0};
    int rc = gguf_read_text(gguf, "tokenizer.ggml.model", &name, err);
    if (rc) return rc;
    *is = gguf_text_is(&name, "llama");
    if (*is || gguf_text_is(&name, "gpt2")) return 0;
    if (!name.len) {
        return error_set(err, ERR_FORMAT,
                         "%s has no tokenizer: the key tokenizer.ggml.model is missing; take a "
                         "folder with the model's tokenizer.json",
                         gguf_origin(gguf));
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: tokenizer.ggml.model \"%.*s\" is not understood, only \"gpt2\" and "
                     "\"llama\" are; take a folder with the model's tokenizer.json",
                     gguf_origin(gguf), name.len < 80 ? (int)name.len : 80, name.data);
}

static int check_length(const struct gguf *gguf, const char *key, const struct gguf_array *list,
                        int n, struct error *err)
{
    if (list->n == (uint64_t)n) return 0;
    return error_set(err, ERR_FORMAT, "%s: %s has %llu entries, but there are %d tokens",
                     gguf_origin(gguf), key, (unsigned long long)list->n, n);
}

/* A token may hold a NUL. */
static bool is_utf8(struct gguf_text text)
{
    for (size_t at = 0; at < text.len; at++) {
        at += utf8_prefix(text.data + at, text.len - at);
        if (at < text.len && text.data[at]) return false;
    }
    return true;
}

static int read_tokens(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err)
{
    struct gguf_array list = {0};
    int rc = gguf_read_texts(gguf, "tokenizer.ggml.tokens", &list, err);
    if (rc) return rc;
    if (list.n > INT_MAX) {
        return error_set(err, ERR_FORMAT, "%s: tokenizer.ggml.tokens has %llu entries",
                         gguf_origin(gguf), (unsigned long long)list.n);
    }
    rc = mem_array(&v->tokens, (size_t)list.n, sizeof *v->tokens, err);
    if (rc) return rc;
    v->n = (int)list.n;
    const uint8_t *at = list.data;
    for (int i = 0; i < v->n; i++) {
        v->tokens[i] = gguf_next_text(&at);
        if (v->tokens[i].len > GGUF_TOKEN_BYTES_MAX) {
            return error_set(err, ERR_UNSUPPORTED,
                             "%s: token %d of tokenizer.ggml.tokens has %zu bytes, more than %d",
                             gguf_origin(gguf), i, v->tokens[i].len, (int)GGUF_TOKEN_BYTES_MAX);
        }
        if (is_utf8(v->tokens[i])) continue;
        return error_set(err, ERR_FORMAT, "%s: token %d of tokenizer.ggml.tokens is not UTF-8",
                         gguf_origin(gguf), i);
    }
    return 0;
}

static int read_types(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    struct gguf_array list = {0};
    int rc = 0;
    TRY(mem_array(&v->types, (size_t)v->n, sizeof *v->types, err));
    TRY(gguf_read_ints(gguf, key, &list, err));
    if (list.data) TRY(check_length(gguf, key, &list, v->n, err));
    for (int i = 0; i < v->n; i++) {
        int64_t type = list.data ? gguf_array_int(&list, (uint64_t)i) : GGUF_TOKEN_NORMAL;
        if (type < 0 || type > GGUF_TOKEN_BYTE) {
            rc = error_set(err, ERR_FORMAT, "%s: %s of token %d is %lld, which is not in 0..%d",
                           gguf_origin(gguf), key, i, (long long)type, GGUF_TOKEN_BYTE);
            goto out;
        }
        v->types[i] = type ? (uint8_t)type : GGUF_TOKEN_NORMAL; /* 0: the type is not known */
    }
out:
    return rc;
}

/* Converters write [PAD7] for id 7 where the model's embedding has a row more than its tokenizer
 * has tokens. Without these the table equals that of the model's folder, so that the one may be
 * the draft of the other. */
static void drop_placeholders(struct gguf_vocabulary *v)
{
    char text[24];
    for (int i = 0; i < v->n; i++) {
        if (v->types[i] != GGUF_TOKEN_UNUSED) continue;
        snprintf(text, sizeof text, "[PAD%d]", i);
        if (gguf_text_is(&v->tokens[i], text)) v->tokens[i].len = 0;
    }
}

/* Gemma's files have no merges, and the scores of its runs of blanks do not say when they are made:
 * the order of all its tokens does. */
static bool is_gemma(const struct gguf_text *architecture)
{
    static const char *const names[] = {"gemma", "gemma2", "gemma3", "gemma3n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (gguf_text_is(architecture, names[i])) return true;
    }
    return false;
}

static int read_scores(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    int rc = gguf_read_numbers(gguf, key, &v->scores, err);
    if (rc) return rc;
    if (!v->scores.data) {
        return error_set(err, ERR_FORMAT, "%s has no tokenizer.ggml.merges and no %s",
                         gguf_origin(gguf), key);
    }
    rc = check_length(gguf, key, &v->scores, v->n, err);
    for (int i = 0; !rc && i < v->n; i++) {
        if (!isnan(gguf_array_number(&v->scores, (uint64_t)i))) continue;
        rc = error_set(err, ERR_FORMAT, "%s: %s of token %d is not a number", gguf_origin(gguf),
                       key, i);
    }
    return rc;
}

static int read_ranking(struct gguf_vocabulary *v, const struct gguf *gguf, bool is_sentencepiece,
                        struct error *err)
{
    struct gguf_text architecture = {0};
    int rc = gguf_read_texts(gguf, "tokenizer.ggml.merges", &v->merges, err);
    if (rc || v->merges.data) return rc;
    if (!is_sentencepiece) {
        return error_set(err, ERR_FORMAT, "%s has no tokenizer.ggml.merges", gguf_origin(gguf));
    }
    rc = gguf_read_text(gguf, "general.architecture", &architecture, err);
    if (rc) return rc;
    v->ranking = is_gemma(&architecture) ? GGUF_RANK_IDS : GGUF_RANK_SCORES;
    return v->ranking == GGUF_RANK_SCORES ? read_scores(v, gguf, err) : 0;
}

/* True for two blanks or more. */
static bool is_run_of_blanks(struct gguf_text token)
{
    for (size_t i = 0; i < token.len; i++) {
        if (token.data[i] != ' ') return false;
    }
    return token.len > 1;
}

/* llama.cpp's converter writes Gemma's runs of U+2581 as blanks, although a text has no blanks any
 * more when its words are merged: here they are pieces like others. */
static int respell_blanks(struct gguf_vocabulary *v, struct error *err)
{
    size_t n = 0;
    for (int i = 0; i < v->n; i++) {
        if (is_run_of_blanks(v->tokens[i])) n += v->tokens[i].len;
    }
    int rc = mem_array(&v->respelled, 3 * n, 1, err);
    if (rc) return rc;
    char *at = v->respelled;
    for (int i = 0; i < v->n; i++) {
        if (!is_run_of_blanks(v->tokens[i])) continue;
        const size_t len = v->tokens[i].len;
        v->tokens[i] = (struct gguf_text){at, 3 * len};
        v->types[i] = GGUF_TOKEN_NORMAL;
        for (size_t j = 0; j < len; j++, at += 3)
            memcpy(at, space_mark, 3);
    }
    return 0;
}

int gguf_tokens_read(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err)
{
    *v = (struct gguf_vocabulary){.ranking = GGUF_RANK_MERGES};
    int rc = read_tokens(v, gguf, err);
    if (!rc) rc = read_types(v, gguf, err);
    if (!rc) drop_placeholders(v);
    return rc;
}

int gguf_vocabulary_read(struct gguf_vocabulary *v, const struct gguf *gguf, struct error *err)
{
    bool is_sentencepiece = false;
    int rc = 0;
    *v = (struct gguf_vocabulary){0};
    TRY(gguf_is_sentencepiece(gguf, &is_sentencepiece, err));
    TRY(gguf_tokens_read(v, gguf, err));
    if (!v->n) {
        rc = error_set(err, ERR_FORMAT, "%s: tokenizer.ggml.tokens has 0 entries",
                       gguf_origin(gguf));
        goto out;
    }
    TRY(read_ranking(v, gguf, is_sentencepiece, err));
    if (v->ranking == GGUF_RANK_IDS) TRY(respell_blanks(v, err));
out:
    return rc;
}

void gguf_vocabulary_free(struct gguf_vocabulary *v)
{
    free(v->tokens);
    free(v->types);
    free(v->respelled);
    *v = (struct gguf_vocabulary){0};
}

int gguf_read_special_id(const struct gguf *gguf, enum gguf_special which, int n,
                         bool is_sentencepiece, int *id, struct error *err)
{
    static const struct {
        const char *key;
        int sentencepiece_id; /* -1 = none */
        bool is_needed;
    } tokens[] = {
        [GGUF_SPECIAL_BOS] = {"tokenizer.ggml.bos_token_id", 1, true},
        [GGUF_SPECIAL_EOS] = {"tokenizer.ggml.eos_token_id", 2, true},
        [GGUF_SPECIAL_EOT] = {"tokenizer.ggml.eot_token_id", -1, true},
        [GGUF_SPECIAL_EOM] = {"tokenizer.ggml.eom_token_id", -1, true},
        [GGUF_SPECIAL_UNKNOWN] = {"tokenizer.ggml.unknown_token_id", 0, false},
        [GGUF_SPECIAL_SEPARATOR] = {"tokenizer.ggml.seperator_token_id", -1, false}, /* spelt so */
        [GGUF_SPECIAL_PADDING] = {"tokenizer.ggml.padding_token_id", -1, false},
        [GGUF_SPECIAL_CLS] = {"tokenizer.ggml.cls_token_id", -1, false},
        [GGUF_SPECIAL_MASK] = {"tokenizer.ggml.mask_token_id", -1, false},
    };
    *id = is_sentencepiece && tokens[which].sentencepiece_id < n ? tokens[which].sentencepiece_id
                                                                 : -1;
    int rc = gguf_read_int(gguf, tokens[which].key, 0, n - 1, id, err);
    if (rc != ERR_FORMAT || tokens[which].is_needed) return rc;
    *id = -1;
    return 0;
}
