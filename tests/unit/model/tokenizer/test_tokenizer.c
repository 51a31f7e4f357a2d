/* ctest: labels=quick libs=tokenizer timeout=120 */
/* The tokenizer against Hugging Face's: every golden file of tests/golden/tokenizers, made by
 * tests/oracle/tokenizers_golden.py, must come out equal, ids and text both. */
#include "tests/support/check_util.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>

#include "base/system/file.h"
#include "model/tokenizer/tokenizer.h"

#define GOLDEN SOURCE_DIR "/tests/golden/tokenizers/"
#define TALES  SOURCE_DIR "/deploy/models/tales/target"

static struct error err;

static const char *const golden_names[] = {"gpt2",      "llama3", "qwen2",   "llama2",
                                           "metaspace", "tales",  "variants"};

static json_t *load_json(const char *path)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "%s: line %d: %s", path, where.line, where.text);
    return root;
}

static json_t *load_base(const char *base)
{
    char path[512];
    if (strcmp(base, "tales") == 0) return load_json(TALES "/tokenizer.json");
    snprintf(path, sizeof path, GOLDEN "%s.json", base);
    return load_json(path);
}

/* The tokenizer of a golden entry: its base with the members of its patch. */
static struct tokenizer *open_entry(const json_t *entry)
{
    struct tokenizer *tok;
    json_t *root = load_base(json_string_value(json_object_get(entry, "base")));
    json_object_update(root, json_object_get(entry, "patch"));
    char *text = json_dumps(root, JSON_COMPACT);
    const char *name = json_string_value(json_object_get(entry, "name"));
    CHECK_OK(tokenizer_parse(&tok, text, strlen(text), NULL, 0, name, &err));
    free(text);
    json_decref(root);
    return tok;
}

static void check_ids(const struct tokenizer *tok, const json_t *wanted, const json_t *text,
                      unsigned flags, const char *name, size_t index)
{
    struct token_ids ids = {0};
    CHECK_OK(tokenizer_encode(tok, json_string_value(text), json_string_length(text), flags, &ids,
                              &err));
    size_t n = json_array_size(wanted);
    for (size_t i = 0; i < n && i < ids.n; i++) {
        json_int_t id = json_integer_value(json_array_get(wanted, i));
        ck_assert_msg(ids.data[i] == id, "%s, case %zu, flags %u, id %zu: %d, wanted %d: \"%s\"",
                      name, index, flags, i, (int)ids.data[i], (int)id, json_string_value(text));
    }
    ck_assert_msg(ids.n == n, "%s, case %zu, flags %u: %zu ids, wanted %zu: \"%s\"", name, index,
                  flags, ids.n, n, json_string_value(text));
    token_ids_free(&ids);
}

static bool is_utf8(const char *text, size_t len)
{
    json_t *string = json_stringn(text, len);
    json_decref(string);
    return string != NULL;
}

static void take(char *out, size_t *n, const char *text, size_t len)
{
    ck_assert(is_utf8(text, len));
    ck_assert_int_eq(text[len], 0);
    ck_assert(*n + len < 1 << 16);
    memcpy(out + *n, text, len);
    *n += len;
}

/* Decodes twice with one detokenizer: finishing makes it fresh. Every part must be valid UTF-8. */
static void check_text(const struct tokenizer *tok, const json_t *ids, const json_t *wanted,
                       bool skip_special, const char *name, size_t index)
{
    static char out[1 << 16];
    struct detokenizer *detok;
    const char *text;
    size_t len;
    if (!wanted) return; /* the library itself fails here */
    CHECK_OK(detokenizer_open(&detok, tok, skip_special, &err));
    for (int round = 0; round < 2; round++) {
        size_t n = 0;
        for (size_t i = 0; i < json_array_size(ids); i++) {
            int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
            CHECK_OK(detokenizer_push(detok, id, &text, &len, &err));
            take(out, &n, text, len);
        }
        CHECK_OK(detokenizer_finish(detok, &text, &len, &err));
        take(out, &n, text, len);
        out[n] = 0;
        ck_assert_msg(n == json_string_length(wanted) &&
                          memcmp(out, json_string_value(wanted), n) == 0,
                      "%s, %zu, skip %d: \"%s\", wanted \"%s\"", name, index, skip_special, out,
                      json_string_value(wanted));
    }
    detokenizer_close(detok);
}

