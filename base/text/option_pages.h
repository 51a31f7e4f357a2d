/* Says in forms that other programs read which options a program has: as a page for man, and as a
 * table for the completion of shells and for programs that pass options on. Both are made of the
 * rows of the option tables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* The option, not shown in the help, that prints one of the forms and ends the process:
 *   man         a page of man(7), for which the first sentence of the doc is what the name is for
 *   man:WORDS   the same, with these words in its place
 *   table       a line for each thing that may stand on the command line, with tabs between fields:
 *                 option   --NAME  -L or -  VALUE or -  none, any, files, folders or words
 *                          WORDS or -  help
 *                 command  NAME  help
 *                 argument any or files */
#define OPTION_PAGES_OPTION "options-as"

/* Holds an option. Fields mean the same as those of struct option_row of the same name. */
struct option_page_row {
    const char *name, *value, *expected, *help;
    int letter;
    const char *const *words;
    int n_words;
    bool is_switch; /* its value is on or off */
    void (*names)(char *text, size_t size);
    const char *title, *example; /* of its group, or NULL. Rows of a group are together */
};

struct option_pages {
    const char *name; /* of the program or command, "outrider generate" */
    const char *doc, *args_doc, *variables, *example;
    const struct option_page_row *rows;
    int n;
};

/* True if the word is this option. */
bool option_pages_asked(const char *word);

/* Prints to the standard output. Errors: ERR_ARGUMENT there is no such form; ERR_NO_MEMORY. */
int option_pages_print(const struct option_pages *pages, const char *form, struct error *err);
