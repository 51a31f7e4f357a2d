/* Filters that compare items. Texts are compared without their case unless it is asked for. */
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/filters.h"
#include "model/jinja/pystring.h"

struct keyed {
    struct value key, item;
};

static int without_case(struct render *r, bool keeps_case, struct value *key, struct error *err)
{
    if (keeps_case || key->kind != VALUE_STRING) return 0;
    return string_change_case(r, key->text, STRING_LOWER, key, err);
}

/* Sets what an item is compared by: itself, or its attribute. */
typedef int key_fn(struct render *r, const struct value *item, const struct value *path,
                   bool keeps_case, struct value *key, struct error *err);

static int one_key(struct render *r, const struct value *item, const struct value *path,
                   bool keeps_case, struct value *key, struct error *err)
{
    int rc = filter_attribute(r, item, path, NULL, key, err);
    return rc ? rc : without_case(r, keeps_case, key, err);
}

static size_t count_paths(const struct value *path)
{
    size_t n = 1;
    for (size_t i = 0; path && path->kind == VALUE_STRING && i < path->text.len; i++)
        n += path->text.data[i] == ',';
    return n;
}

/* As in jinja2 it is a list, also of one key, because items of lists that are equal need no order.
 * The path "a,b" means two attributes. */
static int list_key(struct render *r, const struct value *item, const struct value *path,
                    bool keeps_case, struct value *key, struct error *err)
{
    int rc = 0;
    struct value *parts, part = value_none();
    size_t n = count_paths(path);
    if (path) part = *path;
    TRY(heap_array(&r->heap, &parts, n, err));
    for (size_t i = 0, at = 0; i < n; i++) {
        if (n > 1) {
            size_t end = string_find(path->text, string_of(",", 1), at);
            if (end > path->text.len) end = path->text.len;
            part = value_string(string_of(path->text.data + at, end - at));
            at = end + 1;
        }
        TRY(one_key(r, item, &part, keeps_case, &parts[i], err));
    }
    TRY(value_make_list(&r->heap, VALUE_LIST, parts, n, key, err));
out:
    return rc;
}

static int make_keys(struct render *r, const struct list *items, const struct value *path,
                     bool keeps_case, key_fn *make_key, struct keyed **keyed, struct error *err)
{
    int rc = 0;
    TRY(render_step(r, items->n, err));
    TRY(heap_array(&r->heap, keyed, items->n, err));
    for (size_t i = 0; i < items->n; i++) {
        (*keyed)[i].item = items->items[i];
        TRY(make_key(r, &items->items[i], path, keeps_case, &(*keyed)[i].key, err));
    }
out:
    return rc;
}

/* ---- sort ---- */

/* Merges from[begin, middle) and from[middle, end) into `to`; of equal ones the left comes first.
 * Python calls "<" alone, so what has no order with itself is not compared. */
static int merge(struct render *r, const struct keyed *from, struct keyed *to, size_t begin,
                 size_t middle, size_t end, bool is_reverse, struct error *err)
{
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; i++) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
            int order, rc = compare_order(r, &from[right].key, &from[left].key, &order, err);
            if (!rc) rc = render_step(r, 1, err);
            if (rc) return rc;
            takes_right = is_reverse ? order > 0 : order < 0;
        }
        to[i] = takes_right ? from[right++] : from[left++];
    }
    return 0;
}

static int sort(struct render *r, struct keyed *keyed, size_t n, bool is_reverse, struct error *err)
{
    int rc = 0;
    struct keyed *from = keyed, *to;
    TRY(heap_array(&r->heap, &to, n, err));
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = begin + width < n ? begin + width : n;
            size_t end = begin + 2 * width < n ? begin + 2 * width : n;
            TRY(merge(r, from, to, begin, middle, end, is_reverse, err));
        }
        struct keyed *other = from;
        from = to;
        to = other;
    }
    if (from != keyed) memcpy(keyed, from, n * sizeof *keyed);
out:
    return rc;
}

