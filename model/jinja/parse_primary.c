/* Primary expressions, as jinja2/parser.py reads them: names, literals, and what is in brackets. */
#include <string.h>

#include "model/jinja/parser.h"

int parse_constant(struct parser *p, struct value value, const struct expr **out, struct error *err)
{
    struct expr *e;
    int rc = parser_make(p, EXPR_CONSTANT, p->at->line, &e, err);
    if (rc) return rc;
    e->constant = value;
    p->at++;
    *out = e;
    return 0;
}

static int parse_name(struct parser *p, const struct expr **out, struct error *err)
{
    struct expr *e;
    struct string name = p->at->text;
    if (string_is(name, "true") || string_is(name, "True")) {
        return parse_constant(p, value_bool(true), out, err);
    }
    if (string_is(name, "false") || string_is(name, "False")) {
        return parse_constant(p, value_bool(false), out, err);
    }
    if (string_is(name, "none") || string_is(name, "None")) {
        return parse_constant(p, value_none(), out, err);
    }
    int rc = parser_make(p, EXPR_NAME, p->at->line, &e, err);
    if (!rc) rc = parser_symbol(p, name, &e->name.symbol, err);
    if (rc) return rc;
    e->name.name = name;
    p->uses_varargs |= string_is(name, "varargs");
    p->uses_kwargs |= string_is(name, "kwargs");
    p->uses_caller |= string_is(name, "caller");
    p->at++;
    *out = e;
    return 0;
}

/* Strings that follow each other are one. */
static int parse_string(struct parser *p, const struct expr **out, struct error *err)
{
    size_t len = 0, n = 0;
    char *joined;
    while (p->at[n].kind == TOKEN_STRING)
        len += p->at[n++].text.len;
    struct string text = p->at->text;
    if (n > 1) {
        int rc = parser_array(p, &joined, len, err);
        if (rc) return rc;
        char *at = joined;
        for (size_t i = 0; i < n; at += p->at[i++].text.len) {
            memcpy(at, p->at[i].text.data, p->at[i].text.len);
        }
        text = string_of(joined, len);
        p->at += n - 1;
    }
    return parse_constant(p, value_string(text), out, err);
}

static int parse_list(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = 0;
    struct expr_list list = {0};
    struct expr *e;
    TRY(parser_make(p, EXPR_LIST, p->at->line, &e, err));
    TRY(parser_expect_operator(p, "[", err));
    while (!parser_skip_operator(p, "]")) {
        const struct expr *item;
        if (list.exprs.n) TRY(parser_expect_operator(p, ",", err));
        if (parser_skip_operator(p, "]")) break;
        TRY(parse_expression(p, &item, err));
        TRY(parser_push(p, &list, item, err));
    }
    e->items = list.exprs;
    *out = e;
out:
    return rc;
}

static int parse_dict(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = 0;
    struct expr_list list = {0};
    struct expr *e;
    TRY(parser_make(p, EXPR_DICT, p->at->line, &e, err));
    TRY(parser_expect_operator(p, "{", err));
    while (!parser_skip_operator(p, "}")) {
        const struct expr *key, *value;
        if (list.exprs.n) TRY(parser_expect_operator(p, ",", err));
        if (parser_skip_operator(p, "}")) break;
        TRY(parse_expression(p, &key, err));
        TRY(parser_expect_operator(p, ":", err));
        TRY(parse_expression(p, &value, err));
        TRY(parser_push(p, &list, key, err));
        TRY(parser_push(p, &list, value, err));
    }
    e->items = list.exprs;
    *out = e;
out:
    return rc;
}

/* True if a list of expressions ends here, as after "(1," . */
static bool tuple_ends(const struct parser *p)
{
    enum token_kind kind = p->at->kind;
    return kind == TOKEN_BLOCK_END || kind == TOKEN_PRINT_END || kind == TOKEN_END ||
           parser_is_operator(p, ")");
}

int parse_tuple(struct parser *p, bool with_if, const struct expr **out, struct error *err)
{
    int rc = 0;
    struct expr_list list = {0};
    struct expr *e;
    bool is_tuple = false;
    int line = p->at->line;
    const struct expr *item = NULL;
    while (!tuple_ends(p)) {
        TRY(with_if ? parse_expression(p, &item, err) : parse_without_if(p, &item, err));
        TRY(parser_push(p, &list, item, err));
        if (!parser_skip_operator(p, ",")) break;
        is_tuple = true;
    }
    if (!item) {
        rc = parser_unexpected(p, "an expression", err);
        goto out;
    }
    *out = item;
    if (!is_tuple) goto out;
    TRY(parser_make(p, EXPR_TUPLE, line, &e, err));
    e->items = list.exprs;
    *out = e;
out:
    return rc;
}

static int parse_parentheses(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = 0, line = p->at->line;
    struct expr *e;
    p->at++;
    if (parser_skip_operator(p, ")")) {
        TRY(parser_make(p, EXPR_TUPLE, line, &e, err));
        *out = e;
        goto out;
    }
    TRY(parse_tuple(p, true, out, err));
    TRY(parser_expect_operator(p, ")", err));
out:
    return rc;
}

int parse_primary(struct parser *p, const struct expr **out, struct error *err)
{
    switch (p->at->kind) {
    case TOKEN_NAME:
        return parse_name(p, out, err);
    case TOKEN_STRING:
        return parse_string(p, out, err);
    case TOKEN_INT:
        return parse_constant(p, value_int(p->at->integer), out, err);
    case TOKEN_FLOAT:
        return parse_constant(p, value_float(p->at->number), out, err);
    default:
        break;
    }
    if (parser_is_operator(p, "(")) return parse_parentheses(p, out, err);
    if (parser_is_operator(p, "[")) return parse_list(p, out, err);
    if (parser_is_operator(p, "{")) return parse_dict(p, out, err);
    return parser_unexpected(p, "an expression", err);
}
