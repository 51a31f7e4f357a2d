/* ctest: labels=quick libs=coordinator timeout=60 */
/* The body of a request as JSON, and single values of it: what is taken, what is refused with which
 * words, and what a body may occupy. */
#include "base/text/utf8.h"
#include "tests/support/openai_bodies.h"

enum { LEAST = -5, MOST = 1000, IDS_MOST = 3, DEPTH_MAX = 2048 };

/* One value; in a list, because a body is an object or a list. */
static const json_t *value_of(const char *text)
{
    char list[256];
    snprintf(list, sizeof list, "[%s]", text);
    return json_array_get(parse(list), 0);
}

static void check_refused(int rc, const char *text, const char *words)
{
    ck_assert_msg(rc == ERR_ARGUMENT, "%s is taken", text);
    ck_assert_msg(strstr(err.text, words) != NULL, "%s: \"%s\" lacks \"%s\"", text, err.text,
                  words);
    ck_assert_msg(strncmp(err.text, "field ", 6) == 0, "%s: %s", text, err.text);
    ck_assert_str_eq(wrong.param, "field");
}

struct value {
    const char *text;
    double want;
    const char *words; /* of the refusal; NULL = it is taken */
};

START_TEST(integers)
{
    static const struct value values[] = {
        {"7", 7, NULL},
        {"-5", -5, NULL},
        {"1000", 1000, NULL},
        {"1.0", 1, NULL},
        {"1e3", 1000, NULL},
        {"-0.0", 0, NULL},
        {"-6", 0, "is -6, must be -5 to 1000"},
        {"1001", 0, "is 1001, must be"},
        {"1e8", 0, "is 100000000, must be"},
        {"9223372036854775807", 0, "is 9223372036854775807, must be"},
        {"-9223372036854775808", 0, "is -9223372036854775808, must be"},
        {"1.5", 0, "is a number, must be an integer"},
        {"1e300", 0, "is a number, must be an integer"},
        {"\"7\"", 0, "is a string, must be an integer"},
        {"null", 0, "is null, must be"},
        {"true", 0, "is true, must be"},
        {"false", 0, "is false, must be"},
        {"[7]", 0, "is an array, must be"},
        {"{}", 0, "is an object, must be"},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct value *v = &values[i];
        int out = 77;
        int rc = openai_read_int(&reading, value_of(v->text), LEAST, MOST, &out);
        if (v->words) check_refused(rc, v->text, v->words);
        ck_assert_msg(v->words || rc == 0, "%s: %s", v->text, err.text);
        ck_assert_int_eq(out, v->words ? 77 : (int)v->want);
    }
}
END_TEST

START_TEST(numbers)
{
    static const struct value values[] = {
        {"0", 0, NULL},
        {"1", 1, NULL},
        {"0.25", 0.25, NULL},
        {"1e-400", 0, NULL}, /* 0 */
        {"-1e-300", 0, "is -1e-300, must be 0 to 1"},
        {"1.001", 0, "is 1.001, must be"},
        {"1e308", 0, "is 1e+308, must be"},
        {"9223372036854775807", 0, "is 9.22337e+18"},
        {"\"0.5\"", 0, "is a string, must be a number"},
        {"null", 0, "is null"},
        {"true", 0, "is true"},
        {"[]", 0, "is an array"},
        {"{}", 0, "is an object"},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct value *v = &values[i];
        float out = 77;
        int rc = openai_read_float(&reading, value_of(v->text), 0, 1, &out);
        if (v->words) check_refused(rc, v->text, v->words);
        ck_assert_msg(v->words || rc == 0, "%s: %s", v->text, err.text);
        ck_assert_double_eq((double)out, v->words ? 77 : v->want);
    }
}
END_TEST

