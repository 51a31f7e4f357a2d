/* ctest: labels=quick libs=base timeout=30 */
/* The reader of option tables: what each kind of row stores, refuses and says in the help. */
#include "base/text/option_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check_util.h"

enum colour { COLOUR_NONE, COLOUR_RED, COLOUR_BLUE };

struct fields {
    int queue;
    float ratio;
    double stretch;
    uint64_t seed;
    bool is_loud, is_shy, has_seed, is_gone;
    enum colour colour, mode;
    const char *listen, *device, *argument;
    int sum; /* of --add, which may be given again */
};

static bool device_is_known(const char *text)
{
    return strncmp(text, "cpu", 3) == 0;
}

static void device_names(char *text, size_t size)
{
    snprintf(text, size, "cpu0 or cpu1");
}

static int add(void *field, const char *option, const char *text, struct error *err)
{
    if (strlen(text) > 3) return error_set(err, ERR_ARGUMENT, "%s: %s is long", option, text);
    *(int *)field += atoi(text);
    return 0;
}

static int finish_own(void *fields, struct error *err)
{
    const struct fields *f = fields;
    if (f->queue < f->sum) return error_set(err, ERR_FORMAT, "%d < %d", f->queue, f->sum);
    return 0;
}

static int take(void *fields, char *word, struct error *err)
{
    struct fields *f = fields;
    (void)err;
    f->argument = word;
    return 0;
}

static int note(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    (void)text;
    (void)err;
    *(bool *)field = true;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct fields, member)

static const char *const colours[] = {"red", "blue"};
static const struct option_row rows[] = {
    {"plain", 0, "N", FIELD(sum), .least = 0, .most = 9, .help = "before all titles"},
    OPTION_GROUP("Work", "--queue=4"),
    {"queue", 'q', "N", FIELD(queue), .least = 1, .most = 100, .standard_int = 64,
     .old_name = "line", .help = "that may wait"},
    {"ratio", 0, "P", FIELD(ratio), .most = 1, .standard = "0.4", .help = "a part"},
    {"stretch", 0, "X", FIELD(stretch), .least = 1, .most = 100, .help = "a factor"},
    {"seed", 0, "N", FIELD(seed), .also = offsetof(struct fields, has_seed), .help = "of coins"},
    OPTION_GROUP("Words", NULL),
    {"loud", 0, NULL, FIELD(is_loud), .help = "a flag"},
    {"shy", 0, "WORD", FIELD(is_shy), .is_inverted = true, .standard = "on", .help = "a switch"},
    {"colour", 0, "NAME", FIELD(colour), .least = COLOUR_RED, .words = colours, .n_words = 2,
     .standard = "red", .help = "one of the words"},
    {"mode", 0, "NAME", FIELD(mode), .words = colours, .n_words = 2, .expected = "blue or red",
     .help = "another"},
    {"gone", 0, "MODE", OPTION_READ(struct fields, is_gone, note), .is_removed = true,
     .help = "was removed"},
    {0},
};
static const struct option_row more_rows[] = {
    OPTION_GROUP("Work", NULL),
    {"add", 0, "N", OPTION_READ(struct fields, sum, add), .help = "may be given again"},
    OPTION_GROUP("Doors", NULL),
    {"listen", 'l', "ADDRESS", FIELD(listen), .standard = "here", .variable = "TEST_OPTION_LISTEN",
     .help = "where"},
    {"device", 0, "NAME", FIELD(device), .is_known = device_is_known, .names = device_names,
     .expected = "NAMES", .help = "NAMES, in this order"},
    {0},
};

enum { WORDS_MAX = 10 };

static int parse(struct fields *f, const char *const *words, struct error *err)
{
    static char copies[WORDS_MAX][40]; /* what is kept of them is looked at before the next call */
    char *argv[WORDS_MAX + 2] = {strcpy(copies[0], "p")};
    int argc = 1;
    const struct option_program program = {
        .doc = "Tests.",
        .args_doc = "WORD",
        .variables = "TEST_OWN_",
        .parts = {{rows, f, finish_own}, {more_rows, f, NULL}},
        .take = take,
    };
    for (; words[argc - 1]; argc++)
        argv[argc] = strcpy(copies[argc], words[argc - 1]);
    *f = (struct fields){0};
    return option_program_parse(&program, argc, argv, err);
}

