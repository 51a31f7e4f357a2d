/* The options of a program as rows of a table. One reader makes argp's options and help of them,
 * checks values, and stores them with their defaults. A new option is one row. */
#pragma once

#include "base/error.h"
#include "base/text/option_row.h"

/* Rows that belong together, and where their values go. */
struct option_part {
    const struct option_row *rows; /* ended by a zeroed one */
    void *fields;
    /* Looks at the values together, after the whole command line; or NULL. */
    int (*finish)(void *fields, struct error *err);
};

enum { OPTION_PARTS_MAX = 24 };

/* A value that a file gives an option: its name, and where that is, "FILE, line 3". The value has
 * to last as long as the program. */
struct option_given {
    const char *name, *value, *place;
};
typedef int option_put(void *arg, const struct option_given *given, struct error *err);
/* Calls put for each value of the file, and ends with its first failure. Errors: also those of
 * reading. */
typedef int option_file(const char *path, option_put *put, void *arg, struct error *err);

struct option_program {
    const char *name; /* of a command, for the refusal of words; or NULL */
    /* "OUTRIDER_WORKER_": with this and its name in capitals, a variable of the environment gives
     * each option, before that of its row; flags are "on" or "off" there. NULL: none does.
     * Kubernetes sets variables of the services of a namespace, so no option may begin with
     * "service-" or "port-", and one that is called port has no variable but that of its row. */
    const char *variables;
    option_file *read_file;     /* reads the file that --config names; NULL: there is no --config */
    const char *doc, *args_doc; /* of argp */
    const char *example;        /* a whole command line, at the end of the first group; or NULL */
    struct option_part parts[OPTION_PARTS_MAX]; /* up to the first without rows */
    /* Takes a word that is no option, with the fields of the first part; NULL: there are none. */
    int (*take)(void *fields, char *word, struct error *err);
};

/* Stores defaults, and what is given: by the command line first, then by the environment, then by
 * the file. The last part finishes first. --help and what argp itself refuses end the process.
 * Errors: ERR_ARGUMENT; those of read, take, finish and read_file. */
int option_program_parse(const struct option_program *program, int argc, char **argv,
                         struct error *err);

/* How many words of a command line the row that `word` names takes: 1, or 2 where its value is the
 * next word; 0 where it names none. For programs that pass other options on. */
int option_rows_words(const struct option_row *rows, const char *word);

/* Stores the value of the one row of this name or letter, which must be one that takes a value.
 * Errors: ERR_NOT_FOUND there is no such row; ERR_ARGUMENT. */
int option_rows_set(const struct option_row *rows, void *fields, const char *name,
                    const char *value, struct error *err);
