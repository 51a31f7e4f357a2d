/* Runs statements. */
#include "model/jinja/render.h"

#include <string.h>

#include "model/jinja/literal.h"

int render_step(struct render *r, size_t n, struct error *err)
{
    if ((int64_t)n > r->limits->steps - r->n_steps) {
        return error_set(err, ERR_EXHAUSTED, "the template takes more than %lld steps",
                         (long long)r->limits->steps);
    }
    r->n_steps += (int64_t)n;
    return 0;
}

int render_bytes(struct render *r, size_t n, struct error *err)
{
    return render_step(r, n / VALUE_STEP_BYTES, err);
}

int render_enter(struct render *r, struct error *err)
{
    if (r->depth == r->limits->depth) {
        return error_set(err, ERR_EXHAUSTED, "the template has more than %d levels",
                         r->limits->depth);
    }
    r->depth++;
    return 0;
}

/* ---- scopes ---- */

int scope_open(struct render *r, struct scope *parent, struct scope **scope, struct error *err)
{
    int rc = heap_array(&r->heap, scope, 1, err);
    if (!rc) (*scope)->parent = parent;
    return rc;
}

int scope_set(struct render *r, struct scope *scope, int symbol, const struct value *value,
              struct error *err)
{
    for (size_t i = 0; i < scope->n; i++) {
        if (scope->variables[i].symbol != symbol) continue;
        scope->variables[i].value = *value;
        return 0;
    }
    int rc = heap_grow(&r->heap, &scope->variables, &scope->capacity, scope->n, err);
    if (!rc) scope->variables[scope->n++] = (struct variable){symbol, *value};
    return rc;
}

/* ---- assignments ---- */

static int set_attribute(struct render *r, const struct target *target, const struct value *value,
                         struct error *err)
{
    const struct expr name = {.kind = EXPR_NAME,
                              .line = target->line,
                              .name = {target->symbol, r->jinja->symbols.names[target->symbol]}};
    struct value object, key = value_string(target->attribute);
    int rc = eval(r, &name, &object, err);
    if (rc) return rc;
    if (object.kind != VALUE_NAMESPACE) {
        return error_set(err, ERR_ARGUMENT, "an attribute of a %s cannot be set",
                         value_type(&object));
    }
    return member_set(r, object.dict, &key, value, err);
}

static int assign(struct render *r, const struct target *target, const struct value *value,
                  struct error *err)
{
    int rc = 0;
    struct list items;
    if (target->kind == TARGET_NAME) return scope_set(r, r->scope, target->symbol, value, err);
    if (target->kind == TARGET_ATTRIBUTE) return set_attribute(r, target, value, err);
    TRY(eval_items(r, value, &items, err));
    if (items.n != target->n) {
        rc = error_set(err, ERR_ARGUMENT, "%zu values for %zu variables", items.n, target->n);
        goto out;
    }
    for (size_t i = 0; i < items.n; i++)
        TRY(assign(r, &target->items[i], &items.items[i], err));
out:
    return rc;
}

/* ---- output ---- */

static int write_text(struct render *r, struct string text, struct error *err)
{
    size_t most = r->limits->memory_bytes;
    int rc = render_bytes(r, text.len, err);
    if (rc) return rc;
    if (text.len > most - r->out->len) {
        return error_set(err, ERR_EXHAUSTED, "the template writes more than %zu bytes", most);
    }
    return buffer_append(r->out, text.data, text.len, err);
}

static int write_value(struct render *r, const struct value *v, struct error *err)
{
    size_t begin = r->out->len;
    if (v->kind == VALUE_STRING) return write_text(r, v->text, err);
    int rc = literal_print(r->out, v, false, r->limits->memory_bytes, err);
    return rc ? rc : render_bytes(r, r->out->len - begin, err);
}

static int print(struct render *r, const struct expr *e, struct error *err)
{
    struct value v;
    int rc = eval(r, e, &v, err);
    return rc ? rc : write_value(r, &v, err);
}

