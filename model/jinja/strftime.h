/* Dates as Python's strftime writes them, in English and in UTC. */
#pragma once

#include "base/text/buffer.h"
#include "model/jinja/value.h"

/* Checks that strftime_print knows each directive ("%d", "%-d", ...) of a format.
 * Errors: ERR_UNSUPPORTED, which names the first one that is not. */
int strftime_check(struct string format, struct error *err);

/* Appends the time now_s, in seconds since 1970. Errors: as strftime_check, ERR_NO_MEMORY;
 * ERR_ARGUMENT a year that has no date. */
int strftime_print(struct buffer *out, struct string format, int64_t now_s, struct error *err);
