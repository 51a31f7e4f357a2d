/* Lists of names that options take, with commas between them: "session,datastore=FILE". */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { NAME_LIST_NAMES_MAX = 16 };

struct name_list_name {
    const char *name;
    bool takes_file; /* "name=FILE"; the name of a file has no comma */
};

/* The value of an option that takes a list of names. */
struct name_list {
    const char *option; /* "--lookup", for errors */
    const struct name_list_name *names;
    int n;            /* 1 .. NAME_LIST_NAMES_MAX */
    bool may_be_none; /* "none" is a list without names */
};

struct name_list_item {
    int index;        /* in names */
    const char *file; /* [file_len] of the text that was read; NULL: it takes none */
    size_t file_len;  /* > 0 where there is one */
};

/* Reads text into items[NAME_LIST_NAMES_MAX], *n of them, each name once, in the order of the text.
 * Errors: ERR_ARGUMENT a name that is not known, or is there twice, or lacks its file. */
int name_list_read(const struct name_list *list, const char *text, struct name_list_item *items,
                   int *n, struct error *err);
