/* Computes expressions. */
#include <string.h>

#include "model/jinja/render.h"

/* ---- names ---- */

static void eval_name(struct render *r, const struct expr *e, struct value *out)
{
    for (const struct scope *scope = r->scope; scope; scope = scope->parent) {
        for (size_t i = 0; i < scope->n; i++) {
            if (scope->variables[i].symbol != e->name.symbol) continue;
            *out = scope->variables[i].value;
            return;
        }
    }
    *out = r->globals[e->name.symbol];
    bool is_absent = out->kind == VALUE_UNDEFINED;
    if (!is_absent) return;
    *out = value_undefined(e->name.name);
    const struct builtin *function = function_find(e->name.name);
    if (function) *out = (struct value){.kind = VALUE_FUNCTION, .function = function};
}

/* ---- literals ---- */

static int eval_list(struct render *r, const struct expr *e, enum value_kind kind,
                     struct value *out, struct error *err)
{
    int rc = 0;
    struct value *items;
    TRY(heap_array(&r->heap, &items, e->items.n, err));
    for (size_t i = 0; i < e->items.n; i++)
        TRY(eval(r, e->items.items[i], &items[i], err));
    TRY(value_make_list(&r->heap, kind, items, e->items.n, out, err));
out:
    return rc;
}

static int eval_dict(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = 0;
    struct value made, key, value;
    TRY(value_make_dict(&r->heap, VALUE_DICT, e->items.n / 2, &made, err));
    for (size_t i = 0; i + 1 < e->items.n; i += 2) {
        TRY(eval(r, e->items.items[i], &key, err));
        TRY(eval(r, e->items.items[i + 1], &value, err));
        TRY(member_set(r, made.dict, &key, &value, err));
    }
    *out = made;
out:
    return rc;
}

/* ---- operators ---- */

static int eval_signed(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    const struct value zero = value_int(0);
    int rc = eval(r, e->operand, out, err);
    if (rc) return rc;
    if (out->kind == VALUE_UNDEFINED) return undefined_error(out, err);
    if (e->kind == EXPR_MINUS && out->kind == VALUE_FLOAT) {
        out->number = -out->number;
        return 0;
    }
    enum operation operation = e->kind == EXPR_MINUS ? OPERATION_SUBTRACT : OPERATION_ADD;
    return operator_run(r, operation, &zero, out, out, err);
}

static int eval_binary(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    struct value left, right;
    int rc = eval(r, e->binary.left, &left, err);
    if (rc) return rc;
    bool is_settled = (e->kind == EXPR_AND && !value_is_true(&left)) ||
                      (e->kind == EXPR_OR && value_is_true(&left));
    if (is_settled) {
        *out = left;
        return 0;
    }
    rc = eval(r, e->binary.right, &right, err);
    if (rc) return rc;
    if (e->kind == EXPR_BINARY) {
        return operator_run(r, e->binary.operation, &left, &right, out, err);
    }
    *out = right;
    return 0;
}

static int eval_comparison(struct render *r, const struct expr *e, struct value *out,
                           struct error *err)
{
    int rc = 0;
    struct value left, right;
    TRY(eval(r, e->compare.left, &left, err));
    for (size_t i = 0; i < e->compare.n; i++) {
        TRY(eval(r, e->compare.rest[i].right, &right, err));
        TRY(operator_run(r, e->compare.rest[i].operation, &left, &right, out, err));
        if (!value_is_true(out)) break;
        left = right;
    }
out:
    return rc;
}

static int eval_not(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = eval(r, e->operand, out, err);
    if (!rc) *out = value_bool(!value_is_true(out));
    return rc;
}

static int eval_choice(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = eval(r, e->choice.test, out, err);
    if (rc) return rc;
    const struct expr *chosen = value_is_true(out) ? e->choice.then : e->choice.otherwise;
    if (chosen) return eval(r, chosen, out, err);
    *out = value_undefined(string_of("the value without else", 22));
    return 0;
}

static int eval_slice(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = 0;
    struct value object, part[3];
    const struct expr *const parts[3] = {e->slice.begin, e->slice.end, e->slice.step};
    TRY(eval(r, e->slice.object, &object, err));
    for (int i = 0; i < 3; i++) {
        part[i] = value_none();
        if (parts[i]) TRY(eval(r, parts[i], &part[i], err));
    }
    if (object.kind == VALUE_UNDEFINED) return undefined_error(&object, err);
    TRY(operator_slice(r, &object, part, out, err));
out:
    return rc;
}

/* ---- calls ---- */

/* The values of *list and **dict of a call; empty and None where the call has none. */
static int eval_more(struct render *r, const struct arguments *arguments, struct list *more,
                     struct value *more_named, struct error *err)
{
    int rc = 0;
    struct value list;
    *more = (struct list){0};
    *more_named = value_none();
    if (arguments->more) {
        TRY(eval(r, arguments->more, &list, err));
        TRY(eval_items(r, &list, more, err));
    }
    if (!arguments->more_named) goto out;
    TRY(eval(r, arguments->more_named, more_named, err));
    if (more_named->kind != VALUE_DICT) {
        rc = error_set(err, ERR_ARGUMENT, "** needs a dict, not a %s", value_type(more_named));
        goto out;
    }
    for (size_t i = 0; i < more_named->dict->n; i++) {
        if (more_named->dict->pairs[i].key.kind == VALUE_STRING) continue;
        rc = error_set(err, ERR_ARGUMENT, "a key of ** is no text");
        goto out;
    }
out:
    return rc;
}

