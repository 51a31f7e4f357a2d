/* A row of an option table: the name of an option, what its values are, and where they go. */
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
