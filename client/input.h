/* Where a command's text comes from: its argument, a file or the standard input. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/option_table.h"
#include "model/tokenizer/tokenizer.h"

enum { INPUT_BYTES_MAX = 16 << 20 };

struct input {
    const char *text; /* [len], NUL-terminated */
    size_t len;
    char *owned; /* what input_close frees; NULL when text is the argument */
};

/* The standard input is read when the argument is "-", or when neither argument nor file is given
 * and the standard input is not a terminal. One newline at the end of a file or of the standard
 * input is left out. `what` is the name of the text in messages. Errors: ERR_ARGUMENT nothing
 * given, or both argument and file; ERR_NOT_FOUND, ERR_IO, ERR_FORMAT too long. */
int input_open(struct input *input, const char *argument, const char *file, const char *what,
               struct error *err);
void input_close(struct input *input);

/* Appends to ids the numbers of text, which are at least 0 and separated by commas or blanks.
 * Errors: ERR_ARGUMENT, whose text names the option and the wrong number; ERR_NO_MEMORY. */
int input_ids(struct token_ids *ids, const char *option, const char *text, struct error *err);
/* Does so for a row of an option table, whose field is a struct token_ids. */
option_read input_read_ids;

/* Appends to ids the token ids of a JSON list, the value of `key` at `place`. NULL: there is no
 * list. Errors: ERR_FORMAT it is no list, or an item is no token id; ERR_NO_MEMORY. */
int input_json_ids(struct token_ids *ids, const json_t *list, const char *key, const char *place,
                   struct error *err);
