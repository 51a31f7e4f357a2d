/* Arguments of builtins, checked for their type. */
#include "model/jinja/arguments.h"

bool argument_is_given(const struct builtin_call *in, int i)
{
    return in->args[i] && in->args[i]->kind != VALUE_NONE;
}

bool argument_is_true(const struct builtin_call *in, int i)
{
    return in->args[i] && value_is_true(in->args[i]);
}

int argument_text(const struct builtin_call *in, int i, struct string *out, struct error *err)
{
    return argument_is_given(in, i) ? argument_must_be_text(in, i, out, err) : 0;
}

int argument_must_be_text(const struct builtin_call *in, int i, struct string *out,
                          struct error *err)
{
    const struct value *v = in->args[i];
    if (v->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "a text is needed, not a %s", value_type(v));
    }
    *out = v->text;
    return 0;
}

int argument_int(const struct builtin_call *in, int i, int64_t *out, struct error *err)
{
    const struct value *v = in->args[i];
    if (!argument_is_given(in, i)) return 0;
    if (v->kind != VALUE_INT && v->kind != VALUE_BOOL) {
        return error_set(err, ERR_ARGUMENT, "a whole number is needed, not a %s", value_type(v));
    }
    *out = v->integer;
    return 0;
}
