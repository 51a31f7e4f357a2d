/* Values of a row of an option table, for its readers. */
#pragma once

#include <stddef.h>

#include "base/text/option_row.h"

enum { OPTION_NAME_BYTES = 64 };

/* text with the names of the row in place of NAMES, in memory of its own; NULL without memory. */
char *option_value_fill(const struct option_row *row, const char *text);

/* The default of the row, or NULL. */
const char *option_value_standard(const struct option_row *row, char number[OPTION_NAME_BYTES]);

/* Stores a value. option: what errors call the option. Errors: ERR_ARGUMENT, those of row->read. */
int option_value_read(const struct option_row *row, char *fields, const char *option,
                      const char *text, struct error *err);

/* As option_value_read, for what was given, which is not the default. text: NULL for a flag of the
 * command line. */
int option_value_take(const struct option_row *row, char *fields, const char *option,
                      const char *text, struct error *err);
