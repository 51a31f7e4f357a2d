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

#include "base/text/option_names.h"
#include "base/text/options.h"

#define NAMES "NAMES" /* in texts of a row; see struct option_row */

enum {
    ROWS_MAX = 128,
    GROUPS_MAX = 24,
    KEY_FIRST = 256, /* after all letters */
    NAME_BYTES = 64,
    NAMES_BYTES = 1024
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
    struct argp_option options[2 * ROWS_MAX + GROUPS_MAX + 1];
    struct error *err;
};

static bool is_end(const struct option_row *row)
{
    return !row->name && !row->group;
}

/* ---- values ---- */

/* text with the names in place of NAMES, in memory of its own; NULL without memory. */
static char *fill_names(const struct option_row *row, const char *text)
{
    char names[NAMES_BYTES] = "";
    const char *at = row->names ? strstr(text, NAMES) : NULL;
    if (!at) return strdup(text);
    row->names(names, sizeof names);
    size_t size = strlen(text) + strlen(names) + 1;
    char *filled = malloc(size);
    if (!filled) return NULL;
    snprintf(filled, size, "%.*s%s%s", (int)(at - text), text, names, at + strlen(NAMES));
    return filled;
}

static int refuse_unexpected(const struct option_row *row, const char *option, const char *text,
                             struct error *err)
{
    char *expected = fill_names(row, row->expected);
    error_set(err, ERR_ARGUMENT, "%s %.200s: expected %s", option, text,
              expected ? expected : row->expected);
    free(expected);
    return ERR_ARGUMENT;
}

static int read_word(const struct option_row *row, void *field, const char *option,
                     const char *text, struct error *err)
{
    int index = 0;
    if (options_word(&index, option, text, row->words, row->n_words, err)) {
        return row->expected ? refuse_unexpected(row, option, text, err) : ERR_ARGUMENT;
    }
    *(unsigned *)field = (unsigned)index + (unsigned)row->least;
    return 0;
}

static int read_bool(const struct option_row *row, void *field, const char *option,
                     const char *text, struct error *err)
{
    static const char *const words[] = {"off", "on"};
    int word = 1;
    if (text && options_word(&word, option, text, words, 2, err)) return ERR_ARGUMENT;
    *(bool *)field = (word == 1) != row->is_inverted;
    return 0;
}

static int read_text(const struct option_row *row, void *field, const char *option,
                     const char *text, struct error *err)
{
    if (row->is_known && !row->is_known(text)) return refuse_unexpected(row, option, text, err);
    *(const char **)field = text;
    return 0;
}

static int read_double(const struct option_row *row, double *field, const char *option,
                       const char *text, struct error *err)
{
    float value = 0;
    if (options_float(&value, option, text, (float)row->least, (float)row->most, err)) {
        return ERR_ARGUMENT;
    }
    *field = (double)value;
    return 0;
}

static int read_value(const struct option_row *row, char *fields, const char *option,
                      const char *text, struct error *err)
{
    void *field = fields + row->field;
    if (row->read) return row->read(field, option, text, err);
    switch (row->kind) {
    case OPTION_BOOL:
        return read_bool(row, field, option, text, err);
    case OPTION_INT:
        return options_int(field, option, text, (int)row->least, (int)row->most, err);
    case OPTION_U64:
        return options_u64(field, option, text, err);
    case OPTION_WORD:
        return read_word(row, field, option, text, err);
    case OPTION_FLOAT:
        return options_float(field, option, text, (float)row->least, (float)row->most, err);
    case OPTION_DOUBLE:
        return read_double(row, field, option, text, err);
    case OPTION_TEXT:
        return read_text(row, field, option, text, err);
    case OPTION_BY_READ:
        break;
    }
    return error_set(err, ERR_ARGUMENT, "%s has no field", option);
}

