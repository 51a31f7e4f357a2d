/* ctest: labels=quick libs=coordinator timeout=60 */
/* From ids to text: stop strings and what is held back for them. The tokenizer's ids are bytes. */
#include "coordinator/output.h"
#include "tests/support/check_util.h"

enum { VOCABULARY = 256 };

static struct tokenizer *tok;
static struct output out;
static struct error err;

static void open_output(const char *const *stops, int n_stops)
{
    CHECK_OK(tokenizer_open_bytes(&tok, VOCABULARY, &err));
    CHECK_OK(output_open(&out, tok, stops, n_stops, &err));
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

START_TEST(what_may_become_a_stop_string_is_held_back)
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

START_TEST(stop_string_behind_a_nul_byte_is_found)
{
    static const char *const stops[] = {"stop"};
    open_output(stops, 1);
    ck_assert_uint_eq(push("a\0stop!", 7), 6);
    ck_assert_ptr_nonnull(out.matched);
    check_ready("a\0", 2);
    close_output();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("output");
    TCase *tests = tcase_create("output");
    tcase_add_test(tests, text_before_a_stop_string_is_kept);
    tcase_add_test(tests, what_may_become_a_stop_string_is_held_back);
    tcase_add_test(tests, the_stop_string_that_begins_first_wins);
    tcase_add_test(tests, stop_string_behind_a_nul_byte_is_found);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
