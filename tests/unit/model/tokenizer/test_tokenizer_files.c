/* ctest: labels=quick libs=tokenizer timeout=120 */
/* tokenizer.json as a file that is not trusted: what is not understood is refused by name, what is
 * wrong is refused with its place, and no text makes encoding take more than n log n. */
#include "tests/support/check_util.h"

#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"
#include "model/tokenizer/tokenizer.h"

static struct error err;

/* A small byte-level file: tokens a, b, ab, aab, Ġ and the members of `patch` (JSON without
 * braces). `model` replaces members of the model in the same way. */
static int parse_patched(struct tokenizer **tok, const char *patch, const char *model,
                         const char *config)
{
    static const char base[] =
        "{\"added_tokens\": [{\"id\": 5, \"content\": \"<eos>\", \"special\": true}],"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
        " \"decoder\": {\"type\": \"ByteLevel\"}}";
    static const char base_model[] = "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": "
                                     "2, \"aab\": 3, \"\xc4\xa0\": 4},"
                                     " \"merges\": [\"a b\", [\"a\", \"ab\"]]}";
    char text[8192];
    json_t *root = json_loads(base, 0, NULL);
    json_t *part = json_loads(base_model, 0, NULL);
    snprintf(text, sizeof text, "{%s}", model);
    json_t *changes = json_loads(text, 0, NULL);
    ck_assert_msg(changes != NULL, "%s", text);
    json_object_update(part, changes);
    json_decref(changes);
    json_object_set_new(root, "model", part);
    snprintf(text, sizeof text, "{%s}", patch);
    changes = json_loads(text, 0, NULL);
    ck_assert_msg(changes != NULL, "%s", text);
    json_object_update(root, changes);
    json_decref(changes);
    char *json = json_dumps(root, 0);
    int rc =
        tokenizer_parse(tok, json, strlen(json), config, config ? strlen(config) : 0, "test", &err);
    free(json);
    json_decref(root);
    return rc;
}