/* Takes what was given, and not the default. text: NULL for a flag of the command line. */
static int take_given(const struct option_row *row, char *fields, const char *option,
                      const char *text, struct error *err)
{
    int rc = read_value(row, fields, option, text, err);
    bool is_off = row->kind == OPTION_BOOL && !*(bool *)(fields + row->field);
    if (!rc && row->also && !is_off) *(bool *)(fields + row->also) = true;
    return rc;
}

static int take_value(const struct option_row *row, char *fields, const char *text,
                      struct error *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "--%s", row->name);
    return take_given(row, fields, name, text, err);
}

/* The default of the row, or NULL. */
static const char *standard_of(const struct option_row *row, char number[NAME_BYTES])
{
    if (!row->standard_int) return row->standard;
    snprintf(number, NAME_BYTES, "%d", row->standard_int);
    return number;
}

static int store_standards(const struct reader *reader, struct error *err)
{
    for (int i = 0; i < reader->n; i++) {
        const struct option_row *row = reader->entries[i].row;
        char number[NAME_BYTES];
        const char *standard = standard_of(row, number);
        int rc = 0;
        if (standard) rc = read_value(row, reader->entries[i].fields, row->name, standard, err);
        if (rc) return rc;
    }
    return 0;
}

/* "OUTRIDER_WORKER_KV_TOKENS" */
static void write_variable(const char *prefix, const char *name, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s%s", prefix, name);
    for (char *at = out; *at; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
}

static bool is_set(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text;
}

static int read_environment(const struct reader *reader, struct error *err)
{
    const char *prefix = reader->program->variables;
    for (int i = 0; i < reader->n; i++) {
        const struct entry *entry = &reader->entries[i];
        const char *variable = entry->row->variable;
        char own[NAME_BYTES];
        int rc = 0;
        if (prefix) write_variable(prefix, entry->row->name, own);
        if (prefix && is_set(own)) variable = own;
        if (variable && is_set(variable) && !entry->is_given) {
            rc = take_given(entry->row, entry->fields, variable, getenv(variable), err);
        }
        if (rc) return rc;
    }
    return 0;
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

static void collect_rows(struct reader *reader)
{
    reader->n_groups = 1; /* 0: of rows before any title */
    for (const struct option_part *part = reader->program->parts; part->rows; part++) {
        int group = 0;
        for (const struct option_row *row = part->rows; !is_end(row); row++) {
            if (row->group) {
                group = find_group(reader, row);
                continue;
            }
            assert(reader->n < ROWS_MAX);
            reader->entries[reader->n++] =
                (struct entry){.row = row, .fields = part->fields, .group = group};
        }
    }
}

static struct argp_option *add_row(struct argp_option *next, const struct option_row *row, int i,
                                   int group)
{
    *next++ = (struct argp_option){.name = row->name,
                                   .key = row->letter ? row->letter : KEY_FIRST + i,
                                   .arg = row->value,
                                   .doc = row->help,
                                   .flags = row->is_removed ? OPTION_HIDDEN : 0,
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
    char number[NAME_BYTES];
    const char *standard = standard_of(row, number);
    out[0] = '\0';
    if (row->variable) {
        snprintf(out, size, "; default %s from the environment%s%s", row->variable,
                 standard ? ", or " : "", standard ? standard : "");
    } else if (standard) {
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
    char variable[NAME_BYTES];
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
    char standard[2 * NAME_BYTES + 40];
    if (key == ARGP_KEY_HELP_EXTRA) return write_variables_help(reader);
    if (!text) return NULL;
    if (!entry) return fill_title(reader, text);
    char *filled = fill_names(entry->row, text);
    write_standard(entry->row, standard, sizeof standard);
    if (!filled || !standard[0]) return filled;
    size_t len = strlen(filled), size = len + strlen(standard) + 1;
    char *whole = realloc(filled, size);
    if (!whole) free(filled);
    if (whole) snprintf(whole + len, size - len, "%s", standard);
    return whole;
}

/* ---- the command line ---- */

static int finish(const struct reader *reader)
{
    const struct option_part *parts = reader->program->parts;
    int n = 0, rc = read_environment(reader, reader->err);
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
