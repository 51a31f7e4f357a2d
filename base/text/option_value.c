/* Reads texts as the values of rows of an option table. */
#include "base/text/option_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/options.h"

#define NAMES "NAMES" /* in texts of a row; see struct option_row */

enum { NAMES_BYTES = 1024 };

char *option_value_fill(const struct option_row *row, const char *text)
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
    char *expected = option_value_fill(row, row->expected);
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

int option_value_read(const struct option_row *row, char *fields, const char *option,
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

int option_value_take(const struct option_row *row, char *fields, const char *option,
                      const char *text, struct error *err)
{
    int rc = option_value_read(row, fields, option, text, err);
    bool is_off = row->kind == OPTION_BOOL && !*(bool *)(fields + row->field);
    if (!rc && row->also && !is_off) *(bool *)(fields + row->also) = true;
    return rc;
}

const char *option_value_standard(const struct option_row *row, char number[OPTION_NAME_BYTES])
{
    if (!row->standard_int) return row->standard;
    snprintf(number, OPTION_NAME_BYTES, "%d", row->standard_int);
    return number;
}
