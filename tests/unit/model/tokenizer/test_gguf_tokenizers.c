/* ctest: labels=quick libs=tokenizer timeout=120 */
/* Tokenizers of GGUF files against transformers' and SentencePiece's vocabularies: the ids of every
 * text of tests/golden/gguf_tokenizers, made by tests/oracle/gguf_tokenizers_golden.py, must come
 * out equal. */
#include "tests/support/check_util.h"

#include <jansson.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/buffer.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/gguf_writer.h"

#define GOLDEN SOURCE_DIR "/tests/golden/gguf_tokenizers/"

static struct error err;

/* The bytes of a golden file with one key more. */
static void read_with_key(struct gguf_writer *w, const char *file, const char *key,
                          const char *value)
{
    char path[512], *data;
    size_t len;
    snprintf(path, sizeof path, GOLDEN "%s.gguf", file);
    CHECK_OK(file_read_text(&data, &len, path, 1 << 20, &err));
    gguf_put(w, data, len);
    if (key) {
        w->data[16]++; /* the number of keys, which are fewer than 255 */
        gguf_put_text_key(w, key, value);
    }
    free(data);
}

static struct tokenizer *open_bytes(const struct gguf_writer *w)
{
    struct gguf *gguf;
    struct tokenizer *tok;
    CHECK_OK(gguf_open_bytes(&gguf, w->data, w->len, "golden.gguf", &err));
    CHECK_OK(tokenizer_open_gguf(&tok, gguf, &err));
    gguf_close(gguf);
    return tok;
}

/* The tokenizer that a list of ids is of. */
static struct tokenizer *open_golden(const char *name)
{
    struct gguf_writer w = {0};
    bool is_spm = strcmp(name, "spm") == 0 || strcmp(name, "gemma") == 0;
    read_with_key(&w, is_spm ? name : "bpe", is_spm ? NULL : "tokenizer.ggml.pre", name);
    struct tokenizer *tok = open_bytes(&w);
    gguf_writer_free(&w);
    ck_assert_ptr_null(tokenizer_remark(tok));
    return tok;
}

static json_t *load_texts(void)
{
    json_error_t where;
    json_t *root = json_load_file(GOLDEN "texts.json", JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "texts.json: line %d: %s", where.line, where.text);
    ck_assert_uint_ge(json_array_size(json_object_get(root, "texts")), 1000);
    return root;
}

/* A list of ids. */
struct reader {
    char *data;
    size_t len, at;
};

static void open_ids(struct reader *r, const char *name)
{
    char path[512];
    *r = (struct reader){0};
    snprintf(path, sizeof path, GOLDEN "%s.ids", name);
    CHECK_OK(file_read_text(&r->data, &r->len, path, 1 << 20, &err));
}

static unsigned next_number(struct reader *r)
{
    unsigned value = 0;
    for (unsigned shift = 0;; shift += 7) {
        ck_assert_uint_lt(r->at, r->len);
        uint8_t byte = (uint8_t)r->data[r->at++];
        value |= (unsigned)(byte & 127) << shift;
        if (byte < 128) return value;
    }
}

/* Replaces the ids by those of the next text; false: they are those of the first list. */
static bool next_ids(struct reader *r, struct token_ids *ids)
{
    unsigned n = next_number(r);
    ids->n = 0;
    for (unsigned i = 1; i < n; i++) {
        int32_t id = (int32_t)next_number(r);
        CHECK_OK(token_ids_append(ids, &id, 1, &err));
    }
    return n > 0;
}

static void check_ids(const struct token_ids *ids, const struct token_ids *wanted, const char *name,
                      const char *text, size_t index)
{
    for (size_t i = 0; i < ids->n && i < wanted->n; i++) {
        ck_assert_msg(ids->data[i] == wanted->data[i],
                      "%s, text %zu, id %zu: %d, wanted %d: \"%s\"", name, index, i,
                      (int)ids->data[i], (int)wanted->data[i], text);
    }
    ck_assert_msg(ids->n == wanted->n, "%s, text %zu: %zu ids, wanted %zu: \"%s\"", name, index,
                  ids->n, wanted->n, text);
}

START_TEST(golden_ids_equal_those_of_transformers)
{
    json_t *root = load_texts(), *text;
    const json_t *names = json_object_get(root, "ids");
    ck_assert_uint_eq(json_array_size(names), 9);
    const char *name = json_string_value(json_array_get(names, (size_t)_i));
    struct reader base, own;
    struct token_ids base_ids = {0}, own_ids = {0}, ids = {0};
    struct tokenizer *tok = open_golden(name);
    size_t i;
    open_ids(&base, json_string_value(json_array_get(names, 0)));
    open_ids(&own, name);
    json_array_foreach(json_object_get(root, "texts"), i, text)
    {
        next_ids(&base, &base_ids);
        bool is_own = next_ids(&own, &own_ids);
        ids.n = 0;
        CHECK_OK(tokenizer_encode(tok, json_string_value(text), json_string_length(text),
                                  TOKENIZER_PARSE_SPECIAL, &ids, &err));
        check_ids(&ids, is_own ? &own_ids : &base_ids, name, json_string_value(text), i);
    }
    ck_assert_uint_eq(own.at, own.len);
    token_ids_free(&base_ids);
    token_ids_free(&own_ids);
    token_ids_free(&ids);
    free(base.data);
    free(own.data);
    tokenizer_close(tok);
    json_decref(root);
}
END_TEST

/* U+2581 means a blank to SentencePiece, which is what comes back. */
START_TEST(texts_come_back)
{
    static const char *const names[] = {"gpt-2", "deepseek-v3", "gemma"};
    struct tokenizer *tok = open_golden(names[_i]);
    json_t *root = load_texts(), *text;
    size_t i, n_compared = 0;
    json_array_foreach(json_object_get(root, "texts"), i, text)
    {
        const char *wanted = json_string_value(text), *part;
        size_t wanted_len = json_string_length(text), len;
        struct token_ids ids = {0};
        struct buffer made = {0};
        struct detokenizer *detok;
        if (strstr(wanted, "\xe2\x96\x81")) continue;
        CHECK_OK(tokenizer_encode(tok, wanted, wanted_len, TOKENIZER_PARSE_SPECIAL, &ids, &err));
        CHECK_OK(detokenizer_open(&detok, tok, false, &err));
        for (size_t j = 0; j < ids.n; j++) {
            CHECK_OK(detokenizer_push(detok, ids.data[j], &part, &len, &err));
            CHECK_OK(buffer_append(&made, part, len, &err));
        }
        CHECK_OK(detokenizer_finish(detok, &part, &len, &err));
        CHECK_OK(buffer_append(&made, part, len, &err));
        bool is_equal =
            made.len == wanted_len && (!made.len || memcmp(made.data, wanted, made.len) == 0);
        ck_assert_msg(is_equal, "%s, text %zu: \"%s\"", names[_i], i, wanted);
        detokenizer_close(detok);
        token_ids_free(&ids);
        buffer_free(&made);
        n_compared++;
    }
    ck_assert_uint_gt(n_compared, 700);
    tokenizer_close(tok);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_tokenizers");
    TCase *tcase = tcase_create("golden");
    tcase_add_loop_test(tcase, golden_ids_equal_those_of_transformers, 0, 9);
    tcase_add_loop_test(tcase, texts_come_back, 0, 3);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
