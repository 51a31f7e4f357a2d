/* One rendering, and what its files share: statements (render.c), expressions (eval.c, access.c,
 * operators.c), calls (call.c) and the tables of builtins. */
#pragma once

#include "base/text/buffer.h"
#include "model/jinja/library.h"
#include "model/jinja/limits.h"

struct variable {
    int symbol;
    struct value value;
};

/* The variables of a body. Those of the bodies around it are in its parents. */
struct scope {
    struct scope *parent;
    size_t n, capacity;
    struct variable *variables;
    bool is_captured; /* a macro that may still be called was defined in it or within it */
};

struct macro_value {
    const struct macro *macro;
    struct scope *scope; /* where it was defined */
};

/* The variable `loop`. */
struct loop {
    const struct value *items;
    size_t n, index;
    bool has_run;   /* a body ran to its end */
    bool was_asked; /* loop.changed was called, with the arguments `asked` */
    struct value asked;
};

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

/* Owned by one thread. */
struct render {
    const struct jinja *jinja;
    const struct jinja_limits *limits;
    struct heap heap;
    struct buffer *out;
    const struct value *globals; /* by symbol; absent ones are undefined */
    struct scope *scope;
    enum jump jump; /* ends the bodies up to the innermost loop */
    int64_t n_steps, now_s;
    int depth;
    int line; /* of the template, for messages */
};

/* Counts n steps. Errors: ERR_EXHAUSTED there are too many. */
int render_step(struct render *r, size_t n, struct error *err);
/* Counts the steps of reading or copying n bytes. Errors: ERR_EXHAUSTED. */
int render_bytes(struct render *r, size_t n, struct error *err);
/* Goes one level deeper; the caller takes it back with depth--. Errors: ERR_EXHAUSTED. */
int render_enter(struct render *r, struct error *err);

/* ---- render.c ---- */
int render_body(struct render *r, const struct statement *s, struct error *err);
/* Runs a body in that scope and gives the text that it would have printed. */
int render_capture(struct render *r, const struct statement *body, struct scope *scope,
                   struct value *out, struct error *err);
int scope_open(struct render *r, struct scope *parent, struct scope **scope, struct error *err);
int scope_set(struct render *r, struct scope *scope, int symbol, const struct value *value,
              struct error *err);

/* ---- eval.c ---- */
int eval(struct render *r, const struct expr *e, struct value *out, struct error *err);
int eval_arguments(struct render *r, const struct arguments *arguments, struct call *call,
                   struct error *err);
/* The filters "a | b | c" of a block, from the first to the last. */
int eval_block_filter(struct render *r, const struct expr *e, const struct value *block,
                      struct value *out, struct error *err);

/* ---- access.c ---- */
/* *found: the value of a key, or NULL. Errors: ERR_ARGUMENT a list or dict, which is no key. */
int member_find(struct render *r, const struct dict *dict, const struct value *key,
                const struct value **found, struct error *err);
int member_set(struct render *r, struct dict *dict, const struct value *key,
               const struct value *value, struct error *err);
/* value.name, value[index] */
int eval_attribute(struct render *r, const struct value *object, struct string name,
                   struct value *out, struct error *err);
int eval_item(struct render *r, const struct value *object, const struct value *index,
              struct value *out, struct error *err);
/* ERR_ARGUMENT: names what is undefined. */
int undefined_error(const struct value *v, struct error *err);
/* Lists the items that `for` goes over: items of a list or tuple, keys, characters, nothing of
 * undefined. */
int eval_items(struct render *r, const struct value *of, struct list *items, struct error *err);

/* ---- operators.c ---- */
int operator_run(struct render *r, enum operation operation, const struct value *a,
                 const struct value *b, struct value *out, struct error *err);
int operator_slice(struct render *r, const struct value *object, const struct value part[3],
                   struct value *out, struct error *err);
/* ERR_ARGUMENT: values of these types do not go with the operator. */
int operator_refuse(enum operation operation, const struct value *a, const struct value *b,
                    struct error *err);
/* str(). */
int value_as_string(struct render *r, const struct value *v, struct string *out, struct error *err);

/* ---- compare.c ---- */
int compare_equal(struct render *r, const struct value *a, const struct value *b, bool *is_equal,
                  struct error *err);
/* -1, 0 or 1. Errors: ERR_ARGUMENT the two have no order. */
int compare_order(struct render *r, const struct value *a, const struct value *b, int *order,
                  struct error *err);
/* One of the operations from "==" to "not in". */
int compare_run(struct render *r, enum operation operation, const struct value *a,
                const struct value *b, struct value *out, struct error *err);

/* ---- call.c ---- */
/* caller: what {% call %} hands over; NULL = nothing. */
int call_value(struct render *r, const struct value *callee, const struct call *call,
               const struct value *caller, struct value *out, struct error *err);