#define PARSE(f, ...) parse(f, (const char *const[]){__VA_ARGS__, NULL}, &err)

START_TEST(each_kind_of_field_gets_its_value)
{
    struct error err;
    struct fields f;
    CHECK_OK(PARSE(&f, "-q7", "--ratio=0.5", "--stretch", "2.5", "--loud", "--shy=off",
                   "--colour=blue", "--mode=blue"));
    ck_assert_int_eq(f.queue, 7);
    ck_assert(f.ratio > 0.49f && f.ratio < 0.51f && f.stretch > 2.4 && f.stretch < 2.6);
    ck_assert(f.is_loud && f.is_shy && !f.has_seed);
    ck_assert(f.colour == COLOUR_BLUE && f.mode == COLOUR_RED); /* words are counted from least */
    CHECK_OK(
        PARSE(&f, "--seed=18446744073709551615", "--device=cpu1", "word", "--add=1", "--add=2"));
    ck_assert(f.seed == UINT64_MAX && f.has_seed);
    ck_assert_str_eq(f.device, "cpu1");
    ck_assert_str_eq(f.argument, "word");
    ck_assert_int_eq(f.sum, 3);
}
END_TEST

START_TEST(defaults_are_stored_and_the_command_line_wins_over_the_environment)
{
    struct error err;
    struct fields f;
    unsetenv("TEST_OPTION_LISTEN");
    CHECK_OK(PARSE(&f, "--loud"));
    ck_assert_int_eq(f.queue, 64);
    ck_assert(f.ratio > 0.39f && f.ratio < 0.41f && !f.is_shy && f.colour == COLOUR_RED);
    ck_assert_str_eq(f.listen, "here");
    setenv("TEST_OPTION_LISTEN", "there", 1);
    CHECK_OK(PARSE(&f, "--loud"));
    ck_assert_str_eq(f.listen, "there");
    CHECK_OK(PARSE(&f, "--listen=elsewhere"));
    ck_assert_str_eq(f.listen, "elsewhere");
    setenv("TEST_OPTION_LISTEN", "", 1); /* counts as not set */
    CHECK_OK(PARSE(&f, "--loud"));
    ck_assert_str_eq(f.listen, "here");
    unsetenv("TEST_OPTION_LISTEN");
}
END_TEST

START_TEST(a_wrong_value_is_refused_in_one_sentence)
{
    struct error err;
    struct fields f;
    CHECK_ERR(PARSE(&f, "--queue=0"), ERR_ARGUMENT, "--queue: '0' is not a whole number from 1");
    CHECK_ERR(PARSE(&f, "-q101"), ERR_ARGUMENT, "--queue: '101'");
    CHECK_ERR(PARSE(&f, "--ratio=2"), ERR_ARGUMENT, "--ratio: '2' is not a number from 0 to 1");
    CHECK_ERR(PARSE(&f, "--stretch=0.5"), ERR_ARGUMENT, "--stretch: '0.5'");
    CHECK_ERR(PARSE(&f, "--shy=perhaps"), ERR_ARGUMENT, "'perhaps' is not one of off or on");
    CHECK_ERR(PARSE(&f, "--colour=green"), ERR_ARGUMENT, "'green' is not one of red or blue");
    CHECK_ERR(PARSE(&f, "--mode=green"), ERR_ARGUMENT, "--mode green: expected blue or red");
    CHECK_ERR(PARSE(&f, "--device=gpu"), ERR_ARGUMENT, "--device gpu: expected cpu0 or cpu1");
    CHECK_ERR(PARSE(&f, "--add=1234"), ERR_ARGUMENT, "--add: 1234 is long");
    CHECK_ERR(PARSE(&f, "--queue=1", "--add=2"), ERR_FORMAT, "1 < 2"); /* of finish */
    CHECK_ERR(PARSE(&f, "--ques=1"), ERR_ARGUMENT, "do you mean --queue?");
}
END_TEST

