/* Types and functions that the files of the parser share. Each reads a part of the language as
 * jinja2/parser.py does: parse_statement.c the tags, parse_operators.c expressions with operators,
 * parse_postfix.c and parse_primary.c the operands. */
#pragma once

#include "model/jinja/lexer.h"
#include "model/jinja/syntax.h"

enum {
    PARSER_DEPTH_MAX = 200,
    PARSER_ITEMS_MAX = 4096,
    PARSER_CHAIN_MAX = 16,
    PARSER_SYMBOLS_MAX = 4096
};

struct parser {
    struct jinja *jinja; /* what is made */
    const struct token *at;
    int depth;
    int n_loops; /* around the statement, within the macro */
    bool uses_varargs, uses_kwargs, uses_caller;
    /* Names that are called; each must be a function or be given a value by the template. */
    struct called *called;
    bool is_assigned[PARSER_SYMBOLS_MAX]; /* by symbol */
};

struct called {
    struct called *next;
    int symbol, line;
};

/* A zeroed array in the template's heap. */
#define parser_array(p, pointer, n, err) heap_array(&(p)->jinja->heap, (pointer), (n), (err))

bool parser_is_operator(const struct parser *p, const char *text);
bool parser_is_name(const struct parser *p, const char *text);
/* Takes the token if it is that one. */
bool parser_skip_operator(struct parser *p, const char *text);
bool parser_skip_name(struct parser *p, const char *text);
int parser_expect_operator(struct parser *p, const char *text, struct error *err);
/* Takes "%}". */
int parser_expect_block_end(struct parser *p, struct error *err);
int parser_expect_name(struct parser *p, const char *text, struct error *err);
/* ERR_FORMAT: the token is not what was expected. */
int parser_unexpected(const struct parser *p, const char *expected, struct error *err);
/* As parser_unexpected, for an operator or a name, which the message quotes. */
int parser_missing(const struct parser *p, const char *text, struct error *err);
/* ERR_UNSUPPORTED: there is no such thing; what: "the filter", "the tag", ... */
int parser_unsupported(int line, const char *what, struct string name, struct error *err);
/* Goes one level deeper; the caller takes it back with depth--. Errors: ERR_FORMAT too deep. */
int parser_enter(struct parser *p, struct error *err);
/* Takes the name of a variable that gets a value. */
int parser_variable(struct parser *p, struct string *name, int *symbol, struct error *err);
int parser_symbol(struct parser *p, struct string name, int *symbol, struct error *err);

/* An expression of that kind, otherwise zeroed. */
int parser_make(struct parser *p, enum expr_kind kind, int line, struct expr **out,
                struct error *err);

struct expr_list {
    struct exprs exprs;
    size_t capacity;
};
int parser_push(struct parser *p, struct expr_list *list, const struct expr *expr,
                struct error *err);
/* ERR_FORMAT: n items are as many as there may be. */
int parser_check_count(const struct parser *p, size_t n, struct error *err);

/* ---- parse_primary.c ---- */
int parse_primary(struct parser *p, const struct expr **out, struct error *err);
/* The token, which has that value. */
int parse_constant(struct parser *p, struct value value, const struct expr **out,
                   struct error *err);
/* One expression, or several with commas between them, which are a tuple. with_if: they may have
 * the form "x if y else z", which would take the test of `for ... in x if test`. */
int parse_tuple(struct parser *p, bool with_if, const struct expr **out, struct error *err);

/* ---- parse_postfix.c ---- */
/* A primary expression with its attributes, items and calls. */
int parse_postfix_expression(struct parser *p, const struct expr **out, struct error *err);
/* Puts the filters and tests that follow around the expression. */
int parse_filters(struct parser *p, const struct expr **e, struct error *err);
/* "name(...)|name": filters of a block, which have no expression before them. */
int parse_block_filter(struct parser *p, const struct expr **out, struct error *err);

/* ---- parse_operators.c ---- */
int parse_expression(struct parser *p, const struct expr **out, struct error *err);
/* Without the form "x if y else z". */
int parse_without_if(struct parser *p, const struct expr **out, struct error *err);

/* ---- parse_statement.c ---- */
/* Statements up to the end of the template. */
int parse_statements(struct parser *p, struct statement **out, struct error *err);

/* ---- parser.c ---- */
/* All of it, from the first token. */
int parse_template(struct parser *p, struct error *err);
