/* The main function that all servers share: the options that all of them have, the way from start
 * to end, and the exit status. */
#pragma once

#include <stdbool.h>

#include "base/log.h"
#include "base/text/option_table.h"

/* ---- options ---- */

struct program_log {
    enum log_level level;
    enum log_format format;
    bool is_check; /* --check */
};

/* For the parts of a server's options: --log-level, --log-format and --check, of a struct
 * program_log. */
extern const struct option_row program_rows[];

/* Reads --pin into a struct placement_wish. */
option_read program_read_pin;

/* Reads the command line. What is wrong with it is printed as one sentence and ends the process
 * with status 2, as all that argp itself refuses. */
void program_options(const struct option_program *program, int argc, char **argv);

/* ---- from start to end ---- */

/* EX_CONFIG of sysexits.h: what was asked for cannot be, such as a model that is not there, so
 * another start with the same files and options ends the same way. */
enum { PROGRAM_NO_RESTART = 78 };

struct program {
    const char *name; /* in log lines, "outrider-worker" */
    struct program_log log;
    int stop_grace_ms; /* from SIGTERM to the end by force */
    /* Reads the files that say who may call, with --check too. NULL: there are none. */
    int (*read)(void *arg, struct error *err);
    /* Checks for --check, besides those of the command line and these files; NULL: none. */
    int (*check)(void *arg, struct error *err);
    bool meets_peers; /* open meets other processes, which may be wrong in place of our own files */
    int (*open)(void *arg, struct error *err);
    int (*run)(void *arg, struct error *err); /* until stop is called */
    void (*stop)(void *arg);                  /* from the call thread, when open has returned */
    /* After SIGHUP, from stop's thread and never after it. NULL: SIGHUP ends the process. */
    void (*reload)(void *arg);
    void (*close)(void *arg);
};

/* Opens, runs, and after a signal closes the program; returns main's status. A signal before open
 * has returned ends the process at once, with status 128 + signal. A failure is logged and ends it
 * with EXIT_FAILURE at once, without close: peers may wait for this process in a collective, and
 * closing would wait for them. Then mpirun ends the peers. A failure of read or open that no
 * restart with the same files and options can mend has the status PROGRAM_NO_RESTART. With --check
 * nothing is opened: a failure of read or check is printed as one line, with the same status. */
int program_run(const struct program *program, void *arg);