START_TEST(a_wrong_value_of_the_environment_names_the_variable)
{
    static const struct option_row own[] = {
        {"queue", 0, "N", FIELD(queue), .most = 9, .variable = "TEST_OPTION_QUEUE", .help = ""},
        {0}};
    struct error err;
    struct fields f = {0};
    const struct option_program program = {.parts = {{own, &f, NULL}}};
    char name[] = "p", word[] = "--queue=3", stray[] = "stray";
    setenv("TEST_OPTION_QUEUE", "many", 1);
    CHECK_ERR(option_program_parse(&program, 1, (char *[]){name, NULL}, &err), ERR_ARGUMENT,
              "TEST_OPTION_QUEUE: 'many'");
    CHECK_OK(option_program_parse(&program, 2, (char *[]){name, word, NULL}, &err));
    ck_assert_int_eq(f.queue, 3);
    unsetenv("TEST_OPTION_QUEUE");
    CHECK_ERR(option_program_parse(&program, 2, (char *[]){name, stray, NULL}, &err), ERR_ARGUMENT,
              "'stray' is not an option; see --help");
}
END_TEST

/* Parses as a program with `rows` whose variables begin with TEST_OPTION_. */
static int parse_environment(struct fields *f, char *word, struct error *err)
{
    static char name[] = "p";
    char *argv[] = {name, word, NULL};
    const struct option_program program = {.variables = "TEST_OPTION_",
                                           .parts = {{rows, f, NULL}, {more_rows, f, NULL}}};
    *f = (struct fields){0};
    return option_program_parse(&program, word ? 2 : 1, argv, err);
}

START_TEST(every_option_has_a_variable)
{
    struct error err;
    struct fields f;
    char word[] = "--queue=3";
    setenv("TEST_OPTION_QUEUE", "7", 1);
    setenv("TEST_OPTION_SEED", "8", 1);
    setenv("TEST_OPTION_LOUD", "on", 1);
    setenv("TEST_OPTION_ADD", "2", 1);
    CHECK_OK(parse_environment(&f, NULL, &err));
    ck_assert(f.queue == 7 && f.seed == 8 && f.has_seed && f.is_loud && f.sum == 2);
    CHECK_OK(parse_environment(&f, word, &err));
    ck_assert_int_eq(f.queue, 3);
    setenv("TEST_OPTION_LOUD", "off", 1);
    CHECK_OK(parse_environment(&f, NULL, &err));
    ck_assert(!f.is_loud);
    setenv("TEST_OPTION_LOUD", "1", 1);
    CHECK_ERR(parse_environment(&f, NULL, &err), ERR_ARGUMENT,
              "TEST_OPTION_LOUD: '1' is not one of off or on");
    unsetenv("TEST_OPTION_QUEUE");
    unsetenv("TEST_OPTION_SEED");
    unsetenv("TEST_OPTION_LOUD");
    unsetenv("TEST_OPTION_ADD");
}
END_TEST

START_TEST(words_of_other_programs_are_told_from_own_ones)
{
    ck_assert_int_eq(option_rows_words(rows, "--queue=4"), 1);
    ck_assert_int_eq(option_rows_words(rows, "--queue"), 2);
    ck_assert_int_eq(option_rows_words(rows, "--line"), 2); /* the old name of --queue */
    ck_assert_int_eq(option_rows_words(rows, "-q"), 2);
    ck_assert_int_eq(option_rows_words(rows, "-q4"), 1);
    ck_assert_int_eq(option_rows_words(rows, "--loud"), 1);
    ck_assert_int_eq(option_rows_words(rows, "--queues"), 0);
    ck_assert_int_eq(option_rows_words(rows, "--que"), 0);
    ck_assert_int_eq(option_rows_words(rows, "queue"), 0);
    ck_assert_int_eq(option_rows_words(rows, ""), 0);
}
END_TEST

START_TEST(an_old_name_works_and_is_not_shown)
{
    struct error err;
    struct fields f;
    CHECK_OK(PARSE(&f, "--line=5"));
    ck_assert_int_eq(f.queue, 5);
    CHECK_OK(PARSE(&f, "--line", "6"));
    ck_assert_int_eq(f.queue, 6);
    CHECK_ERR(PARSE(&f, "--line=0"), ERR_ARGUMENT, "--queue: '0'");
    CHECK_ERR(PARSE(&f, "--lime=5"), ERR_ARGUMENT, "--lime is not an option; see --help");
}
END_TEST

