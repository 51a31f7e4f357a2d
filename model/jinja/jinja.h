/* Jinja, the language of chat templates, as far as templates of models use it: the meaning and the
 * bytes are those of Python's jinja2 3.1 with the settings of transformers (trim_blocks,
 * lstrip_blocks, loop controls, the immutable sandbox, and its tojson, raise_exception and
 * strftime_now). A template sees the values that it is given and nothing else.
 *
 * There are for (if, else, loop.*, but not recursive), if, set (also of blocks, tuples and
 * namespaces), macro, call, filter, with, raw, break, continue and generation; all operators and
 * literals but "%" on texts; slices and tests; the filters, methods and functions in the tables of
 * filters.c, methods.c, methods_text.c and call.c. Everything else is refused when the template is
 * read, with its name and its line.
 *
 * Where a template could see a difference to jinja2:
 *   - whole numbers have 64 bits, and a result that needs more is refused
 *   - what is a generator or a range in Python is a list; methods cannot be printed
 *   - keys of dicts are texts, numbers, true, false and none
 *   - a text that is marked as safe loses the mark in filters and methods
 *   - a name that the template sets hides a given value from then on; in jinja2 it is already
 *     hidden in loops and blocks before
 *   - strftime_now prints the time of UTC */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/text/buffer.h"
#include "model/jinja/limits.h"

struct jinja;

/* Reads a template. origin names it in errors. Immutable after that; several threads may render it
 * at a time.
 * Errors: ERR_FORMAT the template is wrong, ERR_UNSUPPORTED it uses something that there is not,
 * both with the line; ERR_NO_MEMORY. */
int jinja_parse(struct jinja **jinja, const char *source, size_t len, const char *origin,
                struct error *err);
/* Accepts NULL. */
void jinja_close(struct jinja *jinja);

/* Replaces out's content with the text of the template for these values, an object.
 * now_s: seconds since 1970, for strftime_now, which prints the time of UTC.
 * Errors: ERR_ARGUMENT the template refuses the values (raise_exception) or cannot work with them;
 * ERR_EXHAUSTED a limit is reached; ERR_NO_MEMORY. */
int jinja_render(const struct jinja *jinja, const json_t *values, int64_t now_s,
                 const struct jinja_limits *limits, struct buffer *out, struct error *err);
