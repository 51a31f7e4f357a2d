/* ctest: labels=quick libs=coordinator timeout=60 */
/* From ids to text: stop strings and what is held back for them. The tokenizer's ids are bytes. */
#include "coordinator/sequence/output.h"
#include "tests/support/check_util.h"

enum { VOCABULARY = 256 };

static struct tokenizer *tok;
static struct output out;
static struct error err;

static void open_output(const char *const *stops, int n_stops)
{
    CHECK_OK(tokenizer_open_bytes(&tok, VOCABULARY, &err));
    CHECK_OK(output_open(&out, tok, stops, n_stops, true, &err));
}

/* The tokens a = 0, b = 1, and the special tokens <s> = 2 and <t> = 3. */
static void open_special(const char *const *stops, int n_stops, bool hides_special)
{
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []},"
        " \"added_tokens\": [{\"id\": 2, \"content\": \"<s>\", \"special\": true},"
        " {\"id\": 3, \"content\": \"<t>\", \"special\": true}],"
        " \"decoder\": {\"type\": \"Fuse\"}}";
    CHECK_OK(tokenizer_parse(&tok, json, sizeof json - 1, NULL, 0, "here", &err));
    CHECK_OK(output_open(&out, tok, stops, n_stops, hides_special, &err));
}

static void close_output(void)
{
    output_close(&out);
    tokenizer_close(tok);
}

/* Pushes bytes until a stop string matches; returns how many went in. */
static size_t push(const char *bytes, size_t len)
{
    size_t n = 0;
    while (n < len && !out.matched) {
        CHECK_OK(output_push(&out, (unsigned char)bytes[n++], &err));
    }
    return n;
}

/* Pushes tokens until a stop string matches; returns how many went in. */
static size_t push_ids(const int32_t *ids, size_t n_ids)
{
    size_t n = 0;
    while (n < n_ids && !out.matched) {
        CHECK_OK(output_push(&out, ids[n++], &err));
    }
    return n;
}

static void check_ready(const char *text, size_t len)
{
    ck_assert_uint_eq(output_ready(&out), len);
    ck_assert_mem_eq(out.text, text, len);
}

START_TEST(text_before_a_stop_string_is_kept)
{
    static const char *const stops[] = {"END"};
    open_output(stops, 1);
    ck_assert_uint_eq(push("the END is", 10), 7);
    ck_assert_str_eq(out.matched, "END");
    check_ready("the ", 4);
    close_output();
}
END_TEST

START_TEST(text_that_may_become_a_stop_string_is_held_back)
{
    static const char *const stops[] = {"END", "NDX"};
    open_output(stops, 2);
    push("aEN", 3);
    check_ready("a", 1);
    output_drop(&out, 1);
    push("E", 1);
    check_ready("EN", 2);
    CHECK_OK(output_finish(&out, &err));
    check_ready("ENE", 3);
    close_output();
}
END_TEST

START_TEST(the_stop_string_that_begins_first_wins)
{
    static const char *const stops[] = {"cd", "bcd"};
    open_output(stops, 2);
    push("abcd", 4);
    ck_assert_str_eq(out.matched, "bcd");
    check_ready("a", 1);
    close_output();
}
END_TEST

START_TEST(stop_string_after_a_nul_byte_is_found)
{
    static const char *const stops[] = {"stop"};
    open_output(stops, 1);
    ck_assert_uint_eq(push("a\0stop!", 7), 6);
    ck_assert_ptr_nonnull(out.matched);
    check_ready("a\0", 2);
    close_output();
}
END_TEST

START_TEST(a_special_token_stops_a_text_that_does_not_show_it)
{
    static const char *const stops[] = {"<t>"};
    static const int32_t ids[] = {0, 2, 1, 3, 0};
    for (int hides = 0; hides < 2; hides++) {
        open_special(stops, 1, hides);
        ck_assert_uint_eq(push_ids(ids, 5), 4);
        ck_assert_str_eq(out.matched, "<t>");
        check_ready(hides ? "ab" : "a<s>b", hides ? 2 : 5);
        close_output();
    }
}
END_TEST

START_TEST(a_stop_string_may_hold_special_tokens_among_text)
{
    static const char *const stops[] = {"b<s><t>a"};
    static const int32_t ids[] = {0, 2, 1, 2, 3, 0, 1};
    open_special(stops, 1, true);
    ck_assert_uint_eq(push_ids(ids, 3), 3);
    check_ready("a", 1); /* b may begin the stop string */
    output_drop(&out, 1);
    ck_assert_uint_eq(push_ids(ids + 3, 4), 3);
    ck_assert_ptr_nonnull(out.matched);
    check_ready("", 0);
    close_output();
}
END_TEST

START_TEST(held_special_tokens_that_stop_nothing_are_left_out)
{
    static const char *const stops[] = {"<s><t>b", "aaaa"};
    static const int32_t ids[] = {0, 2, 3, 0, 2, 3, 0};
    open_special(stops, 2, true);
    push_ids(ids, 3);
    check_ready("a", 1);
    push_ids(ids + 3, 4);
    check_ready("aa", 2); /* the last a may begin aaaa */
    output_drop(&out, 1);
    check_ready("a", 1);
    CHECK_OK(output_finish(&out, &err));
    check_ready("aa", 2);
    close_output();
}
END_TEST

/* It must not matter whether the text was looked at in between, as rounds do. */
START_TEST(bytes_around_a_special_token_are_no_stop_string)
{
    static const char *const stops[] = {"ab"};
    static const int32_t ids[] = {0, 2, 1, 0};
    for (int looks = 0; looks < 2; looks++) {
        open_special(stops, 1, true);
        for (int i = 0; i < 4; i++) {
            ck_assert_uint_eq(push_ids(&ids[i], 1), 1);
            if (looks) output_ready(&out);
        }
        ck_assert_ptr_null(out.matched);
        check_ready("ab", 2);
        ck_assert_uint_eq(push_ids(&ids[2], 1), 1);
        ck_assert_ptr_nonnull(out.matched);
        close_output();
    }
}
END_TEST

START_TEST(special_tokens_at_the_end_of_a_text_are_left_out)
{
    static const char *const stops[] = {"<s><t>b"};
    static const int32_t ids[] = {0, 2, 3};
    open_special(stops, 1, true);
    push_ids(ids, 3);
    check_ready("a", 1);
    CHECK_OK(output_finish(&out, &err));
    check_ready("a", 1);
    close_output();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("output");
    TCase *tests = tcase_create("output");
    tcase_add_test(tests, text_before_a_stop_string_is_kept);
    tcase_add_test(tests, text_that_may_become_a_stop_string_is_held_back);
    tcase_add_test(tests, the_stop_string_that_begins_first_wins);
    tcase_add_test(tests, stop_string_after_a_nul_byte_is_found);
    tcase_add_test(tests, a_special_token_stops_a_text_that_does_not_show_it);
    tcase_add_test(tests, a_stop_string_may_hold_special_tokens_among_text);
    tcase_add_test(tests, held_special_tokens_that_stop_nothing_are_left_out);
    tcase_add_test(tests, bytes_around_a_special_token_are_no_stop_string);
    tcase_add_test(tests, special_tokens_at_the_end_of_a_text_are_left_out);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
