/* Lines that the user types, edited and with a history on a terminal, plain ones of a pipe; and
 * keys while an answer comes. Owned by the main thread. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/text/buffer.h"
#include "client/server.h"

struct lines;

enum line_end {
    LINE_READ,
    LINE_CANCELLED, /* Ctrl-C: what was typed is to be forgotten */
    LINE_END        /* Ctrl-D on an empty line, or the input's end */
};

/* Called for Ctrl-G while a line is edited; the cursor is at the beginning of an empty line. */
typedef void lines_key_fn(void *arg);

struct lines_options {
    struct server *server; /* kept: whose interrupts end the waiting */
    const char *history;   /* file; NULL = none is kept */
    lines_key_fn *on_key;  /* kept, with its argument */
    void *arg;
};

/* True if both the input and the output are a terminal. */
bool lines_are_edited(void);

/* Reads the history. Errors: ERR_NO_MEMORY, ERR_IO the terminal cannot be used. */
int lines_open(struct lines **lines, const struct lines_options *options, struct error *err);
/* Restores the terminal, and writes the history; accepts NULL. */
void lines_close(struct lines *lines);

/* Reads a line into *line, without its newline and ended by a NUL byte that len does not count.
 * Errors: ERR_CANCELLED a signal came; ERR_IO; ERR_NO_MEMORY. */
int lines_read(struct lines *lines, const char *prompt, struct buffer *line, enum line_end *end,
               struct error *err);
/* Puts a message into the history. */
void lines_remember(struct lines *lines, const char *text);

/* While an answer comes: keys are not shown, and Ctrl-C is one of them. What is typed else is kept
 * for the next line. */
void lines_begin_keys(struct lines *lines);
void lines_end_keys(struct lines *lines);
/* Takes the keys pressed since the last call. *n_toggles: how often Ctrl-G was one of them.
 * Errors: ERR_CANCELLED Ctrl-C was. */
int lines_look(struct lines *lines, int *n_toggles, struct error *err);

/* Writes the path of a file that keeps the state of a program, "$XDG_STATE_HOME/outrider/NAME", and
 * makes its folder. False: there is no home, or the folder cannot be made. */
bool lines_state_path(char *path, size_t size, const char *name);
