/* ctest: labels=quick libs=serve timeout=30 */
/* Lines of logs, as text and as JSON, and what is none. */
#include "client/serve/log_event.h"

#include "tests/support/check_util.h"

static struct log_event event;
static char text[64];

static const char *field(const char *key)
{
    return log_event_field(&event, key, text, sizeof text);
}

START_TEST(a_line_of_text_has_its_fields)
{
    ck_assert(log_event_read(&event,
                             "2026-11-28T01:28:46.716Z warn outrider-worker[42] failed "
                             "reason=format text=\"a \\\"b\\\" http=no \\\\ c\" http=1.2.3.4:5"));
    ck_assert_str_eq(event.level, "warn");
    ck_assert_str_eq(event.program, "outrider-worker");
    ck_assert_str_eq(event.name, "failed");
    ck_assert_str_eq(field("reason"), "format");
    ck_assert_str_eq(field("text"), "a \"b\" http=no \\ c");
    ck_assert_str_eq(field("http"), "1.2.3.4:5"); /* not the one within quotes */
    ck_assert_str_eq(field("htt"), "");
    ck_assert(log_event_read(&event, "2026-11-28T01:28:46.716Z info outrider-worker[42] ready"));
    ck_assert_str_eq(event.name, "ready");
    ck_assert_str_eq(field("text"), "");
}
END_TEST

START_TEST(a_line_of_json_has_its_fields)
{
    ck_assert(log_event_read(
        &event, "{\"time\":\"2026\",\"level\":\"info\",\"program\":\"outrider-coordinator\","
                "\"pid\":4,\"event\":\"ready\",\"rank\":0,\"http\":\"1.2.3.4:5\"}"));
    ck_assert_str_eq(event.level, "info");
    ck_assert_str_eq(event.program, "outrider-coordinator");
    ck_assert_str_eq(event.name, "ready");
    ck_assert_str_eq(field("http"), "1.2.3.4:5");
    ck_assert_str_eq(field("text"), "");
}
END_TEST

START_TEST(a_value_is_cut_where_its_room_ends)
{
    char small[4];
    ck_assert(log_event_read(&event, "2026-11-28T01:28:46.716Z info p[4] ready a=123456"));
    ck_assert_str_eq(log_event_field(&event, "a", small, sizeof small), "123");
}
END_TEST

START_TEST(other_lines_are_no_events)
{
    static const char *const lines[] = {
        "",
        "----",
        "{",
        "{}",
        "[]",
        "outrider-worker: --model is missing",
        "mpirun noticed that process rank 1 with PID 0 on node x exited on signal 9 (Killed).",
        "2026-11-28T01:28:46.716Z info outrider-worker[42"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(!log_event_read(&event, lines[i]), "%s", lines[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log_event");
    TCase *cases = tcase_create("lines");
    tcase_add_test(cases, a_line_of_text_has_its_fields);
    tcase_add_test(cases, a_line_of_json_has_its_fields);
    tcase_add_test(cases, a_value_is_cut_where_its_room_ends);
    tcase_add_test(cases, other_lines_are_no_events);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
