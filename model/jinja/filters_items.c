/* Filters that go over items. Where Python makes a generator, they make a list. */
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/filters.h"
#include "model/jinja/pystring.h"

/* ---- attributes ---- */

/* A part of a path that is made of digits is an index. */
static struct value part_of_path(struct string part)
{
    int64_t index = 0;
    for (size_t i = 0; i < part.len; i++) {
        if (part.data[i] < '0' || part.data[i] > '9' || i == 18) return value_string(part);
        index = 10 * index + (part.data[i] - '0');
    }
    return part.len ? value_int(index) : value_string(part);
}

int filter_attribute(struct render *r, const struct value *item, const struct value *path,
                     const struct value *otherwise, struct value *out, struct error *err)
{
    int rc = 0;
    *out = *item;
    if (!path || path->kind == VALUE_NONE) return 0;
    if (path->kind == VALUE_INT) return eval_item(r, item, path, out, err);
    if (path->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "an attribute is a text or a number, not a %s",
                         value_type(path));
    }
    for (size_t at = 0; at <= path->text.len && !rc;) {
        size_t end = string_find(path->text, string_of(".", 1), at);
        if (end > path->text.len) end = path->text.len;
        struct value part = part_of_path(string_of(path->text.data + at, end - at));
        struct value object = *out;
        rc = eval_item(r, &object, &part, out, err);
        if (!rc && otherwise && out->kind == VALUE_UNDEFINED) *out = *otherwise;
        at = end + 1;
    }
    return rc;
}

/* ---- one after the other ---- */

int filter_join(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    int rc = 0;
    struct list items;
    struct value *texts, item;
    struct string between = {"", 0};
    TRY(eval_items(r, in->self, &items, err));
    if (in->args[0]) TRY(value_as_string(r, in->args[0], &between, err));
    TRY(heap_array(&r->heap, &texts, items.n, err));
    for (size_t i = 0; i < items.n; i++) {
        struct string text;
        TRY(filter_attribute(r, &items.items[i], in->args[1], NULL, &item, err));
        TRY(value_as_string(r, &item, &text, err));
        texts[i] = value_string(text);
    }
    const struct list all = {.n = items.n, .items = texts};
    TRY(string_join(r, &all, between, out, err));
out:
    return rc;
}

static int end_item(struct render *r, const struct builtin_call *in, bool is_last,
                    struct value *out, struct error *err)
{
    struct list items;
    int rc = eval_items(r, in->self, &items, err);
    if (rc) return rc;
    *out = value_undefined(string_of("an item of an empty list", 24));
    if (items.n) *out = items.items[is_last ? items.n - 1 : 0];
    return 0;
}

int filter_first(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    return end_item(r, in, false, out, err);
}

int filter_last(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    return end_item(r, in, true, out, err);
}

int filter_list(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    struct list items;
    int rc = eval_items(r, in->self, &items, err);
    return rc ? rc : value_make_list(&r->heap, VALUE_LIST, items.items, items.n, out, err);
}

int filter_reverse(struct render *r, const struct builtin_call *in, struct value *out,
                   struct error *err)
{
    int rc = 0;
    struct list items;
    struct value *reversed;
    TRY(eval_items(r, in->self, &items, err));
    TRY(render_step(r, items.n, err));
    TRY(heap_array(&r->heap, &reversed, items.n, err));
    for (size_t i = 0; i < items.n; i++)
        reversed[i] = items.items[items.n - 1 - i];
    const struct list all = {.n = items.n, .items = reversed};
    if (in->self->kind == VALUE_STRING) return string_join(r, &all, string_of("", 0), out, err);
    TRY(value_make_list(&r->heap, VALUE_LIST, reversed, items.n, out, err));
out:
    return rc;
}

int filter_items(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    const struct call nothing = {0};
    if (in->self->kind == VALUE_UNDEFINED) return filter_list(r, in, out, err);
    if (in->self->kind != VALUE_DICT) {
        return error_set(err, ERR_ARGUMENT, "items: a dict is needed, not a %s",
                         value_type(in->self));
    }
    return builtin_run(r, method_find(in->self, string_of("items", 5)), in->self, &nothing, out,
                       err);
}

int filter_sum(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    int rc = 0;
    struct list items;
    struct value total = in->args[1] ? *in->args[1] : value_int(0), item;
    TRY(eval_items(r, in->self, &items, err));
    for (size_t i = 0; i < items.n; i++) {
        TRY(filter_attribute(r, &items.items[i], in->args[0], NULL, &item, err));
        TRY(operator_run(r, OPERATION_ADD, &total, &item, &total, err));
    }
    *out = total;
out:
    return rc;
}