static const struct refusal {
    const char *patch, *model;
    int code;
    const char *part;
} refusals[] = {
    /* other models and what BPE may ask for */
    {"", "\"type\": \"WordPiece\"", ERR_UNSUPPORTED, "model \"WordPiece\""},
    {"", "\"type\": \"Unigram\"", ERR_UNSUPPORTED, "model \"Unigram\""},
    {"", "\"dropout\": 0.1", ERR_UNSUPPORTED, "dropout"},
    {"", "\"continuing_subword_prefix\": \"##\"", ERR_UNSUPPORTED, "continuing_subword_prefix"},
    {"", "\"end_of_word_suffix\": \"</w>\"", ERR_UNSUPPORTED, "end_of_word_suffix"},
    {"", "\"unk_token\": \"<unk>\"", ERR_FORMAT, "<unk>"},
    {"", "\"vocab\": []", ERR_FORMAT, "vocab"},
    {"", "\"merges\": null", ERR_FORMAT, "merges"},
    {"\"model\": 3", "", ERR_FORMAT, "model"},
    /* ids */
    {"", "\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []", ERR_FORMAT, "id 0"},
    {"", "\"vocab\": {\"a\": -1}, \"merges\": []", ERR_FORMAT, "0..4194303"},
    {"", "\"vocab\": {\"a\": 4194304}, \"merges\": []", ERR_FORMAT, "0..4194303"},
    {"", "\"vocab\": {\"a\": 1e3}, \"merges\": []", ERR_FORMAT, "not an integer"},
    {"\"added_tokens\": [{\"id\": 0, \"content\": \"x\"}]", "", ERR_FORMAT, "id 0"},
    {"\"added_tokens\": [{\"id\": 7, \"content\": \"a\"}]", "", ERR_FORMAT, "two ids, 0 and 7"},
    {"\"added_tokens\": [{\"id\": 99999999, \"content\": \"x\"}]", "", ERR_FORMAT, "0..4194303"},
    {"\"added_tokens\": [{\"content\": \"x\"}]", "", ERR_FORMAT, "not an integer"},
    {"\"added_tokens\": [{\"id\": 7}]", "", ERR_FORMAT, "content"},
    {"\"added_tokens\": {}", "", ERR_FORMAT, "added tokens"},
    {"\"added_tokens\": [{\"id\": 7, \"content\": \"x\"}, {\"id\": 7, \"content\": \"x\"}]", "",
     ERR_FORMAT, "two added tokens"},
    /* merges */
    {"", "\"merges\": [\"a\"]", ERR_FORMAT, "merge 0"},
    {"", "\"merges\": [\"a b\", \"a b b\"]", ERR_FORMAT, "merge 1"},
    {"", "\"merges\": [[\"a\", \"b\", \"b\"]]", ERR_FORMAT, "merge 0"},
    {"", "\"merges\": [[\"\", \"b\"]]", ERR_FORMAT, "merge 0"},
    {"", "\"merges\": [7]", ERR_FORMAT, "merge 0"},
    {"", "\"merges\": [\"a x\"]", ERR_FORMAT, "\"x\""},
    {"", "\"merges\": [\"b b\"]", ERR_FORMAT, "\"bb\""},
    /* components */
    {"\"normalizer\": {\"type\": \"Lowercase\"}", "", ERR_UNSUPPORTED, "\"Lowercase\""},
    {"\"normalizer\": {\"type\": \"Precompiled\"}", "", ERR_UNSUPPORTED, "\"Precompiled\""},
    {"\"normalizer\": {}", "", ERR_FORMAT, "type"},
    {"\"normalizer\": 1", "", ERR_FORMAT, "normalizer"},
    {"\"normalizer\": {\"type\": \"Prepend\"}", "", ERR_FORMAT, "prepend"},
    {"\"normalizer\": {\"type\": \"Replace\", \"content\": \"\"}", "", ERR_FORMAT, "pattern"},
    {"\"pre_tokenizer\": {\"type\": \"Whitespace\"}", "", ERR_UNSUPPORTED, "\"Whitespace\""},
    {"\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"xy\"}", "", ERR_FORMAT,
     "one character"},
    {"\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
     "\"prepend_scheme\": \"last\"}",
     "", ERR_UNSUPPORTED, "\"last\""},
    {"\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Torn\", "
     "\"pattern\": {\"String\": \"x\"}}",
     "", ERR_UNSUPPORTED, "\"Torn\""},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
     "{\"type\": \"Digits\"}]}",
     "", ERR_UNSUPPORTED, "\"Digits\" after ByteLevel"},
    {"\"decoder\": {\"type\": \"WordPiece\"}", "", ERR_UNSUPPORTED, "decoder \"WordPiece\""},
    {"\"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}", "",
     ERR_UNSUPPORTED, "\"Strip\" at this place"},
    {"\"post_processor\": {\"type\": \"BertProcessing\"}", "", ERR_UNSUPPORTED, "BertProcessing"},
    {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": "
     "{\"id\": \"B\"}}]}",
     "", ERR_UNSUPPORTED, "another text than A"},
    {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}", "", ERR_UNSUPPORTED,
     "without its text"},
    {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
     "{\"id\": \"<s>\"}}]}",
     "", ERR_FORMAT, "\"<s>\""},
    {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
     "{\"id\": \"s\"}}], \"special_tokens\": {\"s\": {\"ids\": [6]}}}",
     "", ERR_FORMAT, "unknown id"},
};

START_TEST(refusal_names_the_cause)
{
    const struct refusal *r = &refusals[_i];
    struct tokenizer *tok;
    CHECK_ERR(parse_patched(&tok, r->patch, r->model, NULL), r->code, r->part);
    ck_assert_ptr_null(tok);
}
END_TEST

static const struct {
    const char *pattern, *part;
} bad_patterns[] = {
    {"(", "does not compile"},
    {"[z-a]", "does not compile"},
    {"\\\\p{Nonsense}", "\\p{Nonsense}"},
    {"[a&&b]", "&&"},
    {"[a[b]]", "class within"},
    {"\\\\bword", "\\b"},
    {"\\\\h", "\\h"},
    {"[\\\\W]", "\\W"},
    {"\\\\C", "\\C"},
    {"(?<=a+)b", "does not compile"},
};

START_TEST(pattern_that_cannot_be_kept_is_named)
{
    char patch[512];
    struct tokenizer *tok;
    snprintf(patch, sizeof patch,
             "\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
             "{\"Regex\": \"%s\"}}",
             bad_patterns[_i].pattern);
    CHECK_ERR(parse_patched(&tok, patch, "", NULL), ERR_UNSUPPORTED, bad_patterns[_i].part);
}
END_TEST

