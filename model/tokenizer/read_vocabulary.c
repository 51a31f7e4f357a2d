/* tokenizer.json as a whole: the vocabulary and the added tokens; its merges are read in
 * read_merges.c, its components in read_components.c and read_decoder.c. The file is not trusted:
 * ids are bounded, every id and every content is unique, merges name tokens that exist.
 * "truncation" and "padding" are ignored, because a server never cuts or pads a prompt unless it is
 * asked to. */
#include "model/tokenizer/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/json.h"

struct reader {
    struct tokenizer *tok;
    const char *origin;
    const json_t *model, *merges;
    const json_t *added;                 /* a list */
    json_t *vocab;                       /* content to id */
    json_t *more_added;                  /* id to token */
    const struct gguf_vocabulary *lists; /* in place of vocab and merges; or NULL */
    struct matcher matcher;
    struct normalizer_scratch scratch;
};

static int read_id(const struct reader *r, const json_t *value, int32_t *id, struct error *err)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || n >= TOKENIZER_MAX_IDS) {
        return error_set(err, ERR_FORMAT, "%s: a token's id is not an integer in 0..%d", r->origin,
                         (int)TOKENIZER_MAX_IDS - 1);
    }
    *id = (int32_t)n;
    return 0;
}

/* ---- the model's flags ---- */

static int refuse_affix(const struct reader *r, const char *key, struct error *err)
{
    const char *value = NULL;
    int rc = json_read_string(r->model, key, &value, r->origin, err);
    if (!rc && value && *value) {
        rc =
            error_set(err, ERR_UNSUPPORTED, "%s: the model's %s is not understood", r->origin, key);
    }
    return rc;
}

static int read_model_flags(struct reader *r, struct error *err)
{
    struct bpe *bpe = &r->tok->bpe;
    const char *type = "BPE"; /* older files do not say */
    double dropout = 0;
    int rc = 0;
    TRY(json_read_string(r->model, "type", &type, r->origin, err));
    if (strcmp(type, "BPE") != 0) return component_unknown("model", type, r->origin, err);
    TRY(json_read_double(r->model, "dropout", &dropout, r->origin, err));
    if (dropout != 0) {
        return error_set(err, ERR_UNSUPPORTED, "%s: the model's dropout %g makes ids random",
                         r->origin, dropout);
    }
    TRY(refuse_affix(r, "continuing_subword_prefix", err));
    TRY(refuse_affix(r, "end_of_word_suffix", err));
    TRY(json_read_bool(r->model, "fuse_unk", &bpe->fuse_unk, r->origin, err));
    TRY(json_read_bool(r->model, "byte_fallback", &bpe->byte_fallback, r->origin, err));
    TRY(json_read_bool(r->model, "ignore_merges", &bpe->ignore_merges, r->origin, err));
out:
    return rc;
}

/* ---- vocabulary ---- */

static int check_shape(struct reader *r, const json_t *root, const json_t *config,
                       struct error *err)
{
    r->model = json_member(root, "model");
    r->vocab = json_member(r->model, "vocab");
    r->merges = json_member(r->model, "merges");
    r->added = json_member(root, "added_tokens");
    r->more_added = json_member(config, "added_tokens_decoder");
    if (!json_is_object(r->model)) {
        return error_set(err, ERR_FORMAT, "%s has no object \"model\"", r->origin);
    }
    int rc = read_model_flags(r, err);
    if (rc) return rc;
    if (!r->lists && (!json_is_object(r->vocab) || !json_is_array(r->merges))) {
        return error_set(err, ERR_FORMAT, "%s: the model has no \"vocab\" or no \"merges\"",
                         r->origin);
    }
    if ((r->added && !json_is_array(r->added)) ||
        (r->more_added && !json_is_object(r->more_added))) {
        return error_set(err, ERR_FORMAT, "%s: the added tokens are not a list", r->origin);
    }
    return 0;
}

static int read_key_id(const struct reader *r, const char *key, int32_t *id, struct error *err)
{
    char *end;
    long n = strtol(key, &end, 10);
    if (*end || end == key || n < 0 || n >= TOKENIZER_MAX_IDS) {
        return error_set(err, ERR_FORMAT,
                         "beside %s: a key of \"added_tokens_decoder\" is not an id in 0..%d",
                         r->origin, (int)TOKENIZER_MAX_IDS - 1);
    }
    *id = (int32_t)n;
    return 0;
}

/* 1 + the highest id that the files name. */
static int count_ids(const struct reader *r, int *n_ids, struct error *err)
{
    const char *key;
    json_t *value;
    int32_t id = 0, most = r->lists ? r->lists->n - 1 : -1;
    int rc = 0;
    if (most >= TOKENIZER_MAX_IDS) {
        return error_set(err, ERR_UNSUPPORTED, "%s has %d tokens, more than %d", r->origin,
                         (int)most + 1, (int)TOKENIZER_MAX_IDS);
    }
    json_object_foreach(r->vocab, key, value)
    {
        TRY(read_id(r, value, &id, err));
        if (id > most) most = id;
    }
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        TRY(read_id(r, json_member(json_array_get(r->added, i), "id"), &id, err));
        if (id > most) most = id;
    }
    json_object_foreach(r->more_added, key, value)
    {
        TRY(read_key_id(r, key, &id, err));
        if (id > most) most = id;
    }
    *n_ids = most + 1;
