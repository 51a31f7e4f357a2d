/* Methods of lists, dicts and loops, and the tables of all methods. The sandbox of transformers
 * refuses methods that change a list or a dict, so here they only say that. */
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/methods.h"
#include "model/jinja/render.h"

/* ---- dicts ---- */

static int run_get(struct render *r, const struct builtin_call *in, struct value *out,
                   struct error *err)
{
    const struct value *found;
    int rc = member_find(r, in->self->dict, in->args[0], &found, err);
    *out = found ? *found : in->args[1] ? *in->args[1] : value_none();
    return rc;
}

enum part { PART_KEY = 1, PART_VALUE = 2, PART_BOTH = 3 };

static int parts_of_dict(struct render *r, const struct dict *dict, enum part part,
                         struct value *out, struct error *err)
{
    int rc = 0;
    struct value *items, *pair;
    TRY(render_step(r, dict->n, err));
    TRY(heap_array(&r->heap, &items, dict->n, err));
    for (size_t i = 0; i < dict->n; i++) {
        items[i] = part == PART_KEY ? dict->pairs[i].key : dict->pairs[i].value;
        if (part != PART_BOTH) continue;
        TRY(heap_array(&r->heap, &pair, 2, err));
        pair[0] = dict->pairs[i].key;
        pair[1] = dict->pairs[i].value;
        TRY(value_make_list(&r->heap, VALUE_TUPLE, pair, 2, &items[i], err));
    }
    TRY(value_make_list(&r->heap, VALUE_LIST, items, dict->n, out, err));
out:
    return rc;
}

static int run_items(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return parts_of_dict(r, in->self->dict, PART_BOTH, out, err);
}

static int run_keys(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    return parts_of_dict(r, in->self->dict, PART_KEY, out, err);
}

static int run_values(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return parts_of_dict(r, in->self->dict, PART_VALUE, out, err);
}

/* ---- lists and loops ---- */

static int run_list_index(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    const struct list *list = in->self->list;
    bool is_it = false;
    size_t i = 0;
    int rc = render_step(r, list->n / 4, err);
    for (; i < list->n && !is_it && !rc; i++)
        rc = compare_equal(r, &list->items[i], in->args[0], &is_it, err);
    if (rc) return rc;
    if (!is_it) return error_set(err, ERR_ARGUMENT, "index: the list does not have the item");
    *out = value_int((int64_t)i - 1);
    return 0;
}

static int run_list_count(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    const struct list *list = in->self->list;
    int64_t n = 0;
    int rc = render_step(r, list->n / 4, err);
    for (size_t i = 0; i < list->n && !rc; i++) {
        bool is_it;
        rc = compare_equal(r, &list->items[i], in->args[0], &is_it, err);
        n += is_it;
    }
    *out = value_int(n);
    return rc;
}

static int run_cycle(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    (void)r;
    if (!in->call.n) return error_set(err, ERR_ARGUMENT, "loop.cycle needs values");
    *out = in->call.values[in->self->loop->index % in->call.n];
    return 0;
}

static int run_changed(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    struct loop *loop = in->self->loop;
    struct value now;
    bool is_equal = false;
    int rc = value_make_list(&r->heap, VALUE_TUPLE, in->call.values, in->call.n, &now, err);
    if (!rc && loop->was_asked) rc = compare_equal(r, &loop->asked, &now, &is_equal, err);
    if (rc) return rc;
    *out = value_bool(!is_equal);
    loop->was_asked = true;
    loop->asked = now;
    return 0;
}

static int run_mutation(struct render *r, const struct builtin_call *in, struct value *out,
                        struct error *err)
{
    (void)r, (void)out;
    return error_set(err, ERR_ARGUMENT, "a template must not change a %s", value_type(in->self));
}

/* ---- the tables ---- */

static const struct builtin of_dict[] = {
    {"get", run_get, 1, false, {"key", "default"}},
    {"items", run_items, 0, false, {0}},
    {"keys", run_keys, 0, false, {0}},
    {"values", run_values, 0, false, {0}},
    {"update", run_mutation, 0, true, {0}},
    {"pop", run_mutation, 0, true, {0}},
    {"popitem", run_mutation, 0, true, {0}},
    {"clear", run_mutation, 0, true, {0}},
    {"setdefault", run_mutation, 0, true, {0}},
};

static const struct builtin of_list[] = {
    {"index", run_list_index, 1, false, {"value"}},
    {"count", run_list_count, 1, false, {"value"}},
    {"append", run_mutation, 0, true, {0}},
    {"extend", run_mutation, 0, true, {0}},
    {"insert", run_mutation, 0, true, {0}},
    {"remove", run_mutation, 0, true, {0}},
    {"pop", run_mutation, 0, true, {0}},
    {"clear", run_mutation, 0, true, {0}},
    {"sort", run_mutation, 0, true, {0}},
    {"reverse", run_mutation, 0, true, {0}},
};

static const struct builtin of_loop[] = {
    {"cycle", run_cycle, 0, true, {0}},
    {"changed", run_changed, 0, true, {0}},
};

struct table {
    const struct builtin *rows;
    size_t n;
};

static struct table table_of(enum value_kind kind)
{
    switch (kind) {
    case VALUE_STRING:
        return (struct table){methods_of_text, (size_t)n_methods_of_text};
    case VALUE_DICT:
        return (struct table){of_dict, sizeof of_dict / sizeof *of_dict};
    case VALUE_LIST:
        return (struct table){of_list, sizeof of_list / sizeof *of_list};
    case VALUE_TUPLE:
        return (struct table){of_list, 2};
    case VALUE_LOOP:
        return (struct table){of_loop, sizeof of_loop / sizeof *of_loop};
    default:
        return (struct table){0};
    }
}

static const struct builtin *find_in(struct table table, struct string name)
{
    for (size_t i = 0; i < table.n; i++) {
        if (string_is(name, table.rows[i].name)) return &table.rows[i];
    }
    return NULL;
}

const struct builtin *method_find(const struct value *self, struct string name)
{
    return find_in(table_of(self->kind), name);
}

bool method_is_known(struct string name)
{
    static const enum value_kind kinds[] = {VALUE_STRING, VALUE_DICT, VALUE_LIST, VALUE_LOOP};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (find_in(table_of(kinds[i]), name)) return true;
    }
    return false;
}