static int take_items(struct render *r, const struct keyed *keyed, size_t n, struct value *out,
                      struct error *err)
{
    struct value *items;
    int rc = heap_array(&r->heap, &items, n, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++)
        items[i] = keyed[i].item;
    return value_make_list(&r->heap, VALUE_LIST, items, n, out, err);
}

/* sort(reverse, case_sensitive, attribute) */
int filter_sort(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    int rc = 0;
    struct list items;
    struct keyed *keyed;
    TRY(eval_items(r, in->self, &items, err));
    TRY(make_keys(r, &items, in->args[2], argument_is_true(in, 1), list_key, &keyed, err));
    TRY(sort(r, keyed, items.n, argument_is_true(in, 0), err));
    TRY(take_items(r, keyed, items.n, out, err));
out:
    return rc;
}

/* dictsort(case_sensitive, by, reverse) */
int filter_dictsort(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    int rc = 0;
    struct string by = {"key", 3};
    struct value pairs, path;
    struct keyed *keyed;
    const struct call nothing = {0};
    if (in->self->kind != VALUE_DICT) {
        return error_set(err, ERR_ARGUMENT, "dictsort: a dict is needed, not a %s",
                         value_type(in->self));
    }
    TRY(argument_text(in, 1, &by, err));
    if (!string_is(by, "key") && !string_is(by, "value")) {
        return error_set(err, ERR_ARGUMENT, "dictsort: by must be key or value");
    }
    path = value_int(string_is(by, "value"));
    TRY(builtin_run(r, method_find(in->self, string_of("items", 5)), in->self, &nothing, &pairs,
                    err));
    TRY(make_keys(r, pairs.list, &path, argument_is_true(in, 0), one_key, &keyed, err));
    TRY(sort(r, keyed, pairs.list->n, argument_is_true(in, 2), err));
    TRY(take_items(r, keyed, pairs.list->n, out, err));
out:
    return rc;
}

/* ---- unique, min, max ---- */

static int check_hashable(const struct value *key, struct error *err)
{
    if (value_is_hashable(key)) return 0;
    return error_set(err, ERR_ARGUMENT, "unique: a %s cannot be compared", value_type(key));
}

/* unique(case_sensitive, attribute): the first of those with equal keys. */
int filter_unique(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    int rc = 0;
    struct list items;
    struct keyed *keyed;
    size_t n = 0;
    TRY(eval_items(r, in->self, &items, err));
    TRY(make_keys(r, &items, in->args[1], argument_is_true(in, 0), one_key, &keyed, err));
    for (size_t i = 0; i < items.n; i++) {
        bool is_there = false;
        TRY(check_hashable(&keyed[i].key, err));
        TRY(render_step(r, n / 4, err));
        for (size_t other = 0; other < n && !is_there; other++)
            TRY(compare_equal(r, &keyed[other].key, &keyed[i].key, &is_there, err));
        if (!is_there) keyed[n++] = keyed[i];
    }
    TRY(take_items(r, keyed, n, out, err));
out:
    return rc;
}

/* min(case_sensitive, attribute): of equal ones the first. */
static int extreme(struct render *r, const struct builtin_call *in, int wanted, struct value *out,
                   struct error *err)
{
    int rc = 0, order;
    struct list items;
    struct keyed *keyed;
    size_t best = 0;
    TRY(eval_items(r, in->self, &items, err));
    TRY(make_keys(r, &items, in->args[1], argument_is_true(in, 0), one_key, &keyed, err));
    *out = value_undefined(string_of("an item of an empty list", 24));
    if (!items.n) goto out;
    for (size_t i = 1; i < items.n; i++) {
        TRY(compare_order(r, &keyed[i].key, &keyed[best].key, &order, err));
        if (order == wanted) best = i;
    }
    *out = keyed[best].item;
out:
    return rc;
}

int filter_min(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    return extreme(r, in, -1, out, err);
}

int filter_max(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    return extreme(r, in, 1, out, err);
}
