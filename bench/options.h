/* The command line of a benchmark as one table: each option with its help and the variable that its
 * value goes to. A wrong option or value ends the program with one sentence and status 2. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/backend/open.h"

struct bench_option {
    const char *name; /* NULL ends the table */
    int letter;       /* 0: none */
    const char *arg;  /* NULL: a flag */
    const char *help;
    int least, most; /* of numbers */

    /* Where the value goes: one of these is set. */
    const char **text;
    bool *flag;
    int *number;
    float *fraction;
    struct {
        int32_t *values;
        int *n;
        int n_max;
    } list;
    struct {
        int *index;
        const char *const *names;
        int n;
    } word; /* one of n names */
};

struct bench_command {
    const char *doc; /* first line of the help, or NULL */
    const struct bench_option *options;
    struct backend_options *backend; /* adds the options that choose a backend; NULL: none */
};

/* Stores the values that the command line gives and leaves the others as they are. *backend is set
 * to its defaults first. */
void bench_parse(int argc, char **argv, const struct bench_command *command);
