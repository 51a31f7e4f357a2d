/* ctest: labels=quick libs=tokenizer timeout=60 */
/* Markers in texts whose special tokens must stay plain text. */
#include <stdio.h>
#include <string.h>

#include "model/tokenizer/guard.h"
#include "tests/support/check_util.h"

static struct tokenizer *tok;
static struct error err;

/* Special tokens <s> and <end>, and the added token <t>, which is not special. */
static void open_tokenizer(const char *content, bool is_normalized)
{
    char json[1024];
    snprintf(json, sizeof json,
             "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"<\": 0, \"s\": 1, \">\": 2, \"e\": 3,"
             " \"n\": 4, \"d\": 5}, \"merges\": []}, \"added_tokens\": ["
             "{\"id\": 6, \"content\": \"<s>\", \"special\": true},"
             "{\"id\": 7, \"content\": \"<end>\", \"special\": true},"
             "{\"id\": 8, \"content\": \"<t>\", \"special\": false},"
             "{\"id\": 9, \"content\": \"%s\", \"special\": true, \"normalized\": %s}]}",
             content, is_normalized ? "true" : "false");
    CHECK_OK(tokenizer_parse(&tok, json, strlen(json), NULL, 0, "here", &err));
}

static void check_marked(enum guard_strength strength, const char *text, const char *wanted)
{
    struct buffer out = {0};
    CHECK_OK(guard_append(&out, tok, strength, "#", text, strlen(text), &err));
    CHECK_OK(buffer_append(&out, "", 1, &err));
    ck_assert_str_eq((const char *)out.data, wanted);
    buffer_free(&out);
}

START_TEST(markers_are_within_what_is_or_may_become_a_special_token)
{
    open_tokenizer("[xy]", false);
    check_marked(GUARD_TOKENS, "a<s>b<t>", "a<#s>b<t>");
    check_marked(GUARD_TOKENS, "a <en", "a <#en"); /* it may go on after the text */
    check_marked(GUARD_TOKENS, "a <en \n", "a <#en \n");
    check_marked(GUARD_TOKENS, "d> b", "#d> b"); /* it may have begun before it */
    check_marked(GUARD_TOKENS, " n", " #n");
    check_marked(GUARD_TOKENS, "a < b", "a < b");
    check_marked(GUARD_TOKENS, "", "");
    check_marked(GUARD_TOKENS, " \n", " \n");
    check_marked(GUARD_STARTS, "a < b [", "a <# b [#");
    tokenizer_close(tok);
}
END_TEST

static void check_ids(const char *text, const size_t *breaks, size_t n_breaks,
                      const int32_t *wanted, size_t n)
{
    struct token_ids ids = {0};
    CHECK_OK(tokenizer_encode_broken(tok, text, strlen(text), TOKENIZER_PARSE_SPECIAL, breaks,
                                     n_breaks, &ids, &err));
    ck_assert_uint_eq(ids.n, n);
    ck_assert_mem_eq(ids.data, wanted, n * sizeof *wanted);
    token_ids_free(&ids);
}

START_TEST(a_special_token_with_a_break_within_it_is_plain_text)
{
    static const int32_t first[] = {0, 1, 2, 6}, second[] = {6, 0, 1, 2}, both[] = {6, 6};
    open_tokenizer("[xy]", false);
    check_ids("<s><s>", (const size_t[]){1}, 1, first, 4);
    check_ids("<s><s>", (const size_t[]){4, 5}, 2, second, 4);
    check_ids("<s><s>", (const size_t[]){0, 3, 6}, 3, both, 2); /* at the ends is not within */
    tokenizer_close(tok);
}
END_TEST

START_TEST(tokenizers_that_cannot_be_guarded_are_known)
{
    static const struct {
        const char *content;
        bool is_normalized, is_possible;
    } cases[] = {{"[xy]", false, true},
                 {"[xy]", true, false},
                 {"!", false, false},
                 {"\xc3\xa9", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_tokenizer(cases[i].content, cases[i].is_normalized);
        ck_assert_int_eq(guard_is_possible(tok), cases[i].is_possible);
        tokenizer_close(tok);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guard");
    TCase *tests = tcase_create("guard");
    tcase_add_test(tests, markers_are_within_what_is_or_may_become_a_special_token);
    tcase_add_test(tests, a_special_token_with_a_break_within_it_is_plain_text);
    tcase_add_test(tests, tokenizers_that_cannot_be_guarded_are_known);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