START_TEST(booleans_and_strings)
{
    bool flag = false;
    const char *text = "before";
    CHECK_OK(openai_read_bool(&reading, value_of("true"), &flag));
    ck_assert(flag);
    check_refused(openai_read_bool(&reading, value_of("0"), &flag), "0",
                  "is an integer, must be true or false");
    check_refused(openai_read_bool(&reading, value_of("\"false\""), &flag), "\"false\"",
                  "is a string, must be true or false");
    ck_assert(flag);
    CHECK_OK(openai_read_bool(&reading, value_of("false"), &flag));
    ck_assert(!flag);
    check_refused(openai_read_string(&reading, value_of("3"), &text), "3",
                  "is an integer, must be a string");
    ck_assert_str_eq(text, "before");
    CHECK_OK(openai_read_string(&reading, value_of("\"\""), &text));
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(lists_of_ids)
{
    static const struct value lists[] = {
        {"[]", 0, NULL},
        {"[1, 2, 3]", 3, NULL},
        {"[0, 2147483647]", 2, NULL},
        {"[1.0]", 1, NULL},
        {"[1, 2, 3, 4]", 0, "has 4 ids, at most 3 are allowed"},
        {"[-1]", 0, "is -1, must be 0 to 2147483647"},
        {"[2147483648]", 0, "is 2147483648, must be"},
        {"[1, \"2\"]", 0, "is a string, must be an integer"},
        {"[1, null]", 0, "is null, must be an integer"},
        {"{}", 0, "is an object, must be an array of ids"},
        {"\"1\"", 0, "is a string, must be an array of ids"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct value *v = &lists[i];
        const int32_t *ids = NULL;
        int n = 77;
        int rc = openai_read_ids(&reading, value_of(v->text), IDS_MOST, &ids, &n);
        if (v->words) check_refused(rc, v->text, v->words);
        ck_assert_msg(v->words || rc == 0, "%s: %s", v->text, err.text);
        ck_assert_int_eq(n, v->words ? 77 : (int)v->want);
        ck_assert(v->words ? ids == NULL : ids != NULL);
    }
}
END_TEST

START_TEST(more_than_the_arena_holds_is_refused)
{
    char *block = NULL;
    value_of("1");
    check_refused(openai_take(&reading, &block, ARENA_BYTES, 8), "a large block",
                  "more than there is room for");
    ck_assert_ptr_null(block);
    CHECK_OK(openai_take(&reading, &block, 5, 1));
    ck_assert_mem_eq(block, "\0\0\0\0", 5);
}
END_TEST

START_TEST(a_long_refusal_is_cut)
{
    char *long_text = malloc(2000);
    memset(long_text, 'x', 1999);
    long_text[1999] = '\0';
    value_of("1");
    ck_assert_int_eq(openai_refuse(&reading, "is %s", long_text), ERR_ARGUMENT);
    ck_assert_uint_lt(strlen(err.text), ERROR_TEXT_BYTES);
    ck_assert_str_eq(wrong.param, "field");
    free(long_text);
}
END_TEST

START_TEST(null_false_and_what_holds_nothing_are_empty)
{
    static const char *const empty[] = {"null", "false", "\"\"", "[]", "{}"};
    static const char *const full[] = {"true", "0", "0.0", "\"0\"", "[0]", "{\"a\": null}"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        ck_assert_msg(openai_is_empty(value_of(empty[i])), "%s", empty[i]);
    }
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        ck_assert_msg(!openai_is_empty(value_of(full[i])), "%s", full[i]);
    }
}
END_TEST

/* ---- bodies ---- */

START_TEST(text_that_is_no_json_is_refused_with_its_place)
{
    static const struct {
        const char *text, *words;
    } texts[] = {
        {"{", "line 1"},
        {"{\"a\": 1,}", "line 1"},
        {"{\n\"a\": 1\n\"b\": 2}", "line 3"},
        {"3", "'[' or '{' expected"},
        {"{} {}", "end of file expected"},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
        {"{\"a\": {\"b\": 1, \"b\": 1}}", "duplicate object key"},
        {"{\"a\": 1e999}", "real number overflow"},
        {"{\"a\": 99999999999999999999}", "too big integer"},
        {"{\"a\": 01}", "line 1"},
        {"{\"a\": NaN}", "line 1"},
        {"{\"a\": Infinity}", "line 1"},
        {"{'a': 1}", "line 1"},
        {"\xef\xbb\xbf{}", "line 1"},
    };
    CHECK_ERR(parse_bytes("", 0), ERR_FORMAT, "the body is empty");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_ERR(parse_bytes(texts[i].text, strlen(texts[i].text)), ERR_FORMAT,
                  "the body is not JSON: line");
        ck_assert_msg(strstr(err.text, texts[i].words) != NULL, "%s", err.text);
        ck_assert_ptr_null(body.root);
        ck_assert_uint_eq(budget_used(&budget), 0);
    }
}
END_TEST