START_TEST(exploding_pattern_is_an_error_not_a_hang)
{
    struct tokenizer *tok;
    struct token_ids ids = {0};
    char text[64];
    memset(text, 'a', sizeof text);
    CHECK_OK(
        parse_patched(&tok,
                      "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                      "\"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": "
                      "\"((a|aa)+)+[bc]\"}}, {\"type\": \"ByteLevel\"}]}",
                      "", NULL));
    CHECK_ERR(tokenizer_encode(tok, text, sizeof text, 0, &ids, &err), ERR_FORMAT, "limit");
    ck_assert_uint_eq(ids.n, 0);
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

START_TEST(broken_json_is_refused)
{
    static const char *const texts[] = {
        "", "{", "[]", "null", "{\"model\": {}}", "{\"a\": 1, \"a\": 2}", "{\"model\": \"\xff\"}"};
    struct tokenizer *tok;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK_ERR(tokenizer_parse(&tok, texts[i], strlen(texts[i]), NULL, 0, "test", &err),
                  ERR_FORMAT, "test");
        ck_assert_ptr_null(tok);
    }
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    char text[4096] = "";
    struct tokenizer *tok;
    strcat(text, "\"normalizer\": ");
    for (int i = 0; i < 20; i++)
        strcat(text, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < 20; i++)
        strcat(text, "]}");
    CHECK_ERR(parse_patched(&tok, text, "", NULL), ERR_UNSUPPORTED, "deeper than");
    strcpy(text, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}");
    for (int i = 0; i < 16; i++)
        strcat(text, ", {\"type\": \"NFC\"}");
    strcat(text, "]}");
    CHECK_ERR(parse_patched(&tok, text, "", NULL), ERR_UNSUPPORTED, "more than 16 stages");
    size_t n = 100000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    CHECK_ERR(tokenizer_parse(&tok, deep, n, NULL, 0, "test", &err), ERR_FORMAT, "depth");
    free(deep);
}
END_TEST

START_TEST(config_may_name_more_added_tokens)
{
    struct tokenizer *tok;
    struct token_ids ids = {0};
    const char *config = "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<eos>\"}, "
                         "\"9\": {\"content\": \"<pad>\", \"special\": true}}}";
    CHECK_OK(parse_patched(&tok, "", "", config));
    ck_assert_int_eq(tokenizer_vocab_size(tok), 10);
    ck_assert(tokenizer_is_special(tok, 9));
    CHECK_OK(tokenizer_encode(tok, "a<pad>b", 7, TOKENIZER_PARSE_SPECIAL, &ids, &err));
    ck_assert_uint_eq(ids.n, 3);
    ck_assert_int_eq(ids.data[1], 9);
    token_ids_free(&ids);
    tokenizer_close(tok);
    CHECK_ERR(parse_patched(&tok, "", "", "{\"added_tokens_decoder\": {\"x\": {}}}"), ERR_FORMAT,
              "added_tokens_decoder");
    CHECK_ERR(parse_patched(&tok, "", "", "{"), ERR_FORMAT, "tokenizer_config.json");
}
END_TEST

