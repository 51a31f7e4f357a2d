/* Filters, tests, methods and functions: what a template may call by name. */
#pragma once

#include "model/jinja/syntax.h"

struct render;

struct named_value {
    struct string name;
    struct value value;
};

/* The arguments of a call in the order in which the template has them. */
struct call {
    size_t n, n_named;
    const struct value *values;
    const struct named_value *named;
};

enum { BUILTIN_PARAMETERS = 5 };

struct builtin_call {
    const struct value *self; /* before "|" of a filter, "is" of a test, "." of a method; or NULL */
    const struct value *args[BUILTIN_PARAMETERS]; /* by parameter; NULL = left out */
    struct call call;
};

typedef int builtin_fn(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err);

struct builtin {
    const char *name;
    builtin_fn *fn;
    int n_least;    /* so many of the parameters must be given */
    bool takes_all; /* it has no parameters and looks at `call` itself */
    const char *parameters[BUILTIN_PARAMETERS];
};

const struct builtin *filter_find(struct string name);
const struct builtin *test_find(struct string name);
const struct builtin *function_find(struct string name);
/* The method of a value, or NULL. */
const struct builtin *method_find(const struct value *self, struct string name);
/* True if values of any kind have a method of that name. */
bool method_is_known(struct string name);

/* Finds a parameter for each argument and calls the builtin. Errors: ERR_ARGUMENT an argument has
 * none or is missing; those of the builtin. */
int builtin_run(struct render *r, const struct builtin *builtin, const struct value *self,
                const struct call *call, struct value *out, struct error *err);