int render_capture(struct render *r, const struct statement *body, struct scope *scope,
                   struct value *out, struct error *err)
{
    size_t begin = r->out->len;
    struct scope *outer = r->scope;
    r->scope = scope;
    int rc = render_body(r, body, err);
    r->scope = outer;
    if (!rc) {
        struct string text = string_of("", 0);
        size_t len = r->out->len - begin;
        if (len) text = string_of((const char *)r->out->data + begin, len);
        rc = value_copy_string(&r->heap, text, out, err);
    }
    r->out->len = begin;
    return rc;
}

/* ---- for ---- */

static int loop_scope(struct render *r, struct scope *outer, struct error *err)
{
    if (r->scope != outer && !r->scope->is_captured) {
        r->scope->n = 0;
        return 0;
    }
    return scope_open(r, outer, &r->scope, err);
}

/* Leaves only the items for which the loop's condition holds. */
static int filter_items(struct render *r, const struct statement *s, struct list *items,
                        struct error *err)
{
    int rc = 0;
    struct value *kept, test;
    struct scope *outer = r->scope;
    size_t n = 0;
    if (!s->loop.test) return 0;
    TRY(heap_array(&r->heap, &kept, items->n, err));
    for (size_t i = 0; i < items->n; i++) {
        TRY(loop_scope(r, outer, err));
        TRY(assign(r, &s->loop.target, &items->items[i], err));
        TRY(eval(r, s->loop.test, &test, err));
        if (value_is_true(&test)) kept[n++] = items->items[i];
    }
    *items = (struct list){.n = n, .items = kept};
out:
    r->scope = outer;
    return rc;
}

static int run_loop(struct render *r, const struct statement *s, struct loop *loop,
                    struct error *err)
{
    int rc = 0;
    struct scope *outer = r->scope;
    const struct value self = {.kind = VALUE_LOOP, .loop = loop};
    for (; loop->index < loop->n && r->jump != JUMP_BREAK; loop->index++) {
        TRY(render_step(r, 1, err));
        TRY(loop_scope(r, outer, err));
        TRY(assign(r, &s->loop.target, &loop->items[loop->index], err));
        TRY(scope_set(r, r->scope, r->jinja->symbols.loop, &self, err));
        r->jump = JUMP_NONE;
        TRY(render_body(r, s->loop.body, err));
        loop->has_run = loop->has_run || r->jump == JUMP_NONE;
    }
    r->jump = JUMP_NONE;
out:
    r->scope = outer;
    return rc;
}

static int render_for(struct render *r, const struct statement *s, struct error *err)
{
    int rc = 0;
    struct value of;
    struct list items;
    struct loop *loop;
    struct scope *outer = r->scope;
    TRY(eval(r, s->loop.items, &of, err));
    TRY(eval_items(r, &of, &items, err));
    TRY(filter_items(r, s, &items, err));
    TRY(heap_array(&r->heap, &loop, 1, err));
    *loop = (struct loop){.items = items.items, .n = items.n};
    TRY(run_loop(r, s, loop, err));
    if (loop->has_run || !s->loop.otherwise) goto out;
    /* As in jinja2, it also runs if each body was left with break or continue. */
    TRY(scope_open(r, outer, &r->scope, err));
    rc = render_body(r, s->loop.otherwise, err);
out:
    r->scope = outer;
    return rc;
}

/* ---- the others ---- */

static int render_if(struct render *r, const struct statement *s, struct error *err)
{
    struct value test;
    for (const struct branch *b = &s->branch; b; b = b->next) {
        int rc = b->test ? eval(r, b->test, &test, err) : 0;
        if (rc) return rc;
        if (!b->test || value_is_true(&test)) return render_body(r, b->body, err);
    }
    return 0;
}

static int render_set(struct render *r, const struct statement *s, struct error *err)
{
    struct value v;
    int rc = eval(r, s->set.value, &v, err);
    return rc ? rc : assign(r, &s->set.target, &v, err);
}

