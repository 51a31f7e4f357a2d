/* ctest: labels=quick libs=base timeout=60 */
/* The log's lines: one line for an event whatever its values hold, as text and as JSON, which
 * another library parses here. */
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text/json.h"
#include "base/text/utf8.h"
#include "tests/support/check_util.h"

enum { TEXT_BYTES = 8192 };

/* stderr goes to a file between begin and end. */
struct capture {
    char path[64], text[TEXT_BYTES];
    int fd, saved;
};

static void capture_begin(struct capture *c, enum log_format format)
{
    snprintf(c->path, sizeof c->path, "/tmp/outrider_log_XXXXXX");
    c->fd = mkstemp(c->path);
    c->saved = dup(STDERR_FILENO);
    ck_assert_int_ge(c->fd, 0);
    fflush(stderr);
    ck_assert_int_ge(dup2(c->fd, STDERR_FILENO), 0);
    log_open("test", LOG_LEVEL_INFO);
    log_set_format(format);
}

static const char *capture_end(struct capture *c)
{
    fflush(stderr);
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    ssize_t n = pread(c->fd, c->text, sizeof c->text - 1, 0);
    c->text[n > 0 ? n : 0] = '\0';
    close(c->fd);
    unlink(c->path);
    log_set_format(LOG_FORMAT_TEXT);
    return c->text;
}

/* Returns the rest of a line of text after its head. */
static const char *after_head(const char *line)
{
    const char *at = strstr(line, "] ");
    ck_assert_ptr_nonnull(at);
    return at + 2;
}

/* The line as JSON; it is one line. The caller calls json_decref. */
static json_t *parse_line(const char *line)
{
    struct error err;
    json_t *root;
    ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
    CHECK_OK(json_parse_text(&root, line, strlen(line), "line", &err));
    return root;
}

static const char *string_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    ck_assert_msg(text != NULL, "%s is no string", key);
    return text;
}

START_TEST(lines_below_the_level_are_dropped)
{
    struct capture c;
    capture_begin(&c, LOG_FORMAT_TEXT);
    log_line(LOG_LEVEL_DEBUG, "quiet", "value=%d", 1);
    ck_assert_str_eq(capture_end(&c), "");
}
END_TEST

START_TEST(a_line_is_one_line_whatever_is_in_it)
{
    struct capture c;
    capture_begin(&c, LOG_FORMAT_TEXT);
    log_line(LOG_LEVEL_WARN, "event_name", "value=%s ms=%d", "a\nb\x1b[31m\xff", 7);
    const char *line = capture_end(&c);
    ck_assert_ptr_nonnull(strstr(line, "Z warn test["));
    ck_assert_str_eq(after_head(line), "event_name value=a?b?[31m? ms=7\n");
}
END_TEST

START_TEST(no_value_can_pretend_to_be_a_field)
{
    struct capture c;
    capture_begin(&c, LOG_FORMAT_TEXT);
    log_line(LOG_LEVEL_WARN, "e", "id=%s text=\"%s\" pin=within:%s n=%d", "x n=2", "a\" n=3 b=\"\\",
             "0-7", 1);
    ck_assert_str_eq(after_head(capture_end(&c)),
                     "e id=\"x n=2\" text=\"a\\\" n=3 b=\\\"\\\\\" pin=within:0-7 n=1\n");
    capture_begin(&c, LOG_FORMAT_JSON);
    log_line(LOG_LEVEL_WARN, "e", "id=%s text=\"%s\" n=%d", "x\",\"n\":\"2", "a\",\"n\":3,\"", 1);
    json_t *root = parse_line(capture_end(&c));
    ck_assert_str_eq(string_of(root, "id"), "x\",\"n\":\"2");
    ck_assert_str_eq(string_of(root, "text"), "a\",\"n\":3,\"");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "n")), 1);
    json_decref(root);
}
END_TEST