static void check_decoded(const struct tokenizer *tok, const json_t *entry, const char *name,
                          size_t index)
{
    const json_t *ids = json_object_get(entry, "ids");
    check_text(tok, ids, json_object_get(entry, "decoded"), false, name, index);
    check_text(tok, ids, json_object_get(entry, "skipped"), true, name, index);
}

static void check_case(const struct tokenizer *tok, const json_t *entry, const char *name,
                       size_t index)
{
    const json_t *text = json_object_get(entry, "text");
    const json_t *ids = json_object_get(entry, "ids");
    const json_t *plain = json_object_get(entry, "plain");
    const json_t *literal = json_object_get(entry, "literal");
    if (!plain) plain = ids;
    check_ids(tok, ids, text, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, name, index);
    check_ids(tok, plain, text, TOKENIZER_PARSE_SPECIAL, name, index);
    check_ids(tok, literal ? literal : plain, text, 0, name, index);
    check_decoded(tok, entry, name, index);
}

START_TEST(golden_ids_and_texts_equal_hugging_face)
{
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s.golden.json", golden_names[_i]);
    json_t *root = load_json(path), *entry, *item;
    size_t i, j;
    ck_assert(json_is_string(json_object_get(root, "version")));
    ck_assert_uint_gt(json_array_size(json_object_get(root, "tokenizers")), 0);
    json_array_foreach(json_object_get(root, "tokenizers"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct tokenizer *tok = open_entry(entry);
        ck_assert_uint_gt(json_array_size(json_object_get(entry, "cases")), 40);
        json_array_foreach(json_object_get(entry, "cases"), j, item) check_case(tok, item, name, j);
        json_array_foreach(json_object_get(entry, "sequences"), j, item)
            check_decoded(tok, item, name, j);
        tokenizer_close(tok);
    }
    json_decref(root);
}
END_TEST

START_TEST(shipped_prompts_have_the_reference_ids)
{
    struct tokenizer *tok;
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    json_t *root = load_json(SOURCE_DIR "/tests/golden/tales/reference_target.json"), *prompt;
    size_t i;
    ck_assert_uint_gt(json_array_size(json_object_get(root, "prompts")), 0);
    json_array_foreach(json_object_get(root, "prompts"), i, prompt)
        check_ids(tok, json_object_get(prompt, "ids"), json_object_get(prompt, "text"),
                  TOKENIZER_ADD_SPECIAL, "reference", i);
    json_decref(root);
    tokenizer_close(tok);
}
END_TEST

static struct tokenizer *open_golden(const char *name)
{
    char path[512], *text;
    size_t len;
    struct tokenizer *tok;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    CHECK_OK(file_read_text(&text, &len, path, 1 << 24, &err));
    CHECK_OK(tokenizer_parse(&tok, text, len, NULL, 0, name, &err));
    free(text);
    return tok;
}

/* The pieces of the ids joined together must be the text, byte for byte. */
static void check_round_trip(const struct tokenizer *tok, const char *text, size_t len)
{
    struct token_ids ids = {0};
    size_t at = 0;
    CHECK_OK(tokenizer_encode(tok, text, len, 0, &ids, &err));
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *piece = tokenizer_piece(tok, ids.data[i], &n);
        ck_assert_uint_le(at + n, len);
        ck_assert_mem_eq(piece, text + at, n);
        at += n;
    }
    ck_assert_uint_eq(at, len);
    token_ids_free(&ids);
}

