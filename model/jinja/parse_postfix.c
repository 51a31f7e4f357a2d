/* Parses the parts that may follow an expression, as jinja2/parser.py does: attributes, items,
 * calls, filters and tests. Everything that a template calls by name must be in our tables, which
 * is checked here. */
#include <string.h>

#include "model/jinja/library.h"
#include "model/jinja/parser.h"
#include "model/jinja/strftime.h"

/* ---- calls ---- */

static int parse_argument(struct parser *p, struct arguments *arguments, struct expr_list *values,
                          struct named_expr **named, size_t *capacity, struct error *err)
{
    int rc = 0;
    const struct expr *value;
    if (arguments->more_named) return parser_unexpected(p, "the end of the arguments", err);
    if (parser_skip_operator(p, "**")) return parse_expression(p, &arguments->more_named, err);
    if (!arguments->more && parser_skip_operator(p, "*")) {
        return parse_expression(p, &arguments->more, err);
    }
    bool is_named = p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR &&
                    string_is(p->at[1].text, "=");
    struct string name = p->at->text;
    if (is_named) p->at += 2;
    TRY(parse_expression(p, &value, err));
    if (!is_named) {
        if (arguments->n_named || arguments->more) {
            rc = parser_unexpected(p, "a named argument", err);
            goto out;
        }
        TRY(parser_push(p, values, value, err));
        goto out;
    }
    TRY(parser_check_count(p, arguments->n_named, err));
    TRY(heap_grow(&p->jinja->heap, named, capacity, arguments->n_named, err));
    (*named)[arguments->n_named++] = (struct named_expr){name, value};
out:
    return rc;
}

static int parse_arguments(struct parser *p, struct arguments *arguments, struct error *err)
{
    int rc = 0;
    struct expr_list values = {0};
    struct named_expr *named = NULL;
    size_t capacity = 0;
    bool is_first = true;
    *arguments = (struct arguments){0};
    TRY(parser_expect_operator(p, "(", err));
    while (!parser_skip_operator(p, ")")) {
        if (!is_first) TRY(parser_expect_operator(p, ",", err));
        is_first = false;
        if (parser_skip_operator(p, ")")) break;
        TRY(parse_argument(p, arguments, &values, &named, &capacity, err));
    }
    arguments->values = values.exprs;
    arguments->named = named;
out:
    return rc;
}

static int note_called(struct parser *p, const struct expr *callee, struct error *err)
{
    struct called *called;
    if (callee->kind == EXPR_ATTRIBUTE && !method_is_known(callee->attribute.name)) {
        return parser_unsupported(callee->line, "the method", callee->attribute.name, err);
    }
    if (callee->kind != EXPR_NAME || function_find(callee->name.name)) return 0;
    int rc = parser_array(p, &called, 1, err);
    if (rc) return rc;
    *called = (struct called){p->called, callee->name.symbol, callee->line};
    p->called = called;
    return 0;
}

/* The format of strftime_now, where the template itself has it. */
static int check_format(const struct expr *call, struct error *err)
{
    const struct expr *callee = call->call.callee;
    const struct exprs *values = &call->call.arguments.values;
    if (callee->kind != EXPR_NAME || !string_is(callee->name.name, "strftime_now")) return 0;
    if (!values->n || values->items[0]->kind != EXPR_CONSTANT) return 0;
    const struct value *format = &values->items[0]->constant;
    if (format->kind != VALUE_STRING || !strftime_check(format->text, err)) return 0;
    return error_wrap(err, "line %d", call->line);
}

static int parse_call(struct parser *p, const struct expr *callee, const struct expr **out,
                      struct error *err)
{
    struct expr *e;
    int rc = parser_make(p, EXPR_CALL, p->at->line, &e, err);
    if (!rc) rc = note_called(p, callee, err);
    if (!rc) rc = parse_arguments(p, &e->call.arguments, err);
    if (rc) return rc;
    e->call.callee = callee;
    *out = e;
    return check_format(e, err);
}

/* ---- attributes and items ---- */

static int parse_attribute(struct parser *p, const struct expr *object, const struct expr **out,
                           struct error *err)
{
    struct expr *e;
    const struct expr *index;
    int rc = 0;
    p->at++;
    if (p->at->kind == TOKEN_INT) { /* items.0 */
        TRY(parser_make(p, EXPR_ITEM, p->at->line, &e, err));
        TRY(parse_constant(p, value_int(p->at->integer), &index, err));
        e->item.object = object;
        e->item.index = index;
        *out = e;
        goto out;
    }
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of an attribute", err);
    TRY(parser_make(p, EXPR_ATTRIBUTE, p->at->line, &e, err));
    e->attribute.object = object;
    e->attribute.name = p->at->text;
    p->at++;
    *out = e;
out:
    return rc;
}

static int parse_slice_part(struct parser *p, const struct expr **part, struct error *err)
{
    *part = NULL;
    if (parser_is_operator(p, ":") || parser_is_operator(p, "]")) return 0;
    return parse_expression(p, part, err);
}