/* The text of a body after the filters of its tag. */
static int capture_filtered(struct render *r, const struct statement *body,
                            const struct expr *filter, struct value *out, struct error *err)
{
    int rc = 0;
    struct scope *scope;
    TRY(scope_open(r, r->scope, &scope, err));
    TRY(render_capture(r, body, scope, out, err));
    if (filter) TRY(eval_block_filter(r, filter, out, out, err));
out:
    return rc;
}

static int render_set_block(struct render *r, const struct statement *s, struct error *err)
{
    struct value v;
    int rc = capture_filtered(r, s->set.body, s->set.filter, &v, err);
    return rc ? rc : assign(r, &s->set.target, &v, err);
}

static int render_filter(struct render *r, const struct statement *s, struct error *err)
{
    struct value v;
    int rc = capture_filtered(r, s->filter.body, s->filter.filter, &v, err);
    return rc ? rc : write_value(r, &v, err);
}

static int make_macro(struct render *r, const struct macro *macro, struct value *out,
                      struct error *err)
{
    struct macro_value *made;
    int rc = heap_array(&r->heap, &made, 1, err);
    if (rc) return rc;
    *made = (struct macro_value){macro, r->scope};
    for (struct scope *s = r->scope; s; s = s->parent)
        s->is_captured = true;
    *out = (struct value){.kind = VALUE_MACRO, .macro = made};
    return 0;
}

static int render_macro(struct render *r, const struct statement *s, struct error *err)
{
    struct value v;
    int rc = make_macro(r, &s->macro.macro, &v, err);
    return rc ? rc : scope_set(r, r->scope, s->macro.symbol, &v, err);
}

static int render_call(struct render *r, const struct statement *s, struct error *err)
{
    int rc = 0;
    struct value callee, caller, v;
    struct call call;
    TRY(make_macro(r, &s->call.caller, &caller, err));
    TRY(eval(r, s->call.call->call.callee, &callee, err));
    TRY(eval_arguments(r, &s->call.call->call.arguments, &call, err));
    TRY(call_value(r, &callee, &call, &caller, &v, err));
    TRY(write_value(r, &v, err));
out:
    return rc;
}

/* Values are computed outside of the scope. */
static int render_with(struct render *r, const struct statement *s, struct error *err)
{
    int rc = 0;
    struct scope *outer = r->scope, *inner;
    TRY(scope_open(r, outer, &inner, err));
    for (size_t i = 0; i < s->with.n; i++) {
        struct value v;
        TRY(eval(r, s->with.values[i], &v, err));
        r->scope = inner;
        rc = assign(r, &s->with.targets[i], &v, err);
        r->scope = outer;
        if (rc) goto out;
    }
    r->scope = inner;
    rc = render_body(r, s->with.body, err);
out:
    r->scope = outer;
    return rc;
}

static int render_statement(struct render *r, const struct statement *s, struct error *err)
{
    switch (s->kind) {
    case STATEMENT_TEXT:
        return write_text(r, s->text, err);
    case STATEMENT_PRINT:
        return print(r, s->value, err);
    case STATEMENT_IF:
        return render_if(r, s, err);
    case STATEMENT_FOR:
        return render_for(r, s, err);
    case STATEMENT_SET:
        return render_set(r, s, err);
    case STATEMENT_SET_BLOCK:
        return render_set_block(r, s, err);
    case STATEMENT_MACRO:
        return render_macro(r, s, err);
    case STATEMENT_CALL:
        return render_call(r, s, err);
    case STATEMENT_FILTER:
        return render_filter(r, s, err);
    case STATEMENT_WITH:
        return render_with(r, s, err);
    case STATEMENT_BREAK:
        r->jump = JUMP_BREAK;
        return 0;
    case STATEMENT_CONTINUE:
        r->jump = JUMP_CONTINUE;
        return 0;
    }
    return 0;
}

int render_body(struct render *r, const struct statement *s, struct error *err)
{
    int rc = render_enter(r, err);
    if (rc) return rc;
    for (; s && !rc && r->jump == JUMP_NONE; s = s->next) {
        r->line = s->line;
        rc = render_step(r, 1, err);
        if (!rc) rc = render_statement(r, s, err);
    }
    r->depth--;
    return rc;
}
