/* The options of `outrider serve`: its own, and those of outrider-worker and outrider-coordinator,
 * which it asks for theirs and passes on by their own names. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

enum { SERVE_PATH_BYTES = 4096, SERVE_WORDS_MAX = 512 };

/* The command line of a program, ended by NULL. */
struct serve_words {
    char *words[SERVE_WORDS_MAX + 1];
    int n;
};

struct serve_options {
    const char *model, *host, *log;
    int port, n_ranks;
    enum log_level log_level;
    bool is_check;
    char worker[SERVE_PATH_BYTES], coordinator[SERVE_PATH_BYTES], group[SERVE_PATH_BYTES];
    struct serve_words for_worker, for_coordinator; /* what was passed on, without the program */
};

/* Reads the command line, the environment and --config. options is zeroed, and the words last as
 * long as the process. Errors: ERR_ARGUMENT, ERR_NOT_FOUND a program is missing, and others. */
int serve_options_read(struct serve_options *options, int argc, char **argv, struct error *err);

/* Adds a word that is printed as by printf. Errors: ERR_ARGUMENT there are too many;
 * ERR_NO_MEMORY. */
int serve_words_add(struct serve_words *words, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The value of the last word "--NAME=VALUE" of this name; NULL: there is none. */
const char *serve_words_value(const struct serve_words *words, const char *name);

/* The value that the worker, or the coordinator, takes for an option that was passed on, or that
 * the environment gives it; NULL: its default. */
const char *serve_value_of_worker(const struct serve_options *options, const char *name);
const char *serve_value_of_coordinator(const struct serve_options *options, const char *name);