/* Lists of n items each; the last one is filled up with the argument fill_with. */
int filter_batch(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    int rc = 0;
    struct list items;
    struct value *batches, *rest;
    int64_t n = 0;
    TRY(argument_int(in, 0, &n, err));
    TRY(eval_items(r, in->self, &items, err));
    if (n < 1) return error_set(err, ERR_ARGUMENT, "batch: at least 1 item each");
    size_t size = (uint64_t)n < items.n + 1 ? (size_t)n : items.n + 1;
    size_t n_batches = (items.n + size - 1) / size, n_last = items.n % size;
    bool is_filled = n_last && argument_is_given(in, 1);
    TRY(heap_array(&r->heap, &batches, n_batches, err));
    for (size_t i = 0; i < n_batches; i++) {
        size_t left = items.n - i * size;
        TRY(value_make_list(&r->heap, VALUE_LIST, items.items + i * size, left < size ? left : size,
                            &batches[i], err));
    }
    if (is_filled) {
        TRY(render_step(r, (size_t)n, err));
        TRY(heap_array(&r->heap, &rest, (size_t)n, err));
        for (size_t i = 0; i < (size_t)n; i++) {
            rest[i] = i < n_last ? items.items[items.n - n_last + i] : *in->args[1];
        }
        TRY(value_make_list(&r->heap, VALUE_LIST, rest, (size_t)n, &batches[n_batches - 1], err));
    }
    TRY(value_make_list(&r->heap, VALUE_LIST, batches, n_batches, out, err));
out:
    return rc;
}

/* ---- map ---- */

static const struct value *named_argument(const struct call *call, const char *name)
{
    for (size_t i = 0; i < call->n_named; i++) {
        if (string_is(call->named[i].name, name)) return &call->named[i].value;
    }
    return NULL;
}

/* Finds the builtin that argument i names; the arguments after it are the builtin's. */
static int find_builtin(const struct call *call, size_t i,
                        const struct builtin *(*find)(struct string), const char *what,
                        const struct builtin **builtin, struct call *rest, struct error *err)
{
    const struct value *name = &call->values[i];
    if (name->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "the name of a %s is a text, not a %s", what,
                         value_type(name));
    }
    *builtin = find(name->text);
    *rest = (struct call){call->n - i - 1, call->n_named, call->values + i + 1, call->named};
    if (*builtin) return 0;
    return error_set(err, ERR_UNSUPPORTED, "the %s '%.*s' is not supported", what,
                     string_shown(name->text), name->text.data);
}

/* Like jinja2, a value that is false has no items here, even where it could not have any. */
static int items_if_true(struct render *r, const struct builtin_call *in, struct list *items,
                         struct error *err)
{
    *items = (struct list){0};
    return value_is_true(in->self) ? eval_items(r, in->self, items, err) : 0;
}

int filter_map(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    int rc = 0;
    struct list items;
    struct value *mapped;
    const struct builtin *builtin = NULL;
    struct call rest;
    const struct value *path = in->call.n ? NULL : named_argument(&in->call, "attribute");
    const struct value *otherwise = named_argument(&in->call, "default");
    if (!in->call.n && !path) {
        return error_set(err, ERR_ARGUMENT, "map: an attribute or a filter is needed");
    }
    if (!path) TRY(find_builtin(&in->call, 0, filter_find, "filter", &builtin, &rest, err));
    TRY(items_if_true(r, in, &items, err));
    TRY(heap_array(&r->heap, &mapped, items.n, err));
    for (size_t i = 0; i < items.n; i++) {
        TRY(render_step(r, 1, err));
        TRY(builtin ? builtin_run(r, builtin, &items.items[i], &rest, &mapped[i], err)
                    : filter_attribute(r, &items.items[i], path, otherwise, &mapped[i], err));
    }
    TRY(value_make_list(&r->heap, VALUE_LIST, mapped, items.n, out, err));
out:
    return rc;
}

/* ---- select and reject ---- */

static int choose(struct render *r, const struct builtin_call *in, bool has_path, bool wanted,
                  struct value *out, struct error *err)
{
    int rc = 0;
    struct list items;
    struct value *kept, tested;
    size_t n = 0, first = has_path;
    const struct builtin *test = NULL;
    struct call rest;
    if (in->call.n < first) return error_set(err, ERR_ARGUMENT, "an attribute is needed");
    if (in->call.n > first) {
        TRY(find_builtin(&in->call, first, test_find, "test", &test, &rest, err));
    }
    TRY(items_if_true(r, in, &items, err));
    TRY(heap_array(&r->heap, &kept, items.n, err));
    for (size_t i = 0; i < items.n; i++) {
        TRY(render_step(r, 1, err));
        TRY(filter_attribute(r, &items.items[i], has_path ? in->call.values : NULL, NULL, &tested,
                             err));
        if (test) TRY(builtin_run(r, test, &tested, &rest, &tested, err));
        if (value_is_true(&tested) == wanted) kept[n++] = items.items[i];
    }
    TRY(value_make_list(&r->heap, VALUE_LIST, kept, n, out, err));
out:
    return rc;
}

int filter_select(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    return choose(r, in, false, true, out, err);
}

int filter_reject(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    return choose(r, in, false, false, out, err);
}

int filter_selectattr(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return choose(r, in, true, true, out, err);
}

int filter_rejectattr(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return choose(r, in, true, false, out, err);
}