START_TEST(byte_without_token_is_an_error_and_leaves_the_ids)
{
    struct tokenizer *tok;
    struct token_ids ids = {0};
    CHECK_OK(parse_patched(&tok, "", "", NULL));
    CHECK_OK(tokenizer_encode(tok, "aab", 3, 0, &ids, &err));
    ck_assert_uint_eq(ids.n, 1);
    ck_assert_int_eq(ids.data[0], 3);
    CHECK_ERR(tokenizer_encode(tok, "abz", 3, 0, &ids, &err), ERR_ARGUMENT, "0x7a");
    CHECK_ERR(tokenizer_encode(tok, "ab\xff", 3, 0, &ids, &err), ERR_ARGUMENT, "0xff");
    ck_assert_uint_eq(ids.n, 1);
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

START_TEST(growing_normalizer_is_bounded)
{
    struct tokenizer *tok;
    struct token_ids ids = {0};
    char patch[4096] = "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [", text[1000];
    for (int i = 0; i < 16; i++) {
        strcat(patch, i ? ", " : "");
        strcat(patch, "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
                      "\"content\": \"aaaaaaaa\"}");
    }
    strcat(patch, "]}");
    memset(text, 'a', sizeof text);
    CHECK_OK(parse_patched(&tok, patch, "", NULL));
    CHECK_ERR(tokenizer_encode(tok, text, sizeof text, 0, &ids, &err), ERR_FORMAT, "32 times");
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

/* One word of a single letter, one of marks in the worst order, one run of blanks: each a
 * mebibyte. */
static void encode_long(const char *name, const char *unit, size_t most_ids)
{
    char path[512];
    struct tokenizer *tok;
    struct token_ids ids = {0};
    size_t unit_len = strlen(unit), len = (size_t)1 << 20;
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/tokenizers/%s.json", name);
    json_t *root = json_load_file(path, 0, NULL);
    char *json = json_dumps(root, 0), *text = malloc(len + unit_len);
    json_decref(root);
    CHECK_OK(tokenizer_parse(&tok, json, strlen(json), NULL, 0, name, &err));
    size_t n = 0;
    for (; n < len; n += unit_len)
        memcpy(text + n, unit, unit_len);
    int64_t start = clock_now_ms();
    CHECK_OK(tokenizer_encode(tok, text, n, 0, &ids, &err));
    ck_assert_int_lt(clock_now_ms() - start, 15000); /* sanitizers included; else a second */
    ck_assert_uint_gt(ids.n, 0);
    ck_assert_uint_le(ids.n, most_ids);
    token_ids_free(&ids);
    tokenizer_close(tok);
    free(text);
    free(json);
}

START_TEST(long_words_take_no_square_of_time)
{
    size_t n = (size_t)1 << 20;
    encode_long("gpt2", "e", n);
    encode_long("gpt2", " ", n);
    encode_long("llama3", "ab", n);
    encode_long("llama3", " ", n);
    encode_long("qwen2", "\xcc\x81\xcc\xa3", 2 * n); /* U+0301 U+0323, to be sorted */
    encode_long("llama2", "she", n);
    encode_long("llama2", " ", n + 1);
    encode_long("metaspace", " x", 2 * n);
}
END_TEST

/* Bytes of which neither the vocabulary nor an unknown token is. */
START_TEST(text_without_a_token_is_refused_with_its_place)
{
    static const struct {
        const char *model, *text, *words;
    } rows[] = {
        {"", "ab\x04", "byte 2 of the text is 0x04, for which the model's tokenizer has no token"},
        {"", "c", "byte 0 of the text is 0x63"},
        {"", "ab \xc3\xa9", "byte 3 of the text is 0xc3"},
        {"", "ab\xff", "byte 2 of the text is 0xff"},
        {"\"byte_fallback\": true", "aab\xe2\x82\xac", "byte 3 of the text is 0xe2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *tok;
        struct token_ids ids = {0};
        CHECK_OK(parse_patched(&tok, "", rows[i].model, NULL));
        CHECK_OK(tokenizer_encode(tok, "ab", 2, 0, &ids, &err));
        CHECK_ERR(tokenizer_encode(tok, rows[i].text, strlen(rows[i].text), 0, &ids, &err),
                  ERR_ARGUMENT, rows[i].words);
        ck_assert_uint_eq(ids.n, 1);
        token_ids_free(&ids);
        tokenizer_close(tok);
    }
}
END_TEST

/* A normalizer makes a byte of a character that is not in the text. */
START_TEST(text_that_a_normalizer_made_is_refused_without_a_place)
{
    static const char *const patch = "\"normalizer\": {\"type\": \"Replace\", \"pattern\":"
                                     " {\"String\": \"b\"}, \"content\": \"z\"}";
    struct tokenizer *tok;
    struct token_ids ids = {0};
    CHECK_OK(parse_patched(&tok, patch, "", NULL));
    CHECK_ERR(tokenizer_encode(tok, "ab", 2, 0, &ids, &err), ERR_ARGUMENT,
              "the tokenizer has no token for byte 0x7a");
    token_ids_free(&ids);
    tokenizer_close(tok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer files");
    TCase *tcase = tcase_create("tokenizer files");
    tcase_add_loop_test(tcase, refusal_names_the_cause, 0, sizeof refusals / sizeof refusals[0]);
    tcase_add_loop_test(tcase, pattern_that_cannot_be_kept_is_named, 0,
                        sizeof bad_patterns / sizeof bad_patterns[0]);
    tcase_add_test(tcase, exploding_pattern_is_an_error_not_a_hang);
    tcase_add_test(tcase, broken_json_is_refused);
    tcase_add_test(tcase, deep_nesting_is_refused);
    tcase_add_test(tcase, config_may_name_more_added_tokens);
    tcase_add_test(tcase, byte_without_token_is_an_error_and_leaves_the_ids);
    tcase_add_test(tcase, growing_normalizer_is_bounded);
    tcase_add_test(tcase, long_words_take_no_square_of_time);
    tcase_add_test(tcase, text_without_a_token_is_refused_with_its_place);
    tcase_add_test(tcase, text_that_a_normalizer_made_is_refused_without_a_place);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
