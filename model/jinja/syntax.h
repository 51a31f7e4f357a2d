/* A template after it was read: statements and expressions. All of it is in the template's heap. */
#pragma once

#include "model/jinja/value.h"

struct builtin;

/* ---- expressions ---- */

enum expr_kind {
    EXPR_CONSTANT,
    EXPR_NAME,
    EXPR_LIST,
    EXPR_TUPLE,
    EXPR_DICT,
    EXPR_NOT,
    EXPR_MINUS,
    EXPR_PLUS,
    EXPR_AND,
    EXPR_OR,
    EXPR_BINARY,
    EXPR_COMPARE,
    EXPR_IF,
    EXPR_ATTRIBUTE, /* object.name */
    EXPR_ITEM,      /* object[index] */
    EXPR_SLICE,     /* object[begin:end:step] */
    EXPR_CALL,
    EXPR_FILTER,
    EXPR_TEST
};

enum operation {
    OPERATION_ADD,
    OPERATION_SUBTRACT,
    OPERATION_MULTIPLY,
    OPERATION_DIVIDE,
    OPERATION_FLOOR_DIVIDE,
    OPERATION_MODULO,
    OPERATION_POWER,
    OPERATION_CONCATENATE,
    OPERATION_EQUAL,
    OPERATION_UNEQUAL,
    OPERATION_LESS,
    OPERATION_LESS_EQUAL,
    OPERATION_GREATER,
    OPERATION_GREATER_EQUAL,
    OPERATION_IN,
    OPERATION_NOT_IN
};

struct expr;

struct exprs {
    size_t n;
    const struct expr **items;
};

struct named_expr {
    struct string name;
    const struct expr *value;
};

struct arguments {
    struct exprs values;
    size_t n_named;
    const struct named_expr *named;
    const struct expr *more, *more_named; /* *list, **dict; NULL = none */
};

/* a < b <= c */
struct comparison {
    enum operation operation;
    const struct expr *right;
};

struct expr {
    enum expr_kind kind;
    int line;
    union {
        struct value constant;
        struct {
            int symbol;
            struct string name;
        } name;
        struct exprs items; /* of a dict: key, value, key, value, ... */
        const struct expr *operand;
        struct {
            enum operation operation;
            const struct expr *left, *right;
        } binary; /* EXPR_AND, EXPR_OR, EXPR_BINARY */
        struct {
            const struct expr *left;
            size_t n;
            const struct comparison *rest;
        } compare;
        struct {
            const struct expr *test, *then, *otherwise; /* otherwise: NULL = undefined */
        } choice;
        struct {
            const struct expr *object;
            struct string name;
        } attribute;
        struct {
            const struct expr *object, *index;
        } item;
        struct {
            const struct expr *object, *begin, *end, *step; /* NULL = left out */
        } slice;
        struct {
            const struct expr *callee;
            struct arguments arguments;
        } call;
        struct {
            const struct builtin *builtin;
            const struct expr *value; /* NULL: the text of a block */
            struct arguments arguments;
            bool is_negated; /* EXPR_TEST */
        } apply;             /* EXPR_FILTER, EXPR_TEST */
    };
};

/* ---- statements ---- */

enum statement_kind {
    STATEMENT_TEXT,
    STATEMENT_PRINT,
    STATEMENT_IF,
    STATEMENT_FOR,
    STATEMENT_SET,
    STATEMENT_SET_BLOCK,
    STATEMENT_MACRO,
    STATEMENT_CALL,
    STATEMENT_FILTER,
    STATEMENT_WITH, /* also {% generation %}, which has no variables */
    STATEMENT_BREAK,
    STATEMENT_CONTINUE
};

enum target_kind { TARGET_NAME, TARGET_ATTRIBUTE, TARGET_TUPLE };

/* The target of an assignment. */
struct target {
    enum target_kind kind;
    int line, symbol;
    struct string attribute; /* of the namespace `symbol` */
    size_t n;
    const struct target *items;
};

struct parameter {
    int symbol;
    struct string name;
    const struct expr *otherwise; /* NULL = undefined */
};

/* Also what a {% call %} block hands over as caller(). */
struct macro {
    struct string name;
    size_t n_parameters;
    const struct parameter *parameters;
    bool uses_varargs, uses_kwargs, uses_caller;
    struct statement *body;
};

/* if, elif and else, in their order. */
struct branch {
    const struct expr *test; /* NULL: else */
    struct statement *body;
    struct branch *next;
};

struct statement {
    enum statement_kind kind;
    int line;
    struct statement *next;
    union {
        struct string text;
        const struct expr *value; /* STATEMENT_PRINT */
        struct branch branch;     /* STATEMENT_IF */
        struct {
            struct target target;
            const struct expr *items, *test; /* test: NULL = all */
            struct statement *body, *otherwise;
            bool uses_neighbours;
        } loop;
        struct {
            struct target target;
            const struct expr *value;  /* STATEMENT_SET */
            const struct expr *filter; /* STATEMENT_SET_BLOCK; NULL = none */
            struct statement *body;
        } set;
        struct {
            int symbol;
            struct macro macro;
        } macro;
        struct {
            const struct expr *call; /* EXPR_CALL */
            struct macro caller;
        } call;
        struct {
            const struct expr *filter;
            struct statement *body;
        } filter;
        struct {
            size_t n;
            const struct target *targets;
            const struct expr **values;
            struct statement *body;
        } with;
    };
};

/* Names of variables, which are looked up by number. */
struct symbols {
    size_t n, capacity;
    struct string *names;
    int loop, caller, varargs, kwargs; /* of those names */
};

struct jinja {
    struct heap heap;
    char *origin;
    struct symbols symbols;
    struct statement *body;
};