int eval_arguments(struct render *r, const struct arguments *arguments, struct call *call,
                   struct error *err)
{
    int rc = 0;
    struct value *values = NULL, more_named;
    struct named_value *named = NULL;
    struct list more;
    TRY(eval_more(r, arguments, &more, &more_named, err));
    const struct dict none = {0}, *dict = more_named.kind == VALUE_DICT ? more_named.dict : &none;
    size_t n_own = arguments->values.n, n_own_named = arguments->n_named;
    size_t n = n_own + more.n, n_named = n_own_named + dict->n;
    if (n) TRY(heap_array(&r->heap, &values, n, err));
    if (n_named) TRY(heap_array(&r->heap, &named, n_named, err));
    for (size_t i = 0; i < n; i++) {
        if (i >= n_own)
            values[i] = more.items[i - n_own];
        else
            TRY(eval(r, arguments->values.items[i], &values[i], err));
    }
    for (size_t i = 0; i < n_named; i++) {
        if (i >= n_own_named) {
            const struct pair *pair = &dict->pairs[i - n_own_named];
            named[i] = (struct named_value){pair->key.text, pair->value};
            continue;
        }
        named[i].name = arguments->named[i].name;
        TRY(eval(r, arguments->named[i].value, &named[i].value, err));
    }
    *call = (struct call){n, n_named, values, named};
out:
    return rc;
}

static int eval_call(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = 0;
    struct call call;
    struct value callee;
    const struct expr *of = e->call.callee;
    TRY(eval(r, of, &callee, err));
    TRY(eval_arguments(r, &e->call.arguments, &call, err));
    if (callee.kind == VALUE_UNDEFINED) return undefined_error(&callee, err);
    TRY(call_value(r, &callee, &call, NULL, out, err));
out:
    return rc;
}

/* A filter or a test of a value. */
static int apply(struct render *r, const struct expr *e, const struct value *self,
                 struct value *out, struct error *err)
{
    struct call call;
    int rc = eval_arguments(r, &e->apply.arguments, &call, err);
    if (!rc) rc = builtin_run(r, e->apply.builtin, self, &call, out, err);
    if (!rc && e->apply.is_negated) *out = value_bool(!value_is_true(out));
    return rc;
}

static int eval_filter(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    struct value self;
    int rc = eval(r, e->apply.value, &self, err);
    return rc ? rc : apply(r, e, &self, out, err);
}

int eval_block_filter(struct render *r, const struct expr *e, const struct value *block,
                      struct value *out, struct error *err)
{
    struct value self = *block;
    int rc = render_enter(r, err);
    if (rc) return rc;
    if (e->apply.value) rc = eval_block_filter(r, e->apply.value, block, &self, err);
    if (!rc) rc = apply(r, e, &self, out, err);
    r->depth--;
    return rc;
}

static int eval_attribute_of(struct render *r, const struct expr *e, struct value *out,
                             struct error *err)
{
    struct value object;
    int rc = eval(r, e->attribute.object, &object, err);
    return rc ? rc : eval_attribute(r, &object, e->attribute.name, out, err);
}

static int eval_item_of(struct render *r, const struct expr *e, struct value *out,
                        struct error *err)
{
    struct value object, index;
    int rc = eval(r, e->item.object, &object, err);
    if (!rc) rc = eval(r, e->item.index, &index, err);
    return rc ? rc : eval_item(r, &object, &index, out, err);
}

static int eval_kind(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    switch (e->kind) {
    case EXPR_CONSTANT:
        *out = e->constant;
        return 0;
    case EXPR_NAME:
        eval_name(r, e, out);
        return 0;
    case EXPR_LIST:
        return eval_list(r, e, VALUE_LIST, out, err);
    case EXPR_TUPLE:
        return eval_list(r, e, VALUE_TUPLE, out, err);
    case EXPR_DICT:
        return eval_dict(r, e, out, err);
    case EXPR_NOT:
        return eval_not(r, e, out, err);
    case EXPR_MINUS:
    case EXPR_PLUS:
        return eval_signed(r, e, out, err);
    case EXPR_AND:
    case EXPR_OR:
    case EXPR_BINARY:
        return eval_binary(r, e, out, err);
    case EXPR_COMPARE:
        return eval_comparison(r, e, out, err);
    case EXPR_IF:
        return eval_choice(r, e, out, err);
    case EXPR_ATTRIBUTE:
        return eval_attribute_of(r, e, out, err);
    case EXPR_ITEM:
        return eval_item_of(r, e, out, err);
    case EXPR_SLICE:
        return eval_slice(r, e, out, err);
    case EXPR_CALL:
        return eval_call(r, e, out, err);
    case EXPR_FILTER:
    case EXPR_TEST:
        return eval_filter(r, e, out, err);
    }
    return 0;
}

int eval(struct render *r, const struct expr *e, struct value *out, struct error *err)
{
    int rc = render_enter(r, err);
    if (rc) return rc;
    r->line = e->line;
    rc = render_step(r, 1, err);
    if (!rc) rc = eval_kind(r, e, out, err);
    r->depth--;
    return rc;
}
