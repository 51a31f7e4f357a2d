/* Where a command's text comes from: its argument, a file or the standard input. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"

enum { INPUT_BYTES_MAX = 16 << 20 };

struct input {
    const char *text; /* [len], NUL-terminated */
    size_t len;
    char *owned;
};

/* argument "-" is the standard input, and so is no argument when that is not a terminal. One newline
 * at the end of a file or of the standard input is left out. `what` names the thing in messages.
 * Errors: ERR_ARGUMENT nothing given, or two things; ERR_NOT_FOUND, ERR_IO, ERR_FORMAT too long. */
int input_open(struct input *input, const char *argument, const char *file, const char *what,
               struct error *err);
void input_close(struct input *input);

/* Numbers from 0 up, separated by commas or blanks, appended to ids. Errors: ERR_ARGUMENT names the
 * option and the piece, ERR_NO_MEMORY. */
int input_ids(struct token_ids *ids, const char *option, const char *text, struct error *err);
