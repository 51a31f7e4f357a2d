/* Programs that run to their end before something is started. */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* Writes the path of a program beside this one. Errors: ERR_NOT_FOUND. */
int helper_find(char *path, size_t size, const char *name, struct error *err);

/* Runs words and keeps what they print, cut to the size, with its end as a zero. *status: of the
 * program's end, or 128 + signal. Errors: ERR_IO; ERR_TIMEOUT after two minutes. */
int helper_run(char *const words[], char *text, size_t size, int *status, struct error *err);
