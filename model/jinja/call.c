/* Calls: macros, functions, methods, and how arguments find their parameters. */
#include "model/jinja/arguments.h"
#include "model/jinja/render.h"
#include "model/jinja/strftime.h"

enum { RANGE_MAX = 100000 };

/* ---- builtins ---- */

static int bind_named(const struct builtin *b, struct builtin_call *in, struct error *err)
{
    for (size_t i = 0; i < in->call.n_named; i++) {
        const struct named_value *named = &in->call.named[i];
        size_t at = 0;
        while (at < BUILTIN_PARAMETERS && b->parameters[at] &&
               !string_is(named->name, b->parameters[at])) {
            at++;
        }
        if (at == BUILTIN_PARAMETERS || !b->parameters[at]) {
            return error_set(err, ERR_ARGUMENT, "%s has no argument '%.*s'", b->name,
                             string_shown(named->name), named->name.data);
        }
        if (in->args[at]) {
            return error_set(err, ERR_ARGUMENT, "%s is given '%s' twice", b->name,
                             b->parameters[at]);
        }
        in->args[at] = &named->value;
    }
    return 0;
}

static int bind(const struct builtin *b, struct builtin_call *in, struct error *err)
{
    size_t n = 0;
    if (b->takes_all) return 0;
    while (n < BUILTIN_PARAMETERS && b->parameters[n])
        n++;
    if (in->call.n > n) {
        return error_set(err, ERR_ARGUMENT, "%s takes at most %zu arguments, not %zu", b->name, n,
                         in->call.n);
    }
    for (size_t i = 0; i < in->call.n; i++)
        in->args[i] = &in->call.values[i];
    int rc = bind_named(b, in, err);
    for (int i = 0; i < b->n_least && !rc; i++) {
        if (in->args[i]) continue;
        rc = error_set(err, ERR_ARGUMENT, "%s needs its argument '%s'", b->name, b->parameters[i]);
    }
    return rc;
}

int builtin_run(struct render *r, const struct builtin *builtin, const struct value *self,
                const struct call *call, struct value *out, struct error *err)
{
    struct builtin_call in = {.self = self, .call = *call};
    struct value made = value_none(); /* out may be self */
    int rc = bind(builtin, &in, err);
    if (!rc) rc = builtin->fn(r, &in, &made, err);
    if (!rc) *out = made;
    return rc;
}

/* ---- macros ---- */

static const struct value *find_named(const struct call *call, struct string name)
{
    for (size_t i = 0; i < call->n_named; i++) {
        if (string_equal(call->named[i].name, name)) return &call->named[i].value;
    }
    return NULL;
}

/* Sets parameter i to its argument, or to undefined. */
static int set_argument(struct render *r, const struct parameter *parameter,
                        const struct call *call, size_t i, struct error *err)
{
    struct value v = value_undefined(parameter->name);
    const struct value *named = find_named(call, parameter->name);
    if (i < call->n && named) {
        return error_set(err, ERR_ARGUMENT, "the macro is given '%.*s' twice",
                         string_shown(parameter->name), parameter->name.data);
    }
    if (i < call->n) v = call->values[i];
    if (named) v = *named;
    return scope_set(r, r->scope, parameter->symbol, &v, err);
}

/* Defaults come after all arguments, because they may use other parameters. */
static int set_parameters(struct render *r, const struct macro *macro, const struct call *call,
                          struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < macro->n_parameters; i++)
        TRY(set_argument(r, &macro->parameters[i], call, i, err));
    for (size_t i = call->n; i < macro->n_parameters; i++) {
        const struct parameter *parameter = &macro->parameters[i];
        struct value v;
        if (!parameter->otherwise || find_named(call, parameter->name)) continue;
        TRY(eval(r, parameter->otherwise, &v, err));
        TRY(scope_set(r, r->scope, parameter->symbol, &v, err));
    }
out:
    return rc;
}

static bool has_parameter(const struct macro *macro, struct string name)
{
    for (size_t i = 0; i < macro->n_parameters; i++) {
        if (string_equal(macro->parameters[i].name, name)) return true;
    }
    return false;
}

/* Arguments that have no parameter become varargs and kwargs. */
static int set_rest(struct render *r, const struct macro *macro, const struct call *call,
                    struct error *err)
{
    int rc = 0;
    size_t n = macro->n_parameters;
    struct value rest, dict;
    if (call->n > n && !macro->uses_varargs) {
        return error_set(err, ERR_ARGUMENT, "the macro '%.*s' takes at most %zu arguments",
                         string_shown(macro->name), macro->name.data, n);
    }
    TRY(value_make_list(&r->heap, VALUE_TUPLE, call->n > n ? call->values + n : NULL,
                        call->n > n ? call->n - n : 0, &rest, err));
    TRY(value_make_dict(&r->heap, VALUE_DICT, call->n_named, &dict, err));
    for (size_t i = 0; i < call->n_named; i++) {
        struct value key = value_string(call->named[i].name);
        if (has_parameter(macro, key.text)) continue;
        if (!macro->uses_kwargs) {
            rc = error_set(err, ERR_ARGUMENT, "the macro '%.*s' has no argument '%.*s'",
                           string_shown(macro->name), macro->name.data, string_shown(key.text),
                           key.text.data);
            goto out;
        }
        TRY(member_set(r, dict.dict, &key, &call->named[i].value, err));
    }
    if (macro->uses_varargs) {
        TRY(scope_set(r, r->scope, r->jinja->symbols.varargs, &rest, err));
    }
    if (macro->uses_kwargs) TRY(scope_set(r, r->scope, r->jinja->symbols.kwargs, &dict, err));
out:
    return rc;
}

