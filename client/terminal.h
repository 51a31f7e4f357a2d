/* What people see. Text that came from a server or a file may hold control sequences: on a terminal
 * they are shown, not obeyed. Elsewhere text passes unchanged. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum terminal_style {
    STYLE_PLAIN,
    STYLE_DIM,
    STYLE_ACCEPTED,    /* green */
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

/* Whole UTF-8 characters. On a terminal, control characters but newline and tab, and those that turn
 * the direction of writing, come out as \x1b or \u202e. */
void terminal_text(const struct terminal *terminal, const char *text, size_t len);

/* As terminal_text everywhere, newline and tab escaped too, in one line; returns the characters
 * printed. Bytes that are not UTF-8 come out as \xff. */
int terminal_quoted(const struct terminal *terminal, const char *text, size_t len);

/* Nothing without colours. */
void terminal_style(const struct terminal *terminal, enum terminal_style style);
