/* Literals as Python writes and prints them. */
#pragma once

#include "base/text/buffer.h"
#include "model/jinja/value.h"

/* Reads a string literal; text: the characters between its quotes.
 * Errors: ERR_FORMAT, ERR_UNSUPPORTED (\N{...}), those of the heap. */
int literal_string(struct heap *heap, struct string text, struct string *out, struct error *err);

/* The number at the start of text, which begins with a digit, and its bytes.
 * Errors: ERR_FORMAT it does not fit into 64 bits. */
int literal_number(struct string text, size_t *len, struct value *out, struct error *err);

enum { LITERAL_FLOAT_BYTES = 32 };
/* repr() of Python: the shortest text that gives the same number, as "1.5", "2.0", "1e+16". */
void literal_print_float(double number, char text[LITERAL_FLOAT_BYTES]);

/* Appends str() or, where is_quoted, repr() of a value. Errors: ERR_NO_MEMORY; ERR_EXHAUSTED more
 * than `most` bytes; ERR_ARGUMENT a value that has no text. */
int literal_print(struct buffer *out, const struct value *v, bool is_quoted, size_t most,
                  struct error *err);