static int call_macro(struct render *r, const struct macro_value *of, const struct call *call,
                      const struct value *caller, struct value *out, struct error *err)
{
    int rc = 0;
    const struct macro *macro = of->macro;
    struct scope *outer = r->scope, *inner;
    struct value none = value_undefined(string_of("caller", 6));
    TRY(scope_open(r, of->scope, &inner, err));
    r->scope = inner;
    if (caller && !macro->uses_caller) {
        rc = error_set(err, ERR_ARGUMENT, "the macro '%.*s' does not use caller()",
                       string_shown(macro->name), macro->name.data);
        goto out;
    }
    if (macro->uses_caller) {
        TRY(scope_set(r, inner, r->jinja->symbols.caller, caller ? caller : &none, err));
    }
    TRY(set_parameters(r, macro, call, err));
    TRY(set_rest(r, macro, call, err));
    TRY(render_capture(r, macro->body, inner, out, err));
out:
    r->scope = outer;
    return rc;
}

int call_value(struct render *r, const struct value *callee, const struct call *call,
               const struct value *caller, struct value *out, struct error *err)
{
    int rc = render_enter(r, err);
    if (rc) return rc;
    if (callee->kind == VALUE_MACRO) {
        rc = call_macro(r, callee->macro, call, caller, out, err);
    } else if (callee->kind == VALUE_FUNCTION) {
        rc = builtin_run(r, callee->function, NULL, call, out, err);
    } else if (callee->kind == VALUE_METHOD) {
        rc = builtin_run(r, callee->method->method, &callee->method->self, call, out, err);
    } else {
        rc = error_set(err, ERR_ARGUMENT, "a %s cannot be called", value_type(callee));
    }
    r->depth--;
    return rc;
}

/* ---- functions ---- */

static int run_raise(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    struct string text;
    (void)out;
    int rc = value_as_string(r, in->args[0], &text, err);
    if (rc) return rc;
    return error_set(err, ERR_ARGUMENT, "%.*s", string_cut(text, ERROR_TEXT_BYTES / 2), text.data);
}

static int run_strftime(struct render *r, const struct builtin_call *in, struct value *out,
                        struct error *err)
{
    int rc = 0;
    struct buffer text = {0};
    struct string format;
    TRY(argument_must_be_text(in, 0, &format, err));
    TRY(render_bytes(r, format.len, err));
    TRY(strftime_print(&text, format, r->now_s, err));
    TRY(value_copy_string(&r->heap, string_of((const char *)text.data, text.len), out, err));
out:
    buffer_free(&text);
    return rc;
}

static int run_namespace(struct render *r, const struct builtin_call *in, struct value *out,
                         struct error *err)
{
    int rc = 0;
    const struct dict none = {0}, *from = &none;
    if (in->call.n == 1 && in->call.values[0].kind == VALUE_DICT) {
        from = in->call.values[0].dict;
    } else if (in->call.n) {
        return error_set(err, ERR_ARGUMENT, "dict and namespace take a dict and named values");
    }
    TRY(value_make_dict(&r->heap, VALUE_NAMESPACE, from->n + in->call.n_named, out, err));
    for (size_t i = 0; i < from->n; i++)
        TRY(dict_add(out->dict, &from->pairs[i].key, &from->pairs[i].value, err));
    for (size_t i = 0; i < in->call.n_named; i++) {
        struct value key = value_string(in->call.named[i].name);
        TRY(member_set(r, out->dict, &key, &in->call.named[i].value, err));
    }
out:
    return rc;
}

static int run_dict(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    int rc = run_namespace(r, in, out, err);
    if (!rc) out->kind = VALUE_DICT;
    return rc;
}

/* How many numbers range(begin, end, step) has. */
static uint64_t range_length(int64_t begin, int64_t end, int64_t step)
{
    if (step > 0)
        return end > begin ? ((uint64_t)end - (uint64_t)begin - 1) / (uint64_t)step + 1 : 0;
    uint64_t size = (uint64_t)0 - (uint64_t)step;
    return begin > end ? ((uint64_t)begin - (uint64_t)end - 1) / size + 1 : 0;
}

static int run_range(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    int rc = 0;
    int64_t begin = 0, end = 0, step = 1;
    struct value *items;
    if (in->args[1]) TRY(argument_int(in, 0, &begin, err));
    TRY(argument_int(in, in->args[1] ? 1 : 0, &end, err));
    TRY(argument_int(in, 2, &step, err));
    if (step == 0) return error_set(err, ERR_ARGUMENT, "range with step 0");
    uint64_t n = range_length(begin, end, step);
    if (n > RANGE_MAX) {
        rc = error_set(err, ERR_EXHAUSTED, "range has more than %d numbers", RANGE_MAX);
        goto out;
    }
    TRY(render_step(r, n, err));
    TRY(heap_array(&r->heap, &items, n, err));
    for (uint64_t i = 0; i < n; i++)
        items[i] = value_int(begin + (int64_t)i * step);
    TRY(value_make_list(&r->heap, VALUE_LIST, items, n, out, err));
out:
    return rc;
}

static const struct builtin functions[] = {
    {"raise_exception", run_raise, 1, false, {"message"}},
    {"strftime_now", run_strftime, 1, false, {"format"}},
    {"namespace", run_namespace, 0, true, {0}},
    {"dict", run_dict, 0, true, {0}},
    {"range", run_range, 1, false, {"start", "stop", "step"}},
};

const struct builtin *function_find(struct string name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (string_is(name, functions[i].name)) return &functions[i];
    }
    return NULL;
}
