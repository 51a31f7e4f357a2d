/* ctest: labels=quick libs=base timeout=30 */
/* The options of a program as man and shells get them. */
#include "base/text/option_pages.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/option_table.h"
#include "tests/support/check_util.h"

const char *argp_program_version = "test 1.2";

struct fields {
    int queue, device, level;
    bool is_loud, is_shy;
    unsigned colour;
    const char *text, *gone;
};

static void device_names(char *text, size_t size)
{
    snprintf(text, size, "cpu0, cpu:N or cpu1");
}

static int note(void *field, const char *option, const char *text, struct error *err)
{
    (void)field;
    return error_set(err, ERR_ARGUMENT, "%s %s", option, text);
}

#define FIELD(member) OPTION_FIELD(struct fields, member)
#define READ(member)  OPTION_READ(struct fields, member, note)

static const char *const colours[] = {"red", "blue"};
static const struct option_row rows[] = {
    {"plain", 0, "N", FIELD(queue), .most = 9, .help = "before all titles"},
    OPTION_GROUP("Work", "--queue=4"),
    {"queue", 'q', "N", FIELD(queue), .least = 1, .most = 100, .standard_int = 64,
     .old_name = "line", .help = "that may wait"},
    OPTION_GROUP("Words", NULL),
    {"loud", 0, NULL, FIELD(is_loud), .help = "a flag"},
    {"shy", 0, "WORD", FIELD(is_shy), .standard = "on", .help = "a switch"},
    {"colour", 0, "NAME", FIELD(colour), .words = colours, .n_words = 2, .standard = "red",
     .help = "one of the words"},
    {"device", 0, "NAME", READ(device), .names = device_names, .help = "of NAMES: one"},
    {"level", 0, "LEVEL", READ(level), .help = "low, high: how much; or a number"},
    {"prose", 0, "TEXT", READ(level), .help = "one, and more words of it"},
    {"gone", 0, "MODE", READ(gone), .is_removed = true, .help = "was removed"},
    OPTION_GROUP("Work", NULL),
    {"text", 0, "FILE", FIELD(text), .help = "is read"},
    {"into", 0, "FOLDER", FIELD(text), .help = "is written"},
    {"model", 'm', "MODEL", FIELD(text), .help = "of any size"},
    {0},
};

static const char doc[] = "Does it all.\n.Then it ends.\v"
                          "It isn't \\-all.\n  item  of a list\n    as it is\n\n"
                          "Exit status: 0.\n\n"
                          "More.";

static int parse(const char *doc_text, const char *args_doc, const char *option, struct error *err)
{
    static char name[] = "/usr/bin/test";
    char word[80];
    struct fields fields = {0};
    char *argv[] = {name, word, NULL};
    const struct option_program program = {.doc = doc_text,
                                           .args_doc = args_doc,
                                           .variables = "TEST_PAGE_",
                                           .example = "test --queue 4 -m x",
                                           .parts = {{rows, &fields, NULL}}};
    snprintf(word, sizeof word, "%s", option);
    return option_program_parse(&program, 2, argv, err);
}

/* Reads what a child prints before it ends with status 0. */
static void read_pages(const char *doc_text, const char *args_doc, const char *option, char *text,
                       size_t size)
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct error err;
        dup2(ends[1], STDOUT_FILENO);
        parse(doc_text, args_doc, option, &err);
        _exit(1);
    }
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

START_TEST(shells_get_a_table)
{
    char text[8192];
    read_pages(doc, "[FILE]", "--options-as=table", text, sizeof text);
    ck_assert_str_eq(
        text, "option\t--plain\t-\tN\tany\t-\tbefore all titles\n"
              "option\t--queue\t-q\tN\tany\t-\tthat may wait; default 64\n"
              "option\t--text\t-\tFILE\tfiles\t-\tis read\n"
              "option\t--into\t-\tFOLDER\tfolders\t-\tis written\n"
              "option\t--model\t-m\tMODEL\tfiles\t-\tof any size\n"
              "option\t--loud\t-\t-\tnone\t-\ta flag\n"
              "option\t--shy\t-\tWORD\twords\ton off\ta switch; default on\n"
              "option\t--colour\t-\tNAME\twords\tred blue\tone of the words; default red\n"
              "option\t--device\t-\tNAME\twords\tcpu0 cpu1\tof cpu0, cpu:N or cpu1: one\n"
              "option\t--level\t-\tLEVEL\twords\tlow high\tlow, high: how much; or a number\n"
              "option\t--prose\t-\tTEXT\tany\t-\tone, and more words of it\n"
              "argument\tfiles\n");
}
END_TEST

