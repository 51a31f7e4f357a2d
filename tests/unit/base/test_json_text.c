/* ctest: labels=quick libs=base timeout=60 */
/* JSON that is written as text: another library reads it back. */
#include "base/text/json_text.h"

#include <stdio.h>

#include "tests/support/check_util.h"

static struct error err;
static struct buffer buf;

static void teardown(void)
{
    buffer_free(&buf);
}

static const char *written(const char *text, size_t len)
{
    buf.len = 0;
    CHECK_OK(json_text_string(&buf, text, len, &err));
    CHECK_OK(buffer_append(&buf, "", 1, &err));
    return (const char *)buf.data;
}

/* Checks that a reader of the written text gets the same text. */
static void check_same(const char *text, size_t len)
{
    const char *json = written(text, len);
    json_t *read = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    ck_assert_msg(read != NULL, "%s is no JSON", json);
    ck_assert_uint_eq(json_string_length(read), len);
    ck_assert_mem_eq(json_string_value(read), text, len);
    json_decref(read);
}

START_TEST(strings_have_quotation_marks)
{
    ck_assert_str_eq(written("", 0), "\"\"");
    ck_assert_str_eq(written(NULL, 0), "\"\"");
    ck_assert_str_eq(written("a/b", 3), "\"a/b\"");
    ck_assert_str_eq(written("abc", 2), "\"ab\"");
}
END_TEST

START_TEST(characters_that_a_string_cannot_have_are_escaped)
{
    ck_assert_str_eq(written("\"\\\n\r\t", 5), "\"\\\"\\\\\\n\\r\\t\"");
    ck_assert_str_eq(written("\0\x01\x1f\x7f", 4), "\"\\u0000\\u0001\\u001f\x7f\"");
    ck_assert_str_eq(written("a\nb\n", 4), "\"a\\nb\\n\"");
}
END_TEST

START_TEST(each_ascii_character_is_read_back)
{
    char all[128];
    for (int i = 0; i < 128; i++) {
        all[i] = (char)i;
        check_same(&all[i], 1);
    }
    check_same(all, sizeof all);
}
END_TEST

START_TEST(other_characters_stay_as_they_are)
{
    static const char text[] = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x89\xf4\x8f\xbf\xbf";
    check_same(text, strlen(text));
    ck_assert_str_eq(written("\xe2\x82\xac", 3), "\"\xe2\x82\xac\"");
}
END_TEST

/* Python's splitlines, which httpx uses for lines of a stream, splits at each of them. */
START_TEST(characters_that_end_a_line_for_some_are_escaped)
{
    static const char text[] = "\xc2\x85 \xe2\x80\xa8 \xe2\x80\xa9";
    ck_assert_str_eq(written(text, strlen(text)), "\"\\u0085 \\u2028 \\u2029\"");
    check_same(text, strlen(text));
    static const char neighbours[] = "\xc2\x84\xc2\x86\xe2\x80\xa7\xe2\x80\xaa\xe2\x84\xa8";
    ck_assert_uint_eq(strlen(written(neighbours, strlen(neighbours))), strlen(neighbours) + 2);
    check_same(neighbours, strlen(neighbours));
}
END_TEST

/* The caller promises UTF-8; bytes that are not are copied and no byte after them is read. */
START_TEST(a_torn_character_is_copied)
{
    static const char *const torn[] = {"\xff", "a\xc2", "a\xe2", "a\xe2\x80", "\x80\x80"};
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        size_t len = strlen(torn[i]);
        char *exact = malloc(len);
        memcpy(exact, torn[i], len);
        const char *json = written(exact, len);
        ck_assert_uint_eq(strlen(json), len + 2);
        ck_assert_mem_eq(json + 1, torn[i], len);
        free(exact);
    }
}
END_TEST

START_TEST(long_texts_are_read_back)
{
    size_t len = 1 << 20;
    char *text = malloc(len);
    for (size_t i = 0; i < len; i++) {
        text[i] = "abc\"\n\x02z\\"[i * 31 % 8];
    }
    check_same(text, len);
    memset(text, 'x', len);
    check_same(text, len);
    free(text);
}
END_TEST

START_TEST(values_of_every_kind_are_written)
{
    json_t *value = json_pack("{s:[i, n, b, f], s:s}", "a", 1, 1, 0.5, "b", "\n");
    buf.len = 0;
    CHECK_OK(json_text_value(&buf, value, &err));
    CHECK_OK(json_text_value(&buf, json_object_get(value, "b"), &err)); /* not only lists */
    CHECK_OK(json_text_take(&buf, value, &err));
    CHECK_OK(buffer_append(&buf, "", 1, &err));
    ck_assert_str_eq((const char *)buf.data, "{\"a\":[1,null,true,0.5],\"b\":\"\\n\"}\"\\n\""
                                             "{\"a\":[1,null,true,0.5],\"b\":\"\\n\"}");
}
END_TEST

START_TEST(a_value_that_could_not_be_made_is_an_error)
{
    CHECK_OK(buffer_append(&buf, "ab", 2, &err));
    CHECK_ERR(json_text_value(&buf, NULL, &err), ERR_NO_MEMORY, "JSON");
    CHECK_ERR(json_text_take(&buf, NULL, &err), ERR_NO_MEMORY, "JSON");
    ck_assert_uint_eq(buf.len, 2);
}
END_TEST

START_TEST(a_format_is_cut_at_255_bytes)
{
    char text[400];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_OK(json_text_format(&buf, &err, "%d,", 12));
    ck_assert_uint_eq(buf.len, 3);
    CHECK_OK(json_text_format(&buf, &err, "%.255s", text));
    ck_assert_uint_eq(buf.len, 3 + 255);
    CHECK_OK(json_text_format(&buf, &err, "%s", text));
    ck_assert_uint_eq(buf.len, 3 + 255 + 255);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_text");
    TCase *tcase = tcase_create("json_text");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, strings_have_quotation_marks);
    tcase_add_test(tcase, characters_that_a_string_cannot_have_are_escaped);
    tcase_add_test(tcase, each_ascii_character_is_read_back);
    tcase_add_test(tcase, other_characters_stay_as_they_are);
    tcase_add_test(tcase, characters_that_end_a_line_for_some_are_escaped);
    tcase_add_test(tcase, a_torn_character_is_copied);
    tcase_add_test(tcase, long_texts_are_read_back);
    tcase_add_test(tcase, values_of_every_kind_are_written);
    tcase_add_test(tcase, a_value_that_could_not_be_made_is_an_error);
    tcase_add_test(tcase, a_format_is_cut_at_255_bytes);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