out:
    return rc;
}

static int read_vocab(struct reader *r, struct error *err)
{
    const char *key;
    json_t *value;
    int32_t id = 0;
    int rc = 0;
    for (id = 0; r->lists && id < r->lists->n; id++) {
        struct text content = {r->lists->tokens[id].data, r->lists->tokens[id].len};
        if (!content.len) continue;
        TRY(token_table_add(&r->tok->table, id, content, TOKEN_MODEL, r->origin, err));
    }
    json_object_foreach(r->vocab, key, value)
    {
        struct text content = {key, strlen(key)};
        TRY(read_id(r, value, &id, err));
        TRY(token_table_add(&r->tok->table, id, content, TOKEN_MODEL, r->origin, err));
    }
out:
    return rc;
}

/* ---- bytes and the unknown token ---- */

static int read_unknown(struct reader *r, struct error *err)
{
    const char *content = NULL;
    r->tok->bpe.unk_id = -1;
    int rc = json_read_string(r->model, "unk_token", &content, r->origin, err);
    if (rc || !content) return rc;
    r->tok->bpe.unk_id = token_table_find(&r->tok->table, content, strlen(content), TOKEN_MODEL);
    if (r->tok->bpe.unk_id >= 0) return 0;
    return error_set(err, ERR_FORMAT, "%s: unk_token \"%.*s\" is not in the vocabulary", r->origin,
                     text_shown_length(content, strlen(content), 80), content);
}

static void find_byte_tokens(struct tokenizer *tok)
{
    static const char hex[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        char name[] = "<0x00>";
        char code[2];
        size_t len = byte_level_char((uint8_t)byte, code);
        name[3] = hex[byte >> 4];
        name[4] = hex[byte & 15];
        tok->bpe.byte_id[byte] = tok->bpe.byte_level
                                     ? token_table_find(&tok->table, code, len, TOKEN_MODEL)
                                     : token_table_find(&tok->table, name, 6, TOKEN_MODEL);
    }
}

/* ---- added tokens ---- */

static int read_added_flags(const struct reader *r, const json_t *node, struct added_token *token,
                            bool *normalized, struct error *err)
{
    int rc = 0;
    TRY(json_read_bool(node, "special", &token->special, r->origin, err));
    TRY(json_read_bool(node, "lstrip", &token->lstrip, r->origin, err));
    TRY(json_read_bool(node, "rstrip", &token->rstrip, r->origin, err));
    TRY(json_read_bool(node, "single_word", &token->single_word, r->origin, err));
    *normalized = !token->special;
    TRY(json_read_bool(node, "normalized", normalized, r->origin, err));
out:
    return rc;
}

/* Puts the token into the set that searches it. What it decodes to: its content, or, as in Hugging
 * Face, what the normalizer makes of it unless it is special (a special token must stay one that
 * skip_special leaves out). */
static int keep_added(struct reader *r, struct added_token token, bool normalized,
                      struct text content, struct error *err)
{
    struct tokenizer *tok = r->tok;
    struct added_set *set = normalized ? &tok->normalized : &tok->raw;
    int rc = 0;
    if (normalized) {
        TRY(normalizer_run(&tok->normalizers, &r->matcher, content, false, &r->scratch, &content,
                           err));
    }
    if (!content.len) return 0;
    TRY(mem_array(&token.text, content.len, 1, err));
    memcpy(token.text, content.data, content.len);
    token.len = content.len;
    set->tokens[set->n++] = token;
    if (normalized && !token.special) {
        content = (struct text){token.text, token.len};
        TRY(decoder_make_piece(&tok->decoder, &r->matcher, &tok->table, token.id, content,
                               &r->scratch, err));
    }
out:
    return rc;
}

static int read_added_token(struct reader *r, const json_t *node, int32_t id, struct error *err)
{
    struct added_token token = {.id = id};
    bool normalized;
    const char *data = NULL;
    int rc = 0;
    TRY(json_read_string(node, "content", &data, r->origin, err));
    if (!data) return error_set(err, ERR_FORMAT, "%s: an added token has no content", r->origin);
    struct text content = {data, strlen(data)};
    if (content.len > TOKENIZER_MAX_ADDED_BYTES) {
        return error_set(err, ERR_UNSUPPORTED, "%s: an added token of %zu bytes, more than %d",
                         r->origin, content.len, (int)TOKENIZER_MAX_ADDED_BYTES);
    }
    if (!content.len) return 0;
    TRY(read_added_flags(r, node, &token, &normalized, err));
    unsigned flags = token.special ? TOKEN_SPECIAL : 0;
    TRY(token_table_add(&r->tok->table, id, content, flags, r->origin, err));
    TRY(decoder_make_piece(&r->tok->decoder, &r->matcher, &r->tok->table, id, content, &r->scratch,
                           err));
    TRY(keep_added(r, token, normalized, content, err));
out:
    return rc;
}

