/* Programs that are started apart from this one, and end with it. By posix_spawn, so that they can
 * be started beside threads. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

/* Writes the path of the program of this name that is in this program's own folder. Errors:
 * ERR_NOT_FOUND. */
int apart_find(char *path, size_t size, const char *name, struct error *err);

/* Starts argv in a process group of its own, without input, with default signals. It gets SIGTERM
 * when the calling thread ends, however that happens. *output: a pipe with what it prints, errors
 * too, to be closed; with output NULL its errors go where ours go, and nothing else goes anywhere.
 * Errors: ERR_NO_MEMORY, ERR_IO; *pid is 0 then. */
int apart_start(pid_t *pid, char *const argv[], int *output, struct error *err);
