/* Files of JSON that an engine keeps for the next start (times_file.h, proof_file.h). */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* Writes root, which it takes over, so that there is a whole file or none; makes the file's folder.
 * NULL: there was no memory for it. Errors: ERR_NO_MEMORY, ERR_IO, ERR_ARGUMENT the path is too
 * long. */
int kept_json_write(const char *path, json_t *root, struct error *err);
