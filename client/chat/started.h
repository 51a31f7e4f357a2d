/* A server that a command starts for itself, by `outrider serve`, and ends with itself. Owned by
 * the main thread. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "client/server.h"

enum { STARTED_PATH_BYTES = 96, STARTED_WORDS_MAX = 256 };

/* A zeroed one is valid to stop. */
struct started {
    pid_t pid; /* of its group of processes, too; 0 = none */
    char folder[STARTED_PATH_BYTES], address[STARTED_PATH_BYTES + 8], log[STARTED_PATH_BYTES + 8];
};

/* Words after "--", for `outrider serve`; started_words_take takes them away from argv. */
struct started_words {
    int n;
    char *words[STARTED_WORDS_MAX]; /* NULL after the last one */
};
int started_words_take(struct started_words *words, int *argc, char **argv, struct error *err);

/* Makes the folder of a private socket and a log, so that `address` is known before the
 * connection is opened. Errors: ERR_IO. */
int started_prepare(struct started *started, struct error *err);

/* Runs `outrider serve MODEL`, with more words, and waits until it serves and has measured what
 * it plans by. What it says is shown in one line of stderr, if that is a terminal, which is gone at
 * the end. Errors: ERR_IO it ended before it served, with the last that it said; ERR_TIMEOUT;
 * ERR_CANCELLED interrupted. */
int started_run(struct started *started, const char *model, const struct started_words *more,
                struct server *server, struct error *err);
/* True while it runs, or where there is none. */
bool started_is_there(const struct started *started);

/* Ends it and all its processes, and removes the folder. Disconnects `server`, for which it would
 * wait otherwise. */
void started_stop(struct started *started, struct server *server);