START_TEST(a_field_without_a_value_is_left_out)
{
    struct capture c;
    for (int format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
        capture_begin(&c, (enum log_format)format);
        log_line(LOG_LEVEL_INFO, "e", "a=%s b=\"%s\" c=%.1f d=%.1f e=%d f=\"%s\"", "", "",
                 (double)NAN, (double)-INFINITY, -5, "");
        const char *line = capture_end(&c);
        const char *wanted = format == LOG_FORMAT_JSON ? "\"event\":\"e\",\"e\":-5}\n" : "e e=-5\n";
        ck_assert_str_eq(line + strlen(line) - strlen(wanted), wanted);
    }
}
END_TEST

START_TEST(json_has_numbers_where_the_format_has_one)
{
    struct capture c;
    capture_begin(&c, LOG_FORMAT_JSON);
    log_line(LOG_LEVEL_ERROR, "sizes", "a=%d b=%.2f c=%lld d=%s e=%d/%d f=%zu text=\"%s\"", -3, 0.5,
             1LL << 40, "17", 1, 2, (size_t)9, "caf\xc3\xa9");
    json_t *root = parse_line(capture_end(&c));
    ck_assert_str_eq(string_of(root, "level"), "error");
    ck_assert_str_eq(string_of(root, "program"), "test");
    ck_assert_str_eq(string_of(root, "event"), "sizes");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "pid")), (int)getpid());
    ck_assert_uint_eq(strlen(string_of(root, "time")), strlen("2026-11-23T12:00:00.000Z"));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "a")), -3);
    ck_assert_double_eq(json_real_value(json_object_get(root, "b")), 0.5);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "c")), 1LL << 40);
    ck_assert_str_eq(string_of(root, "d"), "17");
    ck_assert_str_eq(string_of(root, "e"), "1/2");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "f")), 9);
    ck_assert_str_eq(string_of(root, "text"), "caf\xc3\xa9");
    ck_assert_uint_eq(json_object_size(root), 5 + 7);
    json_decref(root);
}
END_TEST

/* A line that is cut is still one that another program can read. */
START_TEST(long_values_are_cut)
{
    static const char *const fillers[] = {"m", "\"", "\\", "\xc3\xa9", "\x01", "\xff"};
    char many[4000];
    struct capture c;
    for (size_t f = 0; f < sizeof fillers / sizeof *fillers; f++) {
        size_t len = strlen(fillers[f]);
        for (size_t i = 0; i + len < sizeof many; i += len) {
            memcpy(many + i, fillers[f], len);
            many[i + len] = '\0';
        }
        capture_begin(&c, LOG_FORMAT_JSON);
        log_line(LOG_LEVEL_WARN, "e", "a=%d text=\"%s\" b=%d", 1, many, 2);
        const char *line = capture_end(&c);
        ck_assert_uint_le(strlen(line), 4096);
        ck_assert_uint_ge(strlen(line), 1500);
        json_t *root = parse_line(line);
        ck_assert_int_eq(json_integer_value(json_object_get(root, "a")), 1);
        ck_assert_ptr_null(json_object_get(root, "b"));
        json_decref(root);
        capture_begin(&c, LOG_FORMAT_TEXT);
        log_line(LOG_LEVEL_WARN, "e", "a=%d text=\"%s\" b=%d", 1, many, 2);
        line = capture_end(&c);
        ck_assert_uint_le(strlen(line), 4096);
        ck_assert_uint_eq(utf8_prefix(line, strlen(line)), strlen(line));
        ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, lines_below_the_level_are_dropped);
    tcase_add_test(tc, a_line_is_one_line_whatever_is_in_it);
    tcase_add_test(tc, no_value_can_pretend_to_be_a_field);
    tcase_add_test(tc, a_field_without_a_value_is_left_out);
    tcase_add_test(tc, json_has_numbers_where_the_format_has_one);
    tcase_add_test(tc, long_values_are_cut);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
