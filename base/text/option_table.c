/* The reader of option tables. All rows of a program become one flat array for argp, in which each
 * title has a group of its own. argp sorts the options of a group by name. */
#include "base/text/option_table.h"

#include <argp.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text/option_names.h"
#include "base/text/option_pages.h"
#include "base/text/option_value.h"

enum {
    ROWS_MAX = 256,
    GROUPS_MAX = 24,
    KEY_FIRST = 256, /* after all letters */
    KEY_PAGES = KEY_FIRST + ROWS_MAX,
    EXAMPLE_BYTES = 96
};

struct entry {
    const struct option_row *row;
    char *fields;
    int group; /* 1.. as argp counts */
    bool is_given;
};

struct reader {
    const struct option_program *program;
    struct entry entries[ROWS_MAX];
    int n;
    const struct option_row *groups[GROUPS_MAX]; /* [group]; NULL: has no title */
    int n_groups;
    const char *config; /* --config */
    char example[EXAMPLE_BYTES];
    struct argp_option options[2 * ROWS_MAX + GROUPS_MAX + 3];
    struct error *err;
};

/* The option of every program that reads a file of options. */
static const struct option_row config_rows[] = {
    OPTION_GROUP("Before a start", "--check"),
    {"config", 0, "FILE", OPTION_FIELD(struct reader, config),
     .help =
         "a YAML file of options, such as a line \"log-level: debug\"; the command line and the "
         "environment go before it"},
    {0},
};

static bool is_end(const struct option_row *row)
{
    return !row->name && !row->group;
}

static int take_value(const struct option_row *row, char *fields, const char *text,
                      struct error *err)
{
    char name[OPTION_NAME_BYTES];
    snprintf(name, sizeof name, "--%s", row->name);
    return option_value_take(row, fields, name, text, err);
}

static int store_standards(const struct reader *reader, struct error *err)
{
    for (int i = 0; i < reader->n; i++) {
        const struct option_row *row = reader->entries[i].row;
        char number[OPTION_NAME_BYTES];
        const char *standard = option_value_standard(row, number);
        int rc = 0;
        if (standard)
            rc = option_value_read(row, reader->entries[i].fields, row->name, standard, err);
        if (rc) return rc;
    }
    return 0;
}

