/* The conventions in a target's folder, beside its weights, on the wire. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>
#include <string.h>

#include "proto/target_wire.h"
#include "tests/support/check_util.h"

enum { ARENA_BYTES = 4 << 20 };

static struct error err;
static struct arena arena;
static struct buffer buf;

static void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&arena);
    buffer_free(&buf);
}

static const struct target_conventions nothing = {.template_file = "",
                                                  .chat_template = "",
                                                  .temperature = WIRE_OPEN,
                                                  .top_p = WIRE_OPEN,
                                                  .min_p = WIRE_OPEN,
                                                  .repetition_penalty = WIRE_OPEN,
                                                  .top_k = WIRE_OPEN};

static struct target_conventions exchanged(const struct target_conventions *sent)
{
    struct target_conventions got;
    arena_reset(&arena);
    CHECK_OK(target_conventions_encode(&buf, sent, &err));
    CHECK_OK(target_conventions_decode(buf.data, buf.len, &arena, &got, &err));
    return got;
}

START_TEST(conventions_round_trip_keeps_every_field)
{
    const struct special_text special[] = {{"bos_token", "<s>"}, {"eos_token", "\xc3\xa4"}};
    const struct target_conventions sent = {.template_file = "folder/chat_template.jinja",
                                            .chat_template = "{{ messages }}\n",
                                            .chat_template_len = 15,
                                            .n_special = 2,
                                            .special = special,
                                            .temperature = 0,
                                            .top_p = 0.5f,
                                            .min_p = 0,
                                            .repetition_penalty = 1.5f,
                                            .top_k = 0};
    const struct target_conventions got = exchanged(&sent);
    ck_assert_str_eq(got.template_file, sent.template_file);
    ck_assert_str_eq(got.chat_template, sent.chat_template);
    ck_assert_uint_eq(got.chat_template_len, 15);
    ck_assert_int_eq(got.n_special, 2);
    ck_assert_str_eq(got.special[1].name, "eos_token");
    ck_assert_str_eq(got.special[1].text, "\xc3\xa4");
    ck_assert(got.temperature == 0 && got.top_p == 0.5f && got.min_p == 0 && got.top_k == 0);
    ck_assert(got.repetition_penalty == 1.5f);
}
END_TEST

START_TEST(fields_that_a_folder_lacks_stay_open)
{
    struct target_conventions got = exchanged(&nothing);
    ck_assert_str_eq(got.template_file, "");
    ck_assert_int_eq(got.n_special, 0);
    ck_assert(got.temperature == WIRE_OPEN && got.top_p == WIRE_OPEN && got.min_p == WIRE_OPEN);
    ck_assert(got.repetition_penalty == WIRE_OPEN && got.top_k == WIRE_OPEN);
    CHECK_OK(target_conventions_decode(NULL, 0, &arena, &got, &err)); /* of an older rank */
    ck_assert(got.temperature == WIRE_OPEN && !*got.template_file);
}
END_TEST

static void check_refused(const struct target_conventions *sent, const char *text)
{
    struct target_conventions got;
    arena_reset(&arena);
    CHECK_OK(target_conventions_encode(&buf, sent, &err));
    CHECK_ERR(target_conventions_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
}

START_TEST(values_out_of_range_are_refused)
{
    static char text[WIRE_TEMPLATE_BYTES_MAX + 1];
    static struct special_text many[WIRE_SPECIAL_TEXTS_MAX + 1];
    struct target_conventions bad = nothing;
    bad.temperature = NAN;
    check_refused(&bad, "temperature is nan");
    bad = nothing, bad.top_p = 1.5f;
    check_refused(&bad, "top_p is 1.5");
    bad = nothing, bad.repetition_penalty = 0;
    check_refused(&bad, "repetition_penalty is 0, must be 0.01 to 10");
    bad = nothing, bad.repetition_penalty = 0.009f;
    check_refused(&bad, "repetition_penalty is 0.009");
    bad = nothing, bad.top_k = -2;
    check_refused(&bad, "top_k is 4294967294");
    memset(text, 'a', sizeof text);
    bad = nothing, bad.chat_template = text, bad.chat_template_len = sizeof text;
    check_refused(&bad, "chat_template has 1048577 bytes, at most 1048576");
    for (int i = 0; i <= WIRE_SPECIAL_TEXTS_MAX; i++) {
        many[i] = (struct special_text){"name", "text"};
    }
    bad = nothing, bad.special = many, bad.n_special = WIRE_SPECIAL_TEXTS_MAX + 1;
    check_refused(&bad, "special has 17 entries, at most 16");
}
END_TEST

START_TEST(every_prefix_is_safe)
{
    const struct special_text special = {"eos_token", "</s>"};
    struct target_conventions sent = nothing, got;
    sent.chat_template = "x", sent.chat_template_len = 1, sent.template_file = "y";
    sent.special = &special, sent.n_special = 1, sent.temperature = 0.5f;
    CHECK_OK(target_conventions_encode(&buf, &sent, &err));
    for (size_t n = 0; n < buf.len; n++) {
        arena_reset(&arena);
        int rc = target_conventions_decode(buf.data, n, &arena, &got, &err);
        ck_assert(rc == 0 || rc == ERR_FORMAT);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_conventions");
    TCase *tests = tcase_create("wire_conventions");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, conventions_round_trip_keeps_every_field);
    tcase_add_test(tests, fields_that_a_folder_lacks_stay_open);
    tcase_add_test(tests, values_out_of_range_are_refused);
    tcase_add_test(tests, every_prefix_is_safe);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
