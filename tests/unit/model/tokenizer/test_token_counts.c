/* ctest: labels=quick libs=tokenizer timeout=60 */
/* Token counts: what is counted, the list that keeps it, and lists that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/tokenizer/token_counts.h"
#include "tests/support/check_util.h"

#define HEADER "# outrider token counts, tokenizer "

enum { N_VOCAB = 300, TEXT_BYTES = 512 };

static struct tokenizer *tok;
static struct token_counts counts;

static void setup(void)
{
    struct error err;
    CHECK_OK(tokenizer_open_bytes(&tok, N_VOCAB, &err));
    CHECK_OK(token_counts_init(&counts, tok, &err));
}

static void teardown(void)
{
    token_counts_free(&counts);
    tokenizer_close(tok);
}

/* A list of the tokenizer in use with these lines. */
static const char *list_of(const char *lines)
{
    static char text[TEXT_BYTES];
    snprintf(text, sizeof text, HEADER "%016llx\n%s",
             (unsigned long long)tokenizer_fingerprint(tok), lines);
    return text;
}

static int parse(const char *text, struct error *err)
{
    return token_counts_parse(&counts, text, strlen(text), "the list", err);
}

START_TEST(counts_are_read_back_from_their_list)
{
    static const int32_t ids[] = {7, 5, 7, 299, 7, 5, 299, 12, 300, -1};
    struct error err;
    char *text;
    size_t len;
    struct token_counts again;
    token_counts_add(&counts, ids, sizeof ids / sizeof *ids);
    ck_assert_int_eq(token_counts_seen(&counts), 4);
    CHECK_OK(token_counts_text(&counts, &text, &len, &err));
    ck_assert_str_eq(text, list_of("7 3\n5 2\n299 2\n12 1\n"));
    CHECK_OK(token_counts_init(&again, tok, &err));
    CHECK_OK(token_counts_parse(&again, text, len, "the list", &err));
    ck_assert_int_eq(memcmp(again.counts, counts.counts, N_VOCAB * sizeof *counts.counts), 0);
    token_counts_free(&again);
    free(text);
}
END_TEST

START_TEST(a_list_without_a_token_is_a_list)
{
    struct error err;
    CHECK_OK(parse(list_of(""), &err));
    ck_assert_int_eq(token_counts_seen(&counts), 0);
}
END_TEST

START_TEST(the_most_frequent_come_with_those_that_always_do)
{
    static const struct end_ids always = {5, {299, 2, 7, 400, -1}}, one = {1, {299}};
    struct error err;
    int32_t *ids;
    int n;
    CHECK_OK(parse(list_of("9 50\n7 40\n5 30\n4 30\n250 30\n3 1\n"), &err));
    CHECK_OK(token_counts_best(&counts, 4, &always, N_VOCAB, &ids, &n, &err));
    static const int32_t four[] = {2, 4, 5, 7, 9, 299}; /* 4 and 5 tie with 250 */
    ck_assert_int_eq(n, 6);
    ck_assert_mem_eq(ids, four, sizeof four);
    free(ids);
    CHECK_OK(token_counts_best(&counts, 6, &one, 200, &ids, &n, &err));
    static const int32_t below[] = {3, 4, 5, 7, 9}; /* a draft with fewer ids */
    ck_assert_int_eq(n, 5);
    ck_assert_mem_eq(ids, below, sizeof below);
    free(ids);
}
END_TEST

START_TEST(lists_that_are_wrong_are_refused_by_line)
{
    static const struct {
        const char *lines, *part;
    } wrong[] = {
        {"300 5\n", "line 2: token id 300 is outside of the vocabulary of 300"},
        {"7 5\n18446744073709551615 5\n", "line 3: token id 18446744073709551615 is outside"},
        {"7 5\n8 5\n7 5\n", "line 4: token id 7 was counted in a line before"},
        {"7 5\n8 6\n", "line 3: token id 8 was seen more often"},
        {"7 0\n", "line 2: token id 7 was seen 0 times"},
        {"7 18446744073709551616\n", "line 2: expected a token id"},
        {"7\n", "line 2: expected a token id"},
        {"-7 5\n", "line 2: expected a token id"},
        {"7 5", "line 2: expected a token id"},
        {"7 5\r\n", "line 2: expected a token id"},
        {"7  5\n", "line 2: expected a token id"},
        {"7 5 \n", "line 2: expected a token id"},
        {"\n", "line 2: expected a token id"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error err;
        memset(counts.counts, 0, N_VOCAB * sizeof *counts.counts);
        CHECK_ERR(parse(list_of(wrong[i].lines), &err), ERR_FORMAT, wrong[i].part);
    }
}
END_TEST

START_TEST(lists_of_nobody_and_of_others_are_refused)
{
    static const char *const none[] = {"",
                                       "\n",
                                       "262 5\n",
                                       HEADER,
                                       HEADER "0123456789abcdef",
                                       HEADER "0123456789abcdeg\n",
                                       HEADER "0123456789abcde\n7 5\n",
                                       HEADER " 123456789abcdef\n7 5\n"};
    struct error err;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK_ERR(parse(none[i], &err), ERR_FORMAT, "the list is no list of token counts");
    }
    CHECK_ERR(parse(HEADER "0123456789abcdef\n7 5\n", &err), ERR_ARGUMENT,
              "counts the tokens of another tokenizer (0123456789abcdef, and");
    static const char zero[] = HEADER "0123456789abcde\0\n";
    CHECK_ERR(token_counts_parse(&counts, zero, sizeof zero - 1, "the list", &err), ERR_FORMAT,
              "no list");
    ck_assert_int_eq(token_counts_seen(&counts), 0);
}
END_TEST

START_TEST(a_file_is_replaced_as_a_whole)
{
    struct error err;
    struct token_counts again;
    char folder[] = "/tmp/outrider-counts-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/list", folder);
    CHECK_OK(token_counts_init(&again, tok, &err));
    CHECK_ERR(token_counts_read(&again, path, &err), ERR_NOT_FOUND, path);
    CHECK_OK(file_replace(path, "something longer than what comes next", 37, &err));
    CHECK_ERR(token_counts_read(&again, path, &err), ERR_FORMAT, "no list of token counts");
    token_counts_add(&counts, &(int32_t){42}, 1);
    CHECK_OK(token_counts_write(&counts, path, &err));
    CHECK_OK(token_counts_read(&again, path, &err));
    ck_assert_int_eq((int)again.counts[42], 1);
    token_counts_free(&again);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0); /* nothing else was left there */
    CHECK_ERR(token_counts_write(&counts, path, &err), ERR_IO, "cannot write");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("token_counts");
    TCase *tcase = tcase_create("lists");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, counts_are_read_back_from_their_list);
    tcase_add_test(tcase, a_list_without_a_token_is_a_list);
    tcase_add_test(tcase, the_most_frequent_come_with_those_that_always_do);
    tcase_add_test(tcase, lists_that_are_wrong_are_refused_by_line);
    tcase_add_test(tcase, lists_of_nobody_and_of_others_are_refused);
    tcase_add_test(tcase, a_file_is_replaced_as_a_whole);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