START_TEST(texts_are_utf8)
{
    static const char *const good[] = {"\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x89\"",
                                       "\"\\u00e9 \\u20ac \\ud83d\\udc09\"",
                                       "\"\xf4\x8f\xbf\xbf\""};
    static const char *const bad[] = {
        "\"\xff\"",     "\"\xc3\"",    "\"\x80\"",    "\"\xc0\xaf\"",       "\"\xed\xa0\x80\"",
        "\"\xe2\x82\"", "\"\\ud83d\"", "\"\\udc09\"", "\"\\ud83d\\ud83d\"", "\"\xf4\x90\x80\x80\"",
        "\"\\u0000\"",  "\"\n\"",      "\"\\x41\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *text = json_string_value(value_of(good[i]));
        ck_assert_uint_eq(utf8_prefix(text, strlen(text)), strlen(text));
    }
    ck_assert_str_eq(json_string_value(value_of(good[1])),
                     "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x89");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char list[64];
        int len = snprintf(list, sizeof list, "[%s]", bad[i]);
        CHECK_ERR(parse_bytes(list, (size_t)len), ERR_FORMAT, "the body is not JSON");
    }
    CHECK_ERR(parse_bytes("[\"a\0b\"]", 7), ERR_FORMAT, "the body is not JSON");
}
END_TEST

static int parse_depth(size_t depth)
{
    char *text = malloc(2 * depth);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    int rc = parse_bytes(text, 2 * depth);
    free(text);
    return rc;
}

START_TEST(depth_is_bounded)
{
    CHECK_OK(parse_depth(DEPTH_MAX));
    CHECK_ERR(parse_depth(DEPTH_MAX + 1), ERR_FORMAT, "maximum parsing depth");
    CHECK_ERR(parse_depth(100000), ERR_FORMAT, "maximum parsing depth");
}
END_TEST

/* 100,000 bytes of empty lists are a tree of several MB. */
START_TEST(a_body_is_charged_for_its_tree)
{
    size_t n = 1 + 3 * 33333;
    char *text = malloc(n);
    text[0] = '[';
    for (size_t i = 1; i < n; i += 3) {
        memcpy(text + i, "[],", 3);
    }
    text[n - 1] = ']';
    CHECK_OK(parse_bytes(text, n));
    ck_assert_uint_gt(budget_used(&budget), 50 * n);
    openai_body_free(&body);
    ck_assert_uint_eq(budget_used(&budget), 0);

    struct error none;
    budget_init(&budget, 100 * n, "--queue-bytes");
    CHECK_OK(budget_take(&budget, 90 * n, &none));
    CHECK_ERR(parse_bytes(text, n), ERR_EXHAUSTED, "--queue-bytes; try again later");
    budget_give(&budget, 90 * n);
    budget_init(&budget, 10 * n, "--queue-bytes");
    CHECK_ERR(parse_bytes(text, n), ERR_ARGUMENT, "--queue-bytes for all");
    ck_assert_ptr_null(body.root);
    ck_assert_uint_eq(budget_used(&budget), 0);
    free(text);
}
END_TEST

/* Prose and tables have many commas, and code has many brackets. */
START_TEST(a_text_is_charged_for_its_bytes_alone)
{
    static const char head[] = "{\"prompt\": \"\\\\\\\",", tail[] = "\"}";
    size_t n = 100000, n_head = strlen(head);
    char *text = malloc(n_head + n + strlen(tail));
    memcpy(text, head, n_head);
    for (size_t i = 0; i < n; i++) {
        text[n_head + i] = ",[{:"[i % 4];
    }
    memcpy(text + n_head + n, tail, strlen(tail));
    CHECK_OK(parse_bytes(text, n_head + n + strlen(tail)));
    ck_assert_uint_lt(budget_used(&budget), 2 * n);
    ck_assert_uint_gt(budget_used(&budget), n);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai values");
    TCase *tcase = tcase_create("values");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, integers);
    tcase_add_test(tcase, numbers);
    tcase_add_test(tcase, booleans_and_strings);
    tcase_add_test(tcase, lists_of_ids);
    tcase_add_test(tcase, more_than_the_arena_holds_is_refused);
    tcase_add_test(tcase, a_long_refusal_is_cut);
    tcase_add_test(tcase, null_false_and_what_holds_nothing_are_empty);
    tcase_add_test(tcase, text_that_is_no_json_is_refused_with_its_place);
    tcase_add_test(tcase, texts_are_utf8);
    tcase_add_test(tcase, depth_is_bounded);
    tcase_add_test(tcase, a_body_is_charged_for_its_tree);
    tcase_add_test(tcase, a_text_is_charged_for_its_bytes_alone);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