static int parse_item(struct parser *p, const struct expr *object, const struct expr **out,
                      struct error *err)
{
    int rc = 0, line = p->at->line;
    struct expr *e;
    const struct expr *begin, *end = NULL, *step = NULL;
    p->at++;
    TRY(parse_slice_part(p, &begin, err));
    if (!parser_skip_operator(p, ":")) {
        if (!begin) return parser_unexpected(p, "an index", err);
        TRY(parser_make(p, EXPR_ITEM, line, &e, err));
        e->item.object = object;
        e->item.index = begin;
    } else {
        TRY(parse_slice_part(p, &end, err));
        if (parser_skip_operator(p, ":")) TRY(parse_slice_part(p, &step, err));
        TRY(parser_make(p, EXPR_SLICE, line, &e, err));
        e->slice.object = object;
        e->slice.begin = begin, e->slice.end = end, e->slice.step = step;
    }
    if (parser_is_operator(p, ",")) {
        rc = parser_unsupported(line, "an index with", p->at->text, err);
        goto out;
    }
    TRY(parser_expect_operator(p, "]", err));
    *out = e;
out:
    return rc;
}

static int parse_postfix(struct parser *p, const struct expr **e, struct error *err)
{
    int rc = 0;
    while (!rc) {
        if (parser_is_operator(p, ".")) {
            rc = parse_attribute(p, *e, e, err);
        } else if (parser_is_operator(p, "[")) {
            rc = parse_item(p, *e, e, err);
        } else if (parser_is_operator(p, "(")) {
            rc = parse_call(p, *e, e, err);
        } else {
            break;
        }
    }
    return rc;
}

int parse_postfix_expression(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = parse_primary(p, out, err);
    return rc ? rc : parse_postfix(p, out, err);
}

/* ---- filters and tests ---- */

/* The names of filters and tests that a filter gets as texts must be known, too. */
static int check_names(const struct expr *e, struct error *err)
{
    const char *name = e->apply.builtin->name;
    bool is_map = strcmp(name, "map") == 0;
    bool has_path = strcmp(name, "selectattr") == 0 || strcmp(name, "rejectattr") == 0;
    bool is_test = has_path || strcmp(name, "select") == 0 || strcmp(name, "reject") == 0;
    const struct exprs *values = &e->apply.arguments.values;
    if ((!is_map && !is_test) || values->n <= has_path) return 0;
    const struct expr *named = values->items[has_path];
    if (named->kind != EXPR_CONSTANT || named->constant.kind != VALUE_STRING) return 0;
    struct string text = named->constant.text;
    if (is_map ? filter_find(text) != NULL : test_find(text) != NULL) return 0;
    return parser_unsupported(e->line, is_map ? "the filter" : "the test", text, err);
}

static int parse_filter(struct parser *p, const struct expr *value, const struct expr **out,
                        struct error *err)
{
    struct expr *e;
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of a filter", err);
    int rc = parser_make(p, EXPR_FILTER, p->at->line, &e, err);
    if (rc) return rc;
    e->apply.value = value;
    e->apply.builtin = filter_find(p->at->text);
    if (!e->apply.builtin) {
        return parser_unsupported(p->at->line, "the filter", p->at->text, err);
    }
    p->at++;
    if (parser_is_operator(p, "(")) rc = parse_arguments(p, &e->apply.arguments, err);
    if (!rc) rc = check_names(e, err);
    *out = e;
    return rc;
}

/* The argument of a test without parentheses: "x is divisibleby 3". */
static bool test_has_argument(const struct parser *p)
{
    switch (p->at->kind) {
    case TOKEN_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return true;
    default:
        return parser_is_operator(p, "[") || parser_is_operator(p, "{");
    }
}

static int parse_test(struct parser *p, const struct expr *value, const struct expr **out,
                      struct error *err)
{
    int rc = 0;
    struct expr *e;
    struct expr_list values = {0};
    const struct expr *argument;
    p->at++;
    bool is_negated = parser_skip_name(p, "not");
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of a test", err);
    TRY(parser_make(p, EXPR_TEST, p->at->line, &e, err));
    e->apply.value = value;
    e->apply.is_negated = is_negated;
    e->apply.builtin = test_find(p->at->text);
    if (!e->apply.builtin) {
        return parser_unsupported(p->at->line, "the test", p->at->text, err);
    }
    p->at++;
    if (parser_is_operator(p, "(")) {
        TRY(parse_arguments(p, &e->apply.arguments, err));
    } else if (test_has_argument(p)) {
        if (parser_is_name(p, "is")) return parser_unexpected(p, "one test at a time", err);
        TRY(parse_postfix_expression(p, &argument, err));
        TRY(parser_push(p, &values, argument, err));
        e->apply.arguments.values = values.exprs;
    }
    *out = e;
out:
    return rc;
}

int parse_filters(struct parser *p, const struct expr **e, struct error *err)
{
    int rc = 0;
    while (!rc) {
        if (parser_skip_operator(p, "|")) {
            rc = parse_filter(p, *e, e, err);
        } else if (parser_is_name(p, "is")) {
            rc = parse_test(p, *e, e, err);
        } else if (parser_is_operator(p, "(")) {
            rc = parse_call(p, *e, e, err);
        } else {
            break;
        }
    }
    return rc;
}

int parse_block_filter(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = parse_filter(p, NULL, out, err);
    while (!rc && parser_skip_operator(p, "|"))
        rc = parse_filter(p, *out, out, err);
    return rc;
}
