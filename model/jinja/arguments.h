/* Arguments of builtins, checked for their type. An argument that is left out or None leaves *out,
 * the default, as it is. Errors: ERR_ARGUMENT it has another type. */
#pragma once

#include "model/jinja/library.h"

int argument_text(const struct builtin_call *in, int i, struct string *out, struct error *err);
/* For an argument that is always given (builtin.n_least) and must not be None. */
int argument_must_be_text(const struct builtin_call *in, int i, struct string *out,
                          struct error *err);
int argument_int(const struct builtin_call *in, int i, int64_t *out, struct error *err);
/* True if the argument is given and true; every type is allowed. */
bool argument_is_true(const struct builtin_call *in, int i);
/* True if the argument is given and not None. */
bool argument_is_given(const struct builtin_call *in, int i);