/* "OUTRIDER_WORKER_KV_TOKENS" */
static void write_variable(const char *prefix, const char *name, char out[OPTION_NAME_BYTES])
{
    snprintf(out, OPTION_NAME_BYTES, "%s%s", prefix, name);
    for (char *at = out; *at; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
}

/* Kubernetes sets ..._PORT for a service. */
static bool has_variable(const struct option_program *program, const struct option_row *row)
{
    return program->variables && strcmp(row->name, "port") != 0;
}

static bool is_set(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text;
}

static int read_environment(struct reader *reader, struct error *err)
{
    const char *prefix = reader->program->variables;
    for (int i = 0; i < reader->n; i++) {
        struct entry *entry = &reader->entries[i];
        const char *variable = entry->row->variable;
        char own[OPTION_NAME_BYTES] = "";
        if (has_variable(reader->program, entry->row))
            write_variable(prefix, entry->row->name, own);
        if (own[0] && is_set(own)) variable = own;
        if (!variable || !is_set(variable) || entry->is_given) continue;
        int rc = option_value_take(entry->row, entry->fields, variable, getenv(variable), err);
        if (rc) return rc;
        entry->is_given = true;
    }
    return 0;
}

static struct entry *find_name(struct reader *reader, const char *name)
{
    for (int i = 0; i < reader->n; i++) {
        const struct option_row *row = reader->entries[i].row;
        bool is_old = row->old_name && strcmp(row->old_name, name) == 0;
        if (is_old || strcmp(row->name, name) == 0) return &reader->entries[i];
    }
    return NULL;
}

static int refuse_key(const struct reader *reader, const struct option_given *given,
                      struct error *err)
{
    const char *names[ROWS_MAX];
    int n = 0;
    for (int i = 0; i < reader->n; i++) {
        if (!reader->entries[i].row->is_removed) names[n++] = reader->entries[i].row->name;
    }
    const char *nearest = option_names_nearest(given->name, names, n);
    return error_set(err, ERR_ARGUMENT, "%s: '%.60s' is not an option%s%s%s --help", given->place,
                     given->name, nearest ? "; do you mean " : "", nearest ? nearest : "",
                     nearest ? "? See" : "; see");
}

/* YAML's other words for on and off. */
static const char *switch_word(const char *text)
{
    static const char *const ons[] = {"true", "yes"}, *const offs[] = {"false", "no"};
    for (int i = 0; i < 2; i++) {
        if (strcasecmp(text, ons[i]) == 0) return "on";
        if (strcasecmp(text, offs[i]) == 0) return "off";
    }
    return text;
}

/* Takes a value of the file unless the command line or the environment has given the option. */
static int put_value(void *arg, const struct option_given *given, struct error *err)
{
    struct reader *reader = arg;
    const struct entry *entry = find_name(reader, given->name);
    char label[OPTION_NAME_BYTES * 4];
    if (!entry) return refuse_key(reader, given, err);
    if (entry->fields == (char *)reader) {
        return error_set(err, ERR_ARGUMENT, "%s: a file cannot name another one", given->place);
    }
    if (entry->is_given) return 0;
    bool is_switch = !entry->row->value || entry->row->kind == OPTION_BOOL;
    snprintf(label, sizeof label, "%s: %s", given->place, given->name);
    return option_value_take(entry->row, entry->fields, label,
                             is_switch ? switch_word(given->value) : given->value, err);
}

int option_rows_words(const struct option_row *rows, const char *word)
{
    for (const struct option_row *row = rows; !is_end(row); row++) {
        if (!row->name) continue;
        const char *const names[] = {row->name, row->old_name};
        for (int i = 0; i < 2 && names[i]; i++) {
            size_t len = strlen(names[i]);
            bool is_long =
                word[0] == '-' && word[1] == '-' && strncmp(word + 2, names[i], len) == 0;
            if (is_long && word[2 + len] == '=') return 1;
            if (is_long && !word[2 + len]) return row->value ? 2 : 1;
        }
        bool is_letter = row->letter && word[0] == '-' && word[1] == row->letter;
        if (is_letter) return row->value && !word[2] ? 2 : 1;
    }
    return 0;
}

int option_rows_set(const struct option_row *rows, void *fields, const char *name,
                    const char *value, struct error *err)
{
    for (const struct option_row *row = rows; !is_end(row); row++) {
        if (!row->name || !row->value) continue;
        bool is_letter = row->letter && name[0] == row->letter && !name[1];
        bool is_old = row->old_name && strcmp(row->old_name, name) == 0;
        if (is_letter || is_old || strcmp(row->name, name) == 0) {
            return take_value(row, fields, value, err);
        }
    }
    return error_set(err, ERR_NOT_FOUND, "'%.40s' is no option that takes a value", name);
}

/* ---- what argp gets ---- */

static int find_group(struct reader *reader, const struct option_row *title)
{
    for (int i = 1; i < reader->n_groups; i++) {
        if (strcmp(reader->groups[i]->group, title->group) == 0) return i;
    }
    assert(reader->n_groups < GROUPS_MAX);
    reader->groups[reader->n_groups] = title;
    return reader->n_groups++;
}

static void collect_part(struct reader *reader, const struct option_row *rows, void *fields)
{
    int group = 0;
    for (const struct option_row *row = rows; !is_end(row); row++) {
        if (row->group) {
            group = find_group(reader, row);
            continue;
        }
        assert(reader->n < ROWS_MAX);
        reader->entries[reader->n++] = (struct entry){.row = row, .fields = fields, .group = group};
    }
}

static void collect_rows(struct reader *reader)
{
    reader->n_groups = 1; /* 0: of rows before any title */
    for (const struct option_part *part = reader->program->parts; part->rows; part++)
        collect_part(reader, part->rows, part->fields);
    if (reader->program->read_file) collect_part(reader, config_rows, reader);
}

static int flags_of(const struct option_row *row)
{
    if (row->is_unlisted) return OPTION_HIDDEN | OPTION_NAMES_SUGGESTED;
    return row->is_removed ? OPTION_HIDDEN : 0;
}

static struct argp_option *add_row(struct argp_option *next, const struct option_row *row, int i,
                                   int group)
{
    *next++ = (struct argp_option){.name = row->name,
                                   .key = row->letter ? row->letter : KEY_FIRST + i,
                                   .arg = row->value,
                                   .doc = row->help,
                                   .flags = flags_of(row),
                                   .group = group};
    if (row->old_name) {
        *next++ = (struct argp_option){.name = row->old_name,
                                       .key = KEY_FIRST + i,
                                       .arg = row->value,
                                       .flags = OPTION_ALIAS | OPTION_HIDDEN,
                                       .group = group};
    }
    return next;
}

/* argp puts it after the options of its group, which is the first one that is shown. */
static struct argp_option *add_example(struct reader *reader, struct argp_option *next)
{
    int first = reader->n_groups;
    if (!reader->program->example) return next;
    for (int i = 0; i < reader->n; i++) {
        const struct entry *entry = &reader->entries[i];
        if (entry->group < first && !(flags_of(entry->row) & OPTION_HIDDEN)) first = entry->group;
    }
    snprintf(reader->example, sizeof reader->example, "Example: %s", reader->program->example);
    *next++ = (struct argp_option){
        .name = reader->example, .flags = OPTION_DOC | OPTION_NO_USAGE, .group = first + 1};
    return next;
}

static void make_options(struct reader *reader)
{
    struct argp_option *next = reader->options;
    for (int group = 0; group < reader->n_groups; group++) {
        const struct option_row *title = reader->groups[group];
        if (title) *next++ = (struct argp_option){.doc = title->group, .group = group + 1};
        for (int i = 0; i < reader->n; i++) {
            const struct entry *entry = &reader->entries[i];
            if (entry->group == group) next = add_row(next, entry->row, i, group + 1);
        }
    }
    next = add_example(reader, next);
    *next++ = (struct argp_option){
        .name = OPTION_PAGES_OPTION, .key = KEY_PAGES, .arg = "FORM", .flags = OPTION_HIDDEN};
    *next = (struct argp_option){0};
}

static struct entry *find_key(struct reader *reader, int key)
{
    if (key >= KEY_FIRST && key < KEY_FIRST + reader->n) return &reader->entries[key - KEY_FIRST];
    for (int i = 0; i < reader->n; i++) {
        if (key && reader->entries[i].row->letter == key) return &reader->entries[i];
    }
    return NULL;
}

/* ---- the help ---- */

/* "; default OUTRIDER_HTTP from the environment, or 127.0.0.1:8000" */
static void write_standard(const struct option_row *row, char *out, size_t size)
{
    char number[OPTION_NAME_BYTES];
    const char *standard = option_value_standard(row, number);
    out[0] = '\0';
    if (row->variable) {
        snprintf(out, size, "; default %s from the environment%s%s", row->variable,
                 standard ? ", or " : "", standard ? standard : "");
    } else if (standard && *standard) {
        snprintf(out, size, "; default %s", standard);
    }
}

/* "Models (such as --draft=FOLDER):" in place of a title. */
static char *fill_title(const struct reader *reader, const char *text)
{
    for (int i = 1; i < reader->n_groups; i++) {
        const struct option_row *title = reader->groups[i];
        if (strcmp(title->group, text) != 0) continue;
        size_t size = strlen(text) + (title->help ? strlen(title->help) : 0) + 16;
        char *filled = malloc(size);
        if (!filled) return NULL;
        if (title->help) {
            snprintf(filled, size, "%s (such as %s):", text, title->help);
        } else {
            snprintf(filled, size, "%s:", text);
        }
        return filled;
    }
    return strdup(text);
}

/* Says after the help how the environment gives options, with one of them as an example. */
static char *write_variables_help(const struct reader *reader)
{
    static const char text[] = "Options can be given in the environment, too, such as %s for --%s; "
                               "flags are on or off there. The command line goes first.";
    const struct option_row *row = NULL;
    char variable[OPTION_NAME_BYTES];
    for (int i = 0; i < reader->n && !row; i++) {
        if (reader->entries[i].row->value) row = reader->entries[i].row;
    }
    if (!row || !reader->program->variables) return NULL;
    write_variable(reader->program->variables, row->name, variable);
    size_t size = sizeof text + strlen(variable) + strlen(row->name);
    char *filled = malloc(size);
    if (filled) snprintf(filled, size, text, variable, row->name);
    return filled;
}

/* argp frees what it gets. */
static char *fill_help(int key, const char *text, void *input)
{
    struct reader *reader = input;
    const struct entry *entry = find_key(reader, key);
    char standard[2 * OPTION_NAME_BYTES + 40];
    if (key == ARGP_KEY_HELP_EXTRA) return write_variables_help(reader);
    if (!text) return NULL;
    if (!entry) return fill_title(reader, text);
    char *filled = option_value_fill(entry->row, text);
    write_standard(entry->row, standard, sizeof standard);
    if (!filled || !standard[0]) return filled;
    size_t len = strlen(filled), size = len + strlen(standard) + 1;
    char *whole = realloc(filled, size);
    if (!whole) free(filled);
    if (whole) snprintf(whole + len, size - len, "%s", standard);
    return whole;
}

static struct option_page_row page_row(const struct reader *reader, int i, char *help)
{
    const struct entry *entry = &reader->entries[i];
    const struct option_row *row = entry->row, *title = reader->groups[entry->group];
    return (struct option_page_row){.name = row->name,
                                    .value = row->value,
                                    .expected = row->expected,
                                    .help = help,
                                    .letter = row->letter,
                                    .words = row->words,
                                    .n_words = row->n_words,
                                    .is_switch = row->kind == OPTION_BOOL && !row->read,
                                    .names = row->names,
                                    .title = title ? title->group : NULL,
                                    .example = title ? title->help : NULL};
}

/* Prints the help in a form for other programs: a table has also what another program's help has.
 * name: argv[0] */
static int print_pages(struct reader *reader, const char *name, const char *form)
{
    const struct option_program *program = reader->program;
    struct option_page_row rows[ROWS_MAX];
    char *helps[ROWS_MAX];
    const char *slash = strrchr(name, '/');
    bool is_table = strcmp(form, "table") == 0;
    int n = 0, rc = 0;
    for (int group = 0; group < reader->n_groups; group++) {
        for (int i = 0; i < reader->n; i++) {
            const struct entry *entry = &reader->entries[i];
            bool is_shown = !entry->row->is_removed && (!entry->row->is_unlisted || is_table);
            if (entry->group != group || !is_shown) continue;
            helps[n] = fill_help(KEY_FIRST + i, entry->row->help, reader);
            if (!helps[n]) rc = error_set(reader->err, ERR_NO_MEMORY, "no memory for the help");
            rows[n] = page_row(reader, i, helps[n]);
            n++;
        }
    }
    if (!rc) {
        const struct option_pages pages = {.name = slash ? slash + 1 : name,
                                           .doc = program->doc,
                                           .args_doc = program->args_doc,
                                           .variables = program->variables,
                                           .example = program->example,
                                           .rows = rows,
                                           .n = n};
        rc = option_pages_print(&pages, form, reader->err);
    }
    while (n > 0)
        free(helps[--n]);
    return rc;
}

/* ---- the command line ---- */

static int finish(struct reader *reader)
{
    const struct option_part *parts = reader->program->parts;
    int n = 0, rc = read_environment(reader, reader->err);
    if (!rc && reader->config) {
        rc = reader->program->read_file(reader->config, put_value, reader, reader->err);
    }
    while (parts[n].rows)
        n++;
    for (int i = n - 1; i >= 0 && !rc; i--) {
        if (parts[i].finish) rc = parts[i].finish(parts[i].fields, reader->err);
    }
    return rc;
}

static int take_word(const struct reader *reader, char *word)
{
    const struct option_program *program = reader->program;
    if (program->take) return program->take(program->parts[0].fields, word, reader->err);
    if (program->name) {
        return error_set(reader->err, ERR_ARGUMENT, "'%.60s' is too much: %s takes options only",
                         word, program->name);
    }
    return error_set(reader->err, ERR_ARGUMENT, "'%.200s' is not an option; see --help", word);
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
    struct reader *reader = state->input;
    struct entry *entry = find_key(reader, key);
    int rc;
    if (entry) {
        entry->is_given = true;
        rc = take_value(entry->row, entry->fields, arg, reader->err);
    } else if (key == KEY_PAGES) {
        rc = print_pages(reader, state->argv[0], arg);
        if (!rc) argp_state_help(state, stdout, ARGP_HELP_EXIT_OK); /* ends, as after --help */
    } else if (key == ARGP_KEY_ARG) {
        rc = take_word(reader, arg);
    } else if (key == ARGP_KEY_END) {
        rc = finish(reader);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return rc ? EINVAL : 0;
}

int option_program_parse(const struct option_program *program, int argc, char **argv,
                         struct error *err)
{
    struct reader reader = {.program = program, .err = err};
    const struct argp argp = {.options = reader.options,
                              .parser = parse_key,
                              .args_doc = program->args_doc,
                              .doc = program->doc,
                              .help_filter = fill_help};
    int rc = 0;
    *err = (struct error){0};
    collect_rows(&reader);
    make_options(&reader);
    TRY(store_standards(&reader, err));
    TRY(option_names_check(&argp, argc, argv, false, err));
    error_t failure = argp_parse(&argp, argc, argv, 0, NULL, &reader);
    if (failure && !err->code) {
        error_set(err, ERR_ARGUMENT, "the command line cannot be read: %s", strerror(failure));
    }
    rc = failure ? err->code : 0;
out:
    return rc;
}
