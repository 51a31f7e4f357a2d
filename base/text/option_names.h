/* Names that were mistyped: what was meant by a word, and the options of a command line before argp
 * reads it, because argp knows no better than "unrecognized option". */
#pragma once

#include <argp.h>
#include <stdbool.h>

#include "base/error.h"

/* With OPTION_HIDDEN, of an argp_option: it is not in the help, but may be what was meant. argp
 * gives this flag no sense for a hidden option. */
#define OPTION_NAMES_SUGGESTED OPTION_NO_USAGE

/* The one of n names (the first of equals) that is nearest to the word: at most a third of its
 * letters are missing, too much, different or exchanged with a neighbour. NULL when none is. */
const char *option_names_nearest(const char *word, const char *const *names, int n);

/* Looks for the first long option that the argp and its children do not have, and refuses it with
 * the name that may be meant; --host and --port with the option that takes both. Values are left
 * out, and everything after "--". Where no option is called -h, -h becomes --help. in_order: only
 * the words before the first that is no option, as of argp's ARGP_IN_ORDER. Errors:
 * ERR_ARGUMENT. */
int option_names_check(const struct argp *argp, int argc, char **argv, bool in_order,
                       struct error *err);