START_TEST(bytes_that_are_not_utf8_survive_byte_level)
{
    static const char *const names[] = {"gpt2", "llama3"};
    uint32_t seed = 12345;
    char text[257];
    for (int n = 0; n < 2; n++) {
        struct tokenizer *tok = open_golden(names[n]);
        for (int i = 0; i < 256; i++)
            text[i] = (char)i;
        check_round_trip(tok, text, 256);
        check_round_trip(tok, "\xe2\x98 a\xe2 \xff\xfe'\xc0\xaf\xed\xa0\x80 \xf4\x90\x80\x80", 19);
        for (int round = 0; round < 300; round++) {
            size_t len = 1 + (size_t)round % 40;
            for (size_t i = 0; i < len; i++) {
                seed = seed * 1664525 + 1013904223;
                text[i] = (char)(seed >> 24);
            }
            check_round_trip(tok, text, len);
        }
        tokenizer_close(tok);
    }
}
END_TEST

START_TEST(bytes_that_are_not_utf8_take_byte_tokens)
{
    struct tokenizer *tok = open_golden("llama2");
    struct token_ids ids = {0};
    size_t len;
    CHECK_OK(tokenizer_encode(tok, "\xff\xc3", 2, 0, &ids, &err));
    ck_assert_uint_eq(ids.n, 2);
    ck_assert_mem_eq(tokenizer_piece(tok, ids.data[0], &len), "\xff", 1);
    ck_assert_uint_eq(len, 1);
    ck_assert_int_eq(ids.data[0] - ids.data[1], 0xff - 0xc3);
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

/* A new piece of text between two bad bytes does not begin a sentence: no blank before it. */
START_TEST(text_after_bad_bytes_gets_no_prefix)
{
    struct tokenizer *tok = open_golden("llama2");
    struct token_ids ids = {0};
    struct detokenizer *detok;
    const char *text;
    size_t len;
    char out[64] = "";
    CHECK_OK(tokenizer_encode(tok,
                              "a\xff"
                              "b",
                              3, 0, &ids, &err));
    CHECK_OK(detokenizer_open(&detok, tok, false, &err));
    for (size_t i = 0; i < ids.n; i++) {
        CHECK_OK(detokenizer_push(detok, ids.data[i], &text, &len, &err));
        strcat(out, text);
    }
    ck_assert_str_eq(out, "a\xef\xbf\xbd"
                          "b");
    detokenizer_close(detok);
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

START_TEST(bytes_tokenizer_is_the_identity)
{
    struct tokenizer *tok;
    struct token_ids ids = {0};
    char text[256];
    size_t len;
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    CHECK_ERR(tokenizer_open_bytes(&tok, 255, &err), ERR_ARGUMENT, "255");
    ck_assert_ptr_null(tok);
    CHECK_OK(tokenizer_open_bytes(&tok, 1000, &err));
    ck_assert_int_eq(tokenizer_vocab_size(tok), 1000);
    CHECK_OK(tokenizer_encode(tok, text, 256, TOKENIZER_ADD_SPECIAL, &ids, &err));
    ck_assert_uint_eq(ids.n, 256);
    for (int i = 0; i < 256; i++)
        ck_assert_int_eq(ids.data[i], i);
    tokenizer_piece(tok, 999, &len);
    ck_assert_uint_eq(len, 0);
    ck_assert(!tokenizer_is_special(tok, 999));
    struct tokenizer *other;
    CHECK_OK(tokenizer_open_bytes(&other, 1001, &err));
    ck_assert(tokenizer_fingerprint(tok) != tokenizer_fingerprint(other));
    token_ids_free(&ids);
    tokenizer_close(other);
    tokenizer_close(tok);
}
END_TEST

START_TEST(one_token_has_a_text_for_people)
{
    struct tokenizer *tok;
    char text[16];
    CHECK_OK(tokenizer_open_bytes(&tok, 1000, &err));
    CHECK_OK(tokenizer_token_text(tok, 'A', text, sizeof text, &err));
    ck_assert_str_eq(text, "A");
    CHECK_OK(tokenizer_token_text(tok, 0xc3, text, sizeof text, &err)); /* half a character */
    ck_assert_str_eq(text, "\xef\xbf\xbd");
    CHECK_OK(tokenizer_token_text(tok, 0xc3, text, 3, &err)); /* no room */
    ck_assert_str_eq(text, "");
    CHECK_OK(tokenizer_token_text(tok, 999, text, sizeof text, &err));
    ck_assert_str_eq(text, "");
    tokenizer_close(tok);
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    CHECK_OK(tokenizer_token_text(tok, 0, text, sizeof text, &err)); /* special tokens too */
    ck_assert_str_eq(text, "<|endoftext|>");
    tokenizer_close(tok);
}
END_TEST

START_TEST(table_answers_for_every_id)
{
    struct tokenizer *tok, *again;
    size_t len;
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    CHECK_OK(tokenizer_open(&again, SOURCE_DIR "/deploy/models/tales/draft", &err));
    ck_assert_int_eq(tokenizer_vocab_size(tok), 4096);
    ck_assert(tokenizer_fingerprint(tok) == tokenizer_fingerprint(again));
    ck_assert(tokenizer_fingerprint(tok) != 0);
    ck_assert(tokenizer_is_special(tok, 0));
    ck_assert(!tokenizer_is_special(tok, 4));
    ck_assert(!tokenizer_is_special(tok, -1));
    ck_assert(!tokenizer_is_special(tok, 4096));
    ck_assert(strncmp(tokenizer_piece(tok, 0, &len), "<|endoftext|>", 13) == 0);
    ck_assert_uint_eq(len, 13);
    tokenizer_piece(tok, 4096, &len);
    ck_assert_uint_eq(len, 0);
    tokenizer_piece(tok, INT32_MIN, &len);
    ck_assert_uint_eq(len, 0);
    tokenizer_close(again);
    tokenizer_close(tok);
    tokenizer_close(NULL);
}
END_TEST

struct worker {
    pthread_t thread;
    const struct tokenizer *tok;
    struct token_ids ids;
    int rc;
};

static void *encode_in_thread(void *arg)
{
    static const char text[] = "It's 12345 caf\xc3\xa9s  and\r\n\n <|im_start|> e\xcc\x81 \xff.";
    struct worker *worker = arg;
    struct error why;
    for (int i = 0; i < 50 && !worker->rc; i++) {
        worker->ids.n = 0;
        worker->rc =
            tokenizer_encode(worker->tok, text, sizeof text - 1, i & 3, &worker->ids, &why);
    }
    return NULL;
}

START_TEST(threads_share_one_tokenizer)
{
    struct tokenizer *tok = open_golden("qwen2");
    struct worker workers[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        workers[i].tok = tok;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, encode_in_thread, &workers[i]),
                         0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_int_eq(workers[i].rc, 0);
        ck_assert_uint_eq(workers[i].ids.n, workers[0].ids.n);
        ck_assert_mem_eq(workers[i].ids.data, workers[0].ids.data,
                         workers[0].ids.n * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++)
        token_ids_free(&workers[i].ids);
    tokenizer_close(tok);
}
END_TEST

START_TEST(missing_folder_is_not_found)
{
    struct tokenizer *tok;
    CHECK_ERR(tokenizer_open(&tok, SOURCE_DIR "/docs", &err), ERR_NOT_FOUND, "tokenizer.json");
    ck_assert_ptr_null(tok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *tcase = tcase_create("tokenizer");
    int n_golden = sizeof golden_names / sizeof golden_names[0];
    tcase_add_loop_test(tcase, golden_ids_and_texts_equal_hugging_face, 0, n_golden);
    tcase_add_test(tcase, shipped_prompts_have_the_reference_ids);
    tcase_add_test(tcase, bytes_that_are_not_utf8_survive_byte_level);
    tcase_add_test(tcase, bytes_that_are_not_utf8_take_byte_tokens);
    tcase_add_test(tcase, text_after_bad_bytes_gets_no_prefix);
    tcase_add_test(tcase, bytes_tokenizer_is_the_identity);
    tcase_add_test(tcase, one_token_has_a_text_for_people);
    tcase_add_test(tcase, table_answers_for_every_id);
    tcase_add_test(tcase, threads_share_one_tokenizer);
    tcase_add_test(tcase, missing_folder_is_not_found);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
