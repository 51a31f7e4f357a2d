/* The options of a program as rows of a table. One reader makes argp's options and help of them,
 * checks values, and stores them with their defaults. A new option is one row. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* By the type of the field that a value goes to; see OPTION_FIELD. */
enum option_kind {
    OPTION_BY_READ, /* the row's own function reads it */
    OPTION_BOOL,    /* "on" or "off"; true where the option takes no value */
    OPTION_INT,     /* within [least, most] */
    OPTION_U64,
    OPTION_WORD, /* one of the words, as an enum: least for the first one, and so on */
    OPTION_FLOAT,
    OPTION_DOUBLE, /* as precise as a float */
    OPTION_TEXT    /* kept, not copied */
};

/* Reads a value into a field, and says what is wrong with it. option: "--queue", or the name of the
 * environment variable that the value is of. Errors: ERR_ARGUMENT and others. */
typedef int option_read(void *field, const char *option, const char *text, struct error *err);

struct option_row {
    const char *name;  /* without "--" */
    int letter;        /* 0: none */
    const char *value; /* what the help calls it, "N"; NULL: the option takes none */
    enum option_kind kind;
    size_t field; /* its offset in the fields of the rows */
    double least, most;
    const char *const *words; /* [n_words] */
    int n_words;
    bool is_inverted; /* of a bool: "on" makes it false */

    /* For texts and words: a wrong one is refused as "--name TEXT: expected ..." */
    const char *expected;
    bool (*is_known)(const char *text);
    /* Writes names that are known only at run time, which take the place of NAMES in `expected` and
     * in the help. */
    void (*names)(char *text, size_t size);

    option_read *read;    /* in place of all the above but field */
    const char *standard; /* the default, as on a command line; the reader says it in the help */
    int standard_int;     /* the same as a number, other than 0 */
    const char *variable; /* of the environment, which says the default if it is not empty */
    size_t also;          /* offset of a bool that becomes true, too; 0: none */
    const char *old_name; /* goes on to work for one version, and is not in the help */
    bool is_removed;      /* the same of the whole option, whose reader notes that it was given */
    bool is_unlisted;     /* is not in the help, because another program's help has it */
    const char *help;

    const char *group; /* no option: the rows after it belong to this title; help: an example */
};

/* Kind and offset of a field of a struct. */
#define OPTION_FIELD(type, member) \
    .kind = _Generic(((type *)0)->member, bool : OPTION_BOOL, int : OPTION_INT, unsigned : \
                     OPTION_WORD, uint64_t : OPTION_U64, float : OPTION_FLOAT,             \
                     double : OPTION_DOUBLE, const char * : OPTION_TEXT),                  \
    .field = offsetof(type, member)
#define OPTION_READ(type, member, function) .read = function, .field = offsetof(type, member)
/* Begins a group, or goes on with the one of the same title. */
#define OPTION_GROUP(title, example)    \
    {                                   \
        .group = title, .help = example \
    }

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
    struct option_part parts[OPTION_PARTS_MAX]; /* up to the first without rows */
    /* Takes a word that is no option, with the fields of the first part; NULL: there are none. */
    int (*take)(void *fields, char *word, struct error *err);
};

/* Stores defaults, then what the command line says, for other options the environment, and for those
 * that neither gives the file; the last part finishes first. --help and what argp itself refuses
 * end the process. Errors: ERR_ARGUMENT; those of read, take, finish and read_file. */
int option_program_parse(const struct option_program *program, int argc, char **argv,
                         struct error *err);

/* Prints the options that other programs may pass on, a line each, with tabs between name, letter
 * and the name of the value, either of which may be empty. */
void option_program_list(const struct option_program *program);

/* How many words of a command line the row that `word` names takes: 1, or 2 where its value is the
 * next word; 0 where it names none. For programs that pass other options on. */
int option_rows_words(const struct option_row *rows, const char *word);

/* Stores the value of the one row of this name or letter, which must be one that takes a value.
 * Errors: ERR_NOT_FOUND there is no such row; ERR_ARGUMENT. */
int option_rows_set(const struct option_row *rows, void *fields, const char *name,
                    const char *value, struct error *err);
