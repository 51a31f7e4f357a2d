/* Functions that the parser's files share: tokens, names, growing lists, and the template as a
 * whole. */
#include "model/jinja/parser.h"

#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

bool parser_is_operator(const struct parser *p, const char *text)
{
    return p->at->kind == TOKEN_OPERATOR && string_is(p->at->text, text);
}

bool parser_is_name(const struct parser *p, const char *text)
{
    return p->at->kind == TOKEN_NAME && string_is(p->at->text, text);
}

bool parser_skip_operator(struct parser *p, const char *text)
{
    bool is_it = parser_is_operator(p, text);
    p->at += is_it;
    return is_it;
}

bool parser_skip_name(struct parser *p, const char *text)
{
    bool is_it = parser_is_name(p, text);
    p->at += is_it;
    return is_it;
}

int parser_unexpected(const struct parser *p, const char *expected, struct error *err)
{
    const struct token *token = p->at;
    int len = string_shown(token->text);
    switch (token->kind) {
    case TOKEN_END:
        return error_set(err, ERR_FORMAT, "line %d: the template ends where %s is expected",
                         token->line, expected);
    case TOKEN_BLOCK_END:
    case TOKEN_PRINT_END:
        return error_set(err, ERR_FORMAT, "line %d: the tag ends where %s is expected", token->line,
                         expected);
    default:
        return error_set(err, ERR_FORMAT, "line %d: '%.*s' where %s is expected", token->line, len,
                         token->text.data, expected);
    }
}

int parser_missing(const struct parser *p, const char *text, struct error *err)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", text);
    return parser_unexpected(p, quoted, err);
}

int parser_unsupported(int line, const char *what, struct string name, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED, "line %d: %s '%.*s' is not supported", line, what,
                     string_shown(name), name.data);
}

int parser_expect_operator(struct parser *p, const char *text, struct error *err)
{
    return parser_skip_operator(p, text) ? 0 : parser_missing(p, text, err);
}

int parser_expect_name(struct parser *p, const char *text, struct error *err)
{
    return parser_skip_name(p, text) ? 0 : parser_missing(p, text, err);
}

int parser_expect_block_end(struct parser *p, struct error *err)
{
    if (p->at->kind != TOKEN_BLOCK_END) return parser_unexpected(p, "the end of the tag", err);
    p->at++;
    return 0;
}

int parser_enter(struct parser *p, struct error *err)
{
    if (p->depth == PARSER_DEPTH_MAX) {
        return error_set(err, ERR_FORMAT, "line %d: more than %d levels within each other",
                         p->at->line, PARSER_DEPTH_MAX);
    }
    p->depth++;
    return 0;
}

/* ---- names ---- */

int parser_symbol(struct parser *p, struct string name, int *symbol, struct error *err)
{
    struct symbols *s = &p->jinja->symbols;
    for (size_t i = 0; i < s->n; i++) {
        if (!string_equal(s->names[i], name)) continue;
        *symbol = (int)i;
        return 0;
    }
    if (s->n == PARSER_SYMBOLS_MAX) {
        return error_set(err, ERR_FORMAT, "the template has more than %d names",
                         PARSER_SYMBOLS_MAX);
    }
    int rc = heap_grow(&p->jinja->heap, &s->names, &s->capacity, s->n, err);
    if (rc) return rc;
    *symbol = (int)s->n;
    s->names[s->n++] = name;
    return 0;
}

int parser_variable(struct parser *p, struct string *name, int *symbol, struct error *err)
{
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None", "and",
                                           "or",   "not",   "in",   "is",   "if",    "else"};
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of a variable", err);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (parser_is_name(p, reserved[i])) {
            return parser_unexpected(p, "the name of a variable", err);
        }
    }
    *name = p->at->text;
    p->at++;
    int rc = parser_symbol(p, *name, symbol, err);
    if (!rc) p->is_assigned[*symbol] = true;
    return rc;
}

/* ---- expressions ---- */

int parser_make(struct parser *p, enum expr_kind kind, int line, struct expr **out,
                struct error *err)
{
    int rc = parser_array(p, out, 1, err);
    if (rc) return rc;
    (*out)->kind = kind;
    (*out)->line = line;
    return 0;
}

int parser_check_count(const struct parser *p, size_t n, struct error *err)
{
    if (n < PARSER_ITEMS_MAX) return 0;
    return error_set(err, ERR_FORMAT, "line %d: more than %d items", p->at->line, PARSER_ITEMS_MAX);
}

int parser_push(struct parser *p, struct expr_list *list, const struct expr *expr,
                struct error *err)
{
    struct exprs *exprs = &list->exprs;
    int rc = parser_check_count(p, exprs->n, err);
    if (!rc) rc = heap_grow(&p->jinja->heap, &exprs->items, &list->capacity, exprs->n, err);
    if (!rc) exprs->items[exprs->n++] = expr;
    return rc;
}

/* ---- the whole ---- */

/* A name that is called must be a function, or the template itself must give it a value. */
static int check_called(const struct parser *p, struct error *err)
{
    for (const struct called *c = p->called; c; c = c->next) {
        if (p->is_assigned[c->symbol] || c->symbol == p->jinja->symbols.caller) continue;
        return parser_unsupported(c->line, "the function", p->jinja->symbols.names[c->symbol], err);
    }
    return 0;
}

int parse_template(struct parser *p, struct error *err)
{
    int rc = 0;
    struct symbols *s = &p->jinja->symbols;
    TRY(parser_symbol(p, string_of("loop", 4), &s->loop, err));
    TRY(parser_symbol(p, string_of("caller", 6), &s->caller, err));
    TRY(parser_symbol(p, string_of("varargs", 7), &s->varargs, err));
    TRY(parser_symbol(p, string_of("kwargs", 6), &s->kwargs, err));
    TRY(parse_statements(p, &p->jinja->body, err));
    TRY(check_called(p, err));
out:
    return rc;
}
