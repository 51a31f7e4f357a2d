/* ctest: labels=quick libs=config_file timeout=30 */
/* Files of options: what they give, what is refused with its line, and which of command line,
 * environment and file goes first. */
#include "config/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check_util.h"

static struct error err;
static char path[] = "/tmp/test_config_file.XXXXXX";
static char got[512]; /* "name=value;" for each */

static void write_config(const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static int note(void *arg, const struct option_given *given, struct error *failure)
{
    size_t len = strlen(got);
    (void)arg;
    if (strcmp(given->value, "bad") == 0) {
        return error_set(failure, ERR_ARGUMENT, "%s: bad", given->place);
    }
    snprintf(got + len, sizeof got - len, "%s=%s;", given->name, given->value);
    return 0;
}

static int read_text(const char *text)
{
    write_config(text);
    got[0] = '\0';
    return config_file_read(path, note, NULL, &err);
}

START_TEST(lines_lists_and_quotes_are_values)
{
    CHECK_OK(read_text("# options\nqueue: 4\nlisten: 127.0.0.1:70\nname: 'a b'\n\n"
                       "weight:\n  - a=1\n  - \"b=2\"\nadd: [1, 2]\nempty: ''\nnone: []\n"));
    ck_assert_str_eq(got, "queue=4;listen=127.0.0.1:70;name=a b;weight=a=1;weight=b=2;add=1;add=2;"
                          "empty=;");
    CHECK_OK(read_text(""));
    ck_assert_str_eq(got, "");
    CHECK_OK(read_text("# nothing\n"));
    CHECK_OK(read_text("---\nqueue: 4\n...\n"));
    ck_assert_str_eq(got, "queue=4;");
}
END_TEST

START_TEST(what_is_no_list_of_options_is_refused_with_its_line)
{
    CHECK_ERR(read_text("- queue\n"), ERR_ARGUMENT, "line 1: expected lines of options");
    CHECK_ERR(read_text("queue\n"), ERR_ARGUMENT, "line 1: expected lines of options");
    CHECK_ERR(read_text("a: 1\n---\nb: 2\n"), ERR_ARGUMENT, "line 2: expected lines of options");
    CHECK_ERR(read_text("a: 1\nqueue:\n"), ERR_ARGUMENT, "line 2: queue has no value");
    CHECK_ERR(read_text("queue: ~\n"), ERR_ARGUMENT, "queue has no value");
    CHECK_ERR(read_text("a: 1\nqueue: {b: 2}\n"), ERR_ARGUMENT,
              "line 2: the value of queue is to be a word");
    CHECK_ERR(read_text("queue: [[1]]\n"), ERR_ARGUMENT, "the value of queue is to be a word");
    CHECK_ERR(read_text("a: &x 1\nb: *x\n"), ERR_ARGUMENT, "line 2: the value of b is to be");
    CHECK_ERR(read_text("[a]: 1\n"), ERR_ARGUMENT, "line 1: expected lines of options");
    CHECK_ERR(read_text("a: 1\n b: 2\n"), ERR_ARGUMENT, "line 2: not YAML");
    CHECK_ERR(read_text("a: \"\\0\"\n"), ERR_ARGUMENT, "the value of a has a zero byte");
    CHECK_ERR(read_text("a: 1\nb: bad\nc: 2\n"), ERR_ARGUMENT, "line 2: bad");
    ck_assert_str_eq(got, "a=1;");
    CHECK_ERR(config_file_read("/nowhere/x", note, NULL, &err), ERR_NOT_FOUND,
              "--config /nowhere/x cannot be read");
}
END_TEST

struct fields {
    int queue, port, sum;
    bool is_loud, is_shy;
    const char *name;
};

static int add(void *field, const char *option, const char *text, struct error *failure)
{
    (void)option;
    (void)failure;
    *(int *)field += atoi(text);
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct fields, member)

static const struct option_row rows[] = {
    {"queue", 'q', "N", FIELD(queue), .least = 1, .most = 9, .standard_int = 5, .old_name = "line",
     .help = ""},
    {"port", 0, "N", FIELD(port), .most = 9, .variable = "TEST_CONFIG_OF_PORT", .help = ""},
    {"loud", 0, NULL, FIELD(is_loud), .help = ""},
    {"shy", 0, "WORD", FIELD(is_shy), .standard = "off", .help = ""},
    {"name", 0, "TEXT", FIELD(name), .help = ""},
    {"add", 0, "N", OPTION_READ(struct fields, sum, add), .help = ""},
    {0},
};

static int parse(struct fields *f, char *word)
{
    static char name[] = "p", option[] = "--config";
    char *argv[] = {name, option, path, word, NULL};
    const struct option_program program = {
        .variables = "TEST_CONFIG_", .read_file = config_file_read, .parts = {{rows, f, NULL}}};
    *f = (struct fields){0};
    return option_program_parse(&program, word ? 4 : 3, argv, &err);
}

START_TEST(command_line_environment_and_file_go_in_this_order)
{
    struct fields f;
    char word[] = "--queue=3";
    write_config("queue: 2\nname: of the file\nadd: [1, 2, 4]\nloud: true\nshy: yes\n");
    CHECK_OK(parse(&f, NULL));
    ck_assert(f.queue == 2 && f.sum == 7 && f.is_loud && f.is_shy);
    ck_assert_str_eq(f.name, "of the file");
    setenv("TEST_CONFIG_QUEUE", "4", 1);
    setenv("TEST_CONFIG_ADD", "8", 1);
    CHECK_OK(parse(&f, NULL));
    ck_assert(f.queue == 4 && f.sum == 8 && f.is_loud);
    CHECK_OK(parse(&f, word));
    ck_assert_int_eq(f.queue, 3);
    unsetenv("TEST_CONFIG_QUEUE");
    unsetenv("TEST_CONFIG_ADD");
    write_config("loud: off\n");
    CHECK_OK(parse(&f, NULL));
    ck_assert(f.queue == 5 && !f.is_loud);
    write_config("line: 6\n"); /* the old name */
    CHECK_OK(parse(&f, NULL));
    ck_assert_int_eq(f.queue, 6);
}
END_TEST

START_TEST(wrong_keys_and_values_are_refused_with_their_line)
{
    struct fields f;
    write_config("name: a\nqueu: 2\n");
    CHECK_ERR(parse(&f, NULL), ERR_ARGUMENT,
              "line 2: 'queu' is not an option; do you mean queue? See --help");
    write_config("nothing-like-it: 2\n");
    CHECK_ERR(parse(&f, NULL), ERR_ARGUMENT, "'nothing-like-it' is not an option; see --help");
    write_config("name: a\n\nqueue: 10\n");
    CHECK_ERR(parse(&f, NULL), ERR_ARGUMENT, "line 3: queue: '10' is not a whole number from 1");
    write_config("loud: perhaps\n");
    CHECK_ERR(parse(&f, NULL), ERR_ARGUMENT, "line 1: loud: 'perhaps'");
    write_config("config: x\n");
    CHECK_ERR(parse(&f, NULL), ERR_ARGUMENT, "line 1: a file cannot name another one");
}
END_TEST

/* As Kubernetes sets it for a service. */
START_TEST(an_option_that_is_called_port_has_the_variable_of_its_row_alone)
{
    struct fields f;
    write_config("queue: 2\n");
    setenv("TEST_CONFIG_PORT", "tcp://10.0.0.1:80", 1);
    CHECK_OK(parse(&f, NULL));
    ck_assert_int_eq(f.port, 0);
    setenv("TEST_CONFIG_OF_PORT", "7", 1);
    CHECK_OK(parse(&f, NULL));
    ck_assert_int_eq(f.port, 7);
    unsetenv("TEST_CONFIG_PORT");
    unsetenv("TEST_CONFIG_OF_PORT");
}
END_TEST

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    Suite *suite = suite_create("config_file");
    TCase *cases = tcase_create("files");
    tcase_add_test(cases, lines_lists_and_quotes_are_values);
    tcase_add_test(cases, what_is_no_list_of_options_is_refused_with_its_line);
    tcase_add_test(cases, command_line_environment_and_file_go_in_this_order);
    tcase_add_test(cases, wrong_keys_and_values_are_refused_with_their_line);
    tcase_add_test(cases, an_option_that_is_called_port_has_the_variable_of_its_row_alone);
    suite_add_tcase(suite, cases);
    int status = check_main(suite);
    unlink(path);
    return status;
}
