/* Values of command-line options, each checked once. A wrong value is refused in one sentence that
 * names the option, the value and what is allowed. argp parses the command line itself. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* Decimal integer within [least, most]; no blanks or suffixes, and no sign but '-'.
 * Errors: ERR_ARGUMENT, as of all functions here. */
int options_int(int *out, const char *option, const char *text, int least, int most,
                struct error *err);
int options_u64(uint64_t *out, const char *option, const char *text, struct error *err);
/* Finite decimal number within [least, most]. */
int options_float(float *out, const char *option, const char *text, float least, float most,
                  struct error *err);
/* One of n words; *out is its index. The error lists the words. */
int options_word(int *out, const char *option, const char *text, const char *const *words,
                 int n_words, struct error *err);

struct options_range {
    int least, most;
};
/* Comma-separated list of at most n_max decimal integers within the range. */
int options_int_list(int32_t *out, int *n, int n_max, const char *option, const char *text,
                     struct options_range range, struct error *err);
