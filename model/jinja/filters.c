/* The table of filters, with jinja2's parameters, and the ones that fit nowhere else. */
#include "model/jinja/filters.h"

#include "model/jinja/arguments.h"
#include "model/jinja/pystring.h"

static int filter_default(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    bool is_absent =
        in->self->kind == VALUE_UNDEFINED || (argument_is_true(in, 1) && !value_is_true(in->self));
    (void)r, (void)err;
    *out = *in->self;
    if (is_absent) *out = in->args[0] ? *in->args[0] : value_string(string_of("", 0));
    return 0;
}

static int filter_length(struct render *r, const struct builtin_call *in, struct value *out,
                         struct error *err)
{
    size_t n;
    (void)r;
    switch (in->self->kind) {
    case VALUE_UNDEFINED:
        n = 0;
        break;
    case VALUE_STRING:
        n = string_length(in->self->text);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        n = in->self->list->n;
        break;
    case VALUE_DICT:
        n = in->self->dict->n;
        break;
    case VALUE_LOOP:
        n = in->self->loop->n;
        break;
    default:
        return error_set(err, ERR_ARGUMENT, "a %s has no length", value_type(in->self));
    }
    *out = value_int((int64_t)n);
    return 0;
}

/* Unlike value.name, it never takes the item of that name from a dict. */
static int filter_attr(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    struct string name = {"", 0};
    int rc = argument_text(in, 0, &name, err);
    if (rc) return rc;
    *out = value_undefined(name);
    if (in->self->kind == VALUE_DICT) return 0;
    return eval_attribute(r, in->self, name, out, err);
}

static const struct builtin filters[] = {
    {"abs", filter_abs, 0, false, {0}},
    {"attr", filter_attr, 1, false, {"name"}},
    {"batch", filter_batch, 1, false, {"linecount", "fill_with"}},
    {"capitalize", filter_capitalize, 0, false, {0}},
    {"count", filter_length, 0, false, {0}},
    {"d", filter_default, 0, false, {"default_value", "boolean"}},
    {"default", filter_default, 0, false, {"default_value", "boolean"}},
    {"dictsort", filter_dictsort, 0, false, {"case_sensitive", "by", "reverse"}},
    {"e", filter_escape, 0, false, {0}},
    {"escape", filter_escape, 0, false, {0}},
    {"first", filter_first, 0, false, {0}},
    {"float", filter_float, 0, false, {"default"}},
    {"indent", filter_indent, 0, false, {"width", "first", "blank"}},
    {"int", filter_int, 0, false, {"default", "base"}},
    {"items", filter_items, 0, false, {0}},
    {"join", filter_join, 0, false, {"d", "attribute"}},
    {"last", filter_last, 0, false, {0}},
    {"length", filter_length, 0, false, {0}},
    {"list", filter_list, 0, false, {0}},
    {"lower", filter_lower, 0, false, {0}},
    {"map", filter_map, 0, true, {0}},
    {"max", filter_max, 0, false, {"case_sensitive", "attribute"}},
    {"min", filter_min, 0, false, {"case_sensitive", "attribute"}},
    {"reject", filter_reject, 0, true, {0}},
    {"rejectattr", filter_rejectattr, 0, true, {0}},
    {"replace", filter_replace, 2, false, {"old", "new", "count"}},
    {"reverse", filter_reverse, 0, false, {0}},
    {"round", filter_round, 0, false, {"precision", "method"}},
    {"safe", filter_safe, 0, false, {0}},
    {"select", filter_select, 0, true, {0}},
    {"selectattr", filter_selectattr, 0, true, {0}},
    {"sort", filter_sort, 0, false, {"reverse", "case_sensitive", "attribute"}},
    {"string", filter_string, 0, false, {0}},
    {"sum", filter_sum, 0, false, {"attribute", "start"}},
    {"title", filter_title, 0, false, {0}},
    {"tojson", filter_tojson, 0, false, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", filter_trim, 0, false, {"chars"}},
    {"unique", filter_unique, 0, false, {"case_sensitive", "attribute"}},
    {"upper", filter_upper, 0, false, {0}},
};

const struct builtin *filter_find(struct string name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (string_is(name, filters[i].name)) return &filters[i];
    }
    return NULL;
}