/* Merges the config's entry of an added token into the file's: the config's holds, but a token that
 * is special stays so. node: as the file has it. The caller calls json_decref; NULL: there is no
 * memory. */
static json_t *merge_added(const struct reader *r, json_t *node, int32_t id)
{
    char key[16];
    snprintf(key, sizeof key, "%d", (int)id);
    const json_t *other = json_member(r->more_added, key);
    const json_t *content = json_member(node, "content");
    if (!other || !content || !json_equal(json_member(other, "content"), content)) {
        return json_incref(node);
    }
    json_t *merged = json_copy((json_t *)(uintptr_t)other);
    if (merged && json_is_true(json_member(node, "special")) &&
        json_object_set_new(merged, "special", json_true())) {
        json_decref(merged);
        return NULL;
    }
    return merged;
}

static int read_listed(struct reader *r, json_t *node, int32_t id, struct error *err)
{
    json_t *merged = merge_added(r, node, id);
    if (!merged) return error_set(err, ERR_NO_MEMORY, "no memory for an added token");
    int rc = read_added_token(r, merged, id, err);
    json_decref(merged);
    return rc;
}

/* The config repeats the added tokens of the file and may name more. */
static int read_more_added(struct reader *r, const bool *seen, struct error *err)
{
    const char *key;
    json_t *value;
    int32_t id = 0;
    int rc = 0;
    json_object_foreach(r->more_added, key, value)
    {
        TRY(read_key_id(r, key, &id, err));
        if (!seen[id]) TRY(read_added_token(r, value, id, err));
    }
out:
    return rc;
}

static int read_added(struct reader *r, struct error *err)
{
    struct tokenizer *tok = r->tok;
    size_t n = json_array_size(r->added) + json_object_size(r->more_added);
    bool *seen = NULL;
    int32_t id = 0;
    int rc = 0;
    TRY(mem_array(&tok->raw.tokens, n, sizeof *tok->raw.tokens, err));
    TRY(mem_array(&tok->normalized.tokens, n, sizeof *tok->normalized.tokens, err));
    TRY(mem_array(&seen, (size_t)tok->table.n_ids, sizeof *seen, err));
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        json_t *node = json_array_get(r->added, i);
        TRY(read_id(r, json_member(node, "id"), &id, err));
        TRY(read_listed(r, node, id, err));
        seen[id] = true;
    }
    TRY(read_more_added(r, seen, err));
    TRY(added_set_sort(&tok->raw, r->origin, err));
    TRY(added_set_sort(&tok->normalized, r->origin, err));
out:
    free(seen);
    return rc;
}

/* ---- all of it ---- */

static int read_components(struct reader *r, const json_t *root, struct error *err)
{
    struct tokenizer *tok = r->tok;
    const json_t *normalizer = json_member(root, "normalizer");
    const json_t *splitter = json_member(root, "pre_tokenizer");
    int rc = 0;
    if (normalizer) TRY(tokenizer_read_normalizer(tok, normalizer, r->origin, err));
    if (splitter) TRY(tokenizer_read_splitter(tok, splitter, r->origin, err));
    TRY(tokenizer_read_decoder(tok, json_member(root, "decoder"), r->origin, err));
    tok->bpe.byte_level =
        tok->n_splitters > 0 && tok->splitters[tok->n_splitters - 1].kind == SPLITTER_BYTE_LEVEL;
out:
    return rc;
}

static int make_pieces(struct reader *r, struct error *err)
{
    struct token_table *table = &r->tok->table;
    int rc = 0;
    for (int32_t id = 0; id < table->n_ids; id++) {
        if (!(table->flags[id] & TOKEN_PRESENT)) continue;
        TRY(decoder_make_piece(&r->tok->decoder, &r->matcher, table, id,
                               token_table_content(table, id), &r->scratch, err));
    }
out:
    return rc;
}

int tokenizer_read(struct tokenizer *tok, const json_t *root, const json_t *config,
                   const struct gguf_vocabulary *lists, const char *origin, struct error *err)
{
    struct reader r = {.tok = tok, .lists = lists, .origin = origin};
    const json_t *post = json_member(root, "post_processor");
    int n_ids = 0, rc = 0;
    TRY(check_shape(&r, root, config, err));
    TRY(matcher_open(&r.matcher, err));
    TRY(read_components(&r, root, err));
    TRY(count_ids(&r, &n_ids, err));
    TRY(token_table_init(&tok->table, n_ids, err));
    TRY(read_vocab(&r, err));
    TRY(tokenizer_read_merges(tok, r.merges, lists, origin, err));
    TRY(read_unknown(&r, err));
    find_byte_tokens(tok);
    TRY(make_pieces(&r, err));
    TRY(read_added(&r, err));
    if (post) TRY(tokenizer_read_template(tok, post, origin, err));
out:
    matcher_close(&r.matcher);
    normalizer_scratch_free(&r.scratch);
    return rc;
}