START_TEST(a_table_has_commands)
{
    char text[8192];
    read_pages("Usage: test COMMAND\nTests.\n\nCommands:\n  add    one; or two\n  list  all\n\n"
               "More commands:\n  end  it\n\nMore.",
               "COMMAND", "--options-as=table", text, sizeof text);
    const char *commands = strstr(text, "command\t");
    ck_assert_ptr_nonnull(commands);
    ck_assert_str_eq(commands, "command\tadd\tone; or two\ncommand\tlist\tall\n"
                               "command\tend\tit\n");
}
END_TEST

START_TEST(man_gets_a_page)
{
    static const char *const parts[] = {
        ".TH TEST 1 \"\" \"test 1.2\" \"Outrider\"\n.SH NAME\ntest \\- does it all\n",
        "\n.SH SYNOPSIS\n\\fBtest\\fR [\\fIOPTION\\fR...] WORD\n.SH DESCRIPTION\n"
        "Does it all. .Then it ends.\n.SH OPTIONS\n",
        ".TP\n\\fB\\-\\-plain\\fR=\\fIN\\fR\nbefore all titles\n.SS Work\nSuch as\n"
        "\\fB\\-\\-queue=4\\fR.\n.TP\n\\fB\\-q\\fR, \\fB\\-\\-queue\\fR=\\fIN\\fR\n"
        "that may wait; default 64\n",
        ".SS Words\n.TP\n\\fB\\-\\-loud\\fR\na flag\n",
        ".SH NOTES\nIt isn\\(aqt \\e\\-all.\n.TP\n\\fBitem\\fR\nof a list\n"
        ".RS\n.nf\n  as it is\n.fi\n.RE\n.PP\nMore.\n"
        ".SH EXAMPLES\n\\fBtest \\-\\-queue 4 \\-m x\\fR\n"
        ".SH ENVIRONMENT\nEach option has a variable, called \\fBTEST_PAGE_\\fR",
        ".SH EXIT STATUS\nExit status: 0.\n.SH SEE ALSO\n",
    };
    char text[8192];
    read_pages(doc, "WORD", "--options-as=man", text, sizeof text);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(text, parts[i]) != NULL, "%s\nis not in\n%s", parts[i], text);
    read_pages(doc, "WORD", "--options-as=man:is a test", text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, ".SH NAME\ntest \\- is a test\n"));
}
END_TEST

START_TEST(no_line_of_text_begins_as_a_request)
{
    char text[16384], words[700] = "Words.\v";
    for (int i = 0; i < 100; i++)
        strcat(words, ".word ");
    read_pages(words, "WORD", "--options-as=man", text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "\n\\&.word .word"));
    ck_assert_ptr_null(strstr(text, "\n.word"));
}
END_TEST

START_TEST(other_forms_are_refused)
{
    struct error err;
    CHECK_ERR(parse(doc, "WORD", "--options-as=html", &err), ERR_ARGUMENT,
              "--options-as html: expected man or table");
    CHECK_ERR(parse(doc, "WORD", "--options-as=many", &err), ERR_ARGUMENT,
              "--options-as many: expected man or table");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option_pages");
    TCase *cases = tcase_create("option_pages");
    tcase_add_test(cases, shells_get_a_table);
    tcase_add_test(cases, a_table_has_commands);
    tcase_add_test(cases, man_gets_a_page);
    tcase_add_test(cases, no_line_of_text_begins_as_a_request);
    tcase_add_test(cases, other_forms_are_refused);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
