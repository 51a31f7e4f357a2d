/* Output for people. Text from a server or a file may hold control sequences, so that on a terminal
 * they are printed in escaped form. Elsewhere text passes unchanged. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum terminal_style {
    STYLE_PLAIN,
    STYLE_DIM,
    STYLE_ACCEPTED,    /* green */
    STYLE_SIBLING,     /* green, underlined */
    STYLE_REJECTED,    /* red, struck through */
    STYLE_REPLACEMENT, /* blue */
    STYLE_BONUS        /* cyan */
};

struct terminal {
    FILE *out;
    bool is_terminal;
    bool has_colors; /* a terminal that is not "dumb", and NO_COLOR is not set */
};

struct terminal terminal_of(FILE *out);

/* True if both streams go to the same file, pipe or terminal. */
bool terminal_share_file(FILE *a, FILE *b);

/* Prints text, which must consist of whole UTF-8 characters. On a terminal, control characters
 * other than newline and tab, and characters that change the direction of writing, are printed in
 * escaped form, such as \x1b or \u202e. */
void terminal_text(const struct terminal *terminal, const char *text, size_t len);

/* Prints text in one line and always escaped, newline and tab too; returns the number of characters
 * printed. Bytes that are not UTF-8 are printed as \xff. */
int terminal_quoted(const struct terminal *terminal, const char *text, size_t len);

/* Prints a line of a table on stdout: a name, and what it is, escaped as by terminal_quoted. */
void terminal_row(const char *name, const char *text);
void terminal_row_number(const char *name, int number);

/* Prints nothing where there are no colours. */
void terminal_style(const struct terminal *terminal, enum terminal_style style);
