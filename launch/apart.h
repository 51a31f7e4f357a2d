/* Programs that are started apart from this one, and end with it. They can be started beside
 * threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

enum { APART_STATUS_BYTES = 24, APART_NOWHERE = -1 };

/* Writes the path of the program of this name that is in this program's own folder. Errors:
 * ERR_NOT_FOUND. */
int apart_find(char *path, size_t size, const char *name, struct error *err);

/* Starts argv in a process group of its own, which it leads, without input, with default signals.
 * It gets SIGTERM when the calling thread ends, however that happens, and at whatever moment.
 * output, errors: descriptors that it writes to, or APART_NOWHERE. Errors: ERR_IO no process, or
 * argv[0] cannot be run; *pid is 0 then. */
int apart_start(pid_t *pid, char *const argv[], int output, int errors, struct error *err);
/* As apart_start. *pipe: what it prints, errors too, to be closed; -1 after an error. */
int apart_start_piped(pid_t *pid, char *const argv[], int *pipe, struct error *err);

/* True once the program has ended, with its status, and after that; *status is kept then. Members
 * of its group may still run. */
bool apart_has_ended(pid_t pid, int *status);
/* Status of a shell from that of waitpid: 128 + the signal. */
int apart_status(int how);
/* "status 2" or "signal 9". Returns text. */
const char *apart_say_status(int status, char text[APART_STATUS_BYTES]);

/* Sends SIGTERM to the program's group and waits until all of it has ended; after 10 s it sends
 * SIGKILL. pid 0: there is none. */
void apart_stop(pid_t pid);