START_TEST(an_option_that_was_removed_is_noted_and_not_shown)
{
    struct error err;
    struct fields f;
    CHECK_OK(PARSE(&f, "--loud"));
    ck_assert(!f.is_gone);
    CHECK_OK(PARSE(&f, "--gone=any"));
    ck_assert(f.is_gone);
    CHECK_ERR(PARSE(&f, "--gome=any"), ERR_ARGUMENT, "--gome is not an option; do you mean --");
    ck_assert_ptr_null(strstr(err.text, "--gone"));
}
END_TEST

START_TEST(a_row_is_set_by_its_name_or_letter)
{
    struct error err;
    struct fields f = {0};
    CHECK_OK(option_rows_set(rows, &f, "queue", "9", &err));
    ck_assert_int_eq(f.queue, 9);
    CHECK_OK(option_rows_set(rows, &f, "q", "8", &err));
    CHECK_OK(option_rows_set(rows, &f, "seed", "1", &err));
    ck_assert(f.queue == 8 && f.has_seed);
    CHECK_OK(option_rows_set(rows, &f, "line", "7", &err));
    ck_assert_int_eq(f.queue, 7);
    CHECK_ERR(option_rows_set(rows, &f, "queue", "x", &err), ERR_ARGUMENT, "--queue: 'x'");
    CHECK_ERR(option_rows_set(rows, &f, "loud", "1", &err), ERR_NOT_FOUND, "'loud'");
    CHECK_ERR(option_rows_set(rows, &f, "quit", "1", &err), ERR_NOT_FOUND, "'quit'");
}
END_TEST

/* Reads what a child prints before it ends with status 0, because --help ends the process. */
static void read_help(char *text, size_t size)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct error err;
        struct fields f;
        dup2(ends[1], STDOUT_FILENO);
        setenv("ARGP_HELP_FMT", "rmargin=1000", 1);
        PARSE(&f, "--help");
        _exit(1);
    }
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    ck_assert_ptr_nonnull(file);
    size_t len = fread(text, 1, size - 1, file);
    text[len] = '\0';
    fclose(file);
}

START_TEST(the_help_has_titles_with_examples_and_says_each_default_once)
{
    static const char *const order[] = {
        "before all titles",
        "Work (such as --queue=4):",
        "--add=N                may be given again",
        "-q, --queue=N              that may wait; default 64\n",
        "a part; default 0.4\n",
        "a factor\n",
        "Words:",
        "one of the words; default red\n",
        "a switch; default on\n",
        "Doors:",
        "cpu0 or cpu1, in this order\n",
        "where; default TEST_OPTION_LISTEN from the environment, or here\n",
        "such as TEST_OWN_PLAIN for --plain;",
    };
    static char text[1 << 16];
    read_help(text, sizeof text);
    const char *at = text;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        at = strstr(at, order[i]);
        ck_assert_msg(at != NULL, "%s is not in, or not in this place of:\n%s", order[i], text);
    }
    ck_assert_ptr_null(strstr(text, "--line"));
    ck_assert_ptr_null(strstr(strstr(text, "Work") + 1, "Work"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option_table");
    TCase *cases = tcase_create("option_table");
    tcase_add_test(cases, each_kind_of_field_gets_its_value);
    tcase_add_test(cases, defaults_are_stored_and_the_command_line_wins_over_the_environment);
    tcase_add_test(cases, a_wrong_value_is_refused_in_one_sentence);
    tcase_add_test(cases, a_wrong_value_of_the_environment_names_the_variable);
    tcase_add_test(cases, every_option_has_a_variable);
    tcase_add_test(cases, words_of_other_programs_are_told_from_own_ones);
    tcase_add_test(cases, an_old_name_works_and_is_not_shown);
    tcase_add_test(cases, an_option_that_was_removed_is_noted_and_not_shown);
    tcase_add_test(cases, a_row_is_set_by_its_name_or_letter);
    tcase_add_test(cases, the_help_has_titles_with_examples_and_says_each_default_once);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
