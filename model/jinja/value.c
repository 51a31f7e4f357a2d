/* Values of a rendering: texts, truth, equality, order, dicts. */
#include "model/jinja/value.h"

#include <math.h>
#include <string.h>

enum { STEP_PAIRS = 8, SHOWN_BYTES = 60 };

int string_cut(struct string text, size_t most)
{
    size_t len = text.len < most ? text.len : most;
    while (len > 0 && len < text.len && (text.data[len] & 0xc0) == 0x80)
        len--;
    return (int)len;
}

int string_shown(struct string text)
{
    return string_cut(text, SHOWN_BYTES);
}

double value_as_double(const struct value *v)
{
    return v->kind == VALUE_FLOAT ? v->number : (double)v->integer;
}

bool value_is_true(const struct value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
    case VALUE_INT:
        return v->integer != 0;
    case VALUE_FLOAT:
        return v->number != 0;
    case VALUE_STRING:
        return v->text.len != 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return v->list->n != 0;
    case VALUE_DICT:
        return v->dict->n != 0;
    default:
        return true;
    }
}

static bool lists_equal(const struct list *a, const struct list *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!value_equal(&a->items[i], &b->items[i])) return false;
    }
    return true;
}

static bool dicts_equal(const struct dict *a, const struct dict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_find(b, &a->pairs[i].key);
        if (!other || !value_equal(&a->pairs[i].value, other)) return false;
    }
    return true;
}

/* -1, 0 or 1 as a is less than, equal to or greater than b, which is no NaN: exactly, as a double
 * holds only 53 bits of a whole number. */
static int order_of_whole(int64_t a, double b)
{
    const double above = 9223372036854775808.0; /* 2^63 */
    if (b >= above) return -1;
    if (b < -above) return 1;
    int64_t whole = (int64_t)b;
    if (a != whole) return a < whole ? -1 : 1;
    double rest = b - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

/* 0 also where one is NaN. */
static int order_of_numbers(const struct value *a, const struct value *b)
{
    bool is_nan = (a->kind == VALUE_FLOAT && isnan(a->number)) ||
                  (b->kind == VALUE_FLOAT && isnan(b->number));
    if (is_nan) return 0;
    if (a->kind == VALUE_FLOAT && b->kind == VALUE_FLOAT) {
        return (a->number > b->number) - (a->number < b->number);
    }
    if (b->kind == VALUE_FLOAT) return order_of_whole(a->integer, b->number);
    if (a->kind == VALUE_FLOAT) return -order_of_whole(b->integer, a->number);
    return (a->integer > b->integer) - (a->integer < b->integer);
}

static bool numbers_equal(const struct value *a, const struct value *b)
{
    bool is_nan = (a->kind == VALUE_FLOAT && isnan(a->number)) ||
                  (b->kind == VALUE_FLOAT && isnan(b->number));
    return !is_nan && order_of_numbers(a, b) == 0;
}

bool value_equal(const struct value *a, const struct value *b)
{
    if (value_is_number(a) && value_is_number(b)) return numbers_equal(a, b);
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_STRING:
        return string_equal(a->text, b->text);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return lists_equal(a->list, b->list);
    case VALUE_DICT:
        return dicts_equal(a->dict, b->dict);
    case VALUE_NAMESPACE:
        return a->dict == b->dict;
    case VALUE_LOOP:
        return a->loop == b->loop;
    case VALUE_MACRO:
        return a->macro == b->macro;
    case VALUE_FUNCTION:
        return a->function == b->function;
    default:
        return false;
    }
}

/* Code points have the order of their UTF-8 bytes. */
static int compare_strings(struct string a, struct string b)
{
    size_t least = a.len < b.len ? a.len : b.len;
    int order = least ? memcmp(a.data, b.data, least) : 0;
    if (order) return order < 0 ? -1 : 1;
    return (a.len > b.len) - (a.len < b.len);
}

static int compare_lists(const struct list *a, const struct list *b, int *order, struct error *err)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (value_equal(&a->items[i], &b->items[i])) continue;
        return value_compare(&a->items[i], &b->items[i], order, err);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int value_compare(const struct value *a, const struct value *b, int *order, struct error *err)
{
    *order = 0;
    if (value_is_number(a) && value_is_number(b)) {
        *order = order_of_numbers(a, b);
        return 0;
    }
    if (a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
        *order = compare_strings(a->text, b->text);
        return 0;
    }
    if (value_is_sequence(a) && a->kind == b->kind) {
        return compare_lists(a->list, b->list, order, err);
    }
    return error_set(err, ERR_ARGUMENT, "'%s' and '%s' have no order", value_type(a),
                     value_type(b));
}

const char *value_type(const struct value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED:
        return "undefined";
    case VALUE_NONE:
        return "None";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_STRING:
        return "str";
    case VALUE_LIST:
        return "list";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_DICT:
        return "dict";
    case VALUE_NAMESPACE:
        return "namespace";
    case VALUE_LOOP:
        return "loop";
    case VALUE_MACRO:
        return "macro";
    case VALUE_METHOD:
        return "method";
    case VALUE_FUNCTION:
        return "function";
    }
    return "value";
}

bool value_is_key(const struct value *v)
{
    return v->kind == VALUE_STRING || v->kind == VALUE_NONE || value_is_number(v);
}

bool value_is_hashable(const struct value *v)
{
    if (v->kind == VALUE_TUPLE) return !v->list->extent.holds_lists;
    return v->kind != VALUE_LIST && v->kind != VALUE_DICT;
}

/* ---- dicts ---- */

size_t dict_work(const struct dict *dict)
{
    return dict->n / STEP_PAIRS;
}

const struct value *dict_find_text(const struct dict *dict, struct string key)
{
    for (size_t i = 0; i < dict->n; i++) {
        const struct pair *pair = &dict->pairs[i];
        if (pair->key.kind == VALUE_STRING && string_equal(pair->key.text, key)) {
            return &pair->value;
        }
    }
    return NULL;
}

const struct value *dict_find(const struct dict *dict, const struct value *key)
{
    if (key->kind == VALUE_STRING) return dict_find_text(dict, key->text);
    for (size_t i = 0; i < dict->n; i++) {
        if (value_equal(&dict->pairs[i].key, key)) return &dict->pairs[i].value;
    }
    return NULL;
}

static struct extent extent_of(const struct value *v)
{
    if (value_is_sequence(v)) return v->list->extent;
    if (v->kind == VALUE_DICT) return v->dict->extent;
    return (struct extent){.work = v->kind == VALUE_STRING ? v->text.len / VALUE_STEP_BYTES : 0};
}

/* Adds an item to the extent; `work` is what finding it takes. */
static int extend(struct extent *extent, const struct value *item, size_t work, struct error *err)
{
    const size_t most_work = SIZE_MAX / 4; /* lists that share their items can reach it */
    struct extent below = extent_of(item);
    if (below.depth == VALUE_DEPTH_MAX) {
        return error_set(err, ERR_EXHAUSTED, "a value has more than %d levels", VALUE_DEPTH_MAX);
    }
    if (extent->depth <= below.depth) extent->depth = below.depth + 1;
    extent->work += below.work + work;
    if (extent->work > most_work) extent->work = most_work;
    extent->holds_lists = extent->holds_lists || !value_is_hashable(item);
    return 0;
}

size_t value_work(const struct value *a, const struct value *b)
{
    size_t of_a = extent_of(a).work, of_b = extent_of(b).work;
    return of_a < of_b ? of_a : of_b;
}

int dict_add(struct dict *dict, const struct value *key, const struct value *value,
             struct error *err)
{
    int rc = extend(&dict->extent, value, 1 + 2 * dict->n / STEP_PAIRS, err);
    if (!rc) dict->pairs[dict->n++] = (struct pair){*key, *value};
    return rc;
}

int dict_set(struct heap *heap, struct dict *dict, const struct value *key,
             const struct value *value, struct error *err)
{
    for (size_t i = 0; i < dict->n; i++) {
        if (!value_equal(&dict->pairs[i].key, key)) continue;
        int rc = extend(&dict->extent, value, 0, err);
        if (!rc) dict->pairs[i].value = *value;
        return rc;
    }
    int rc = heap_grow(heap, &dict->pairs, &dict->capacity, dict->n, err);
    return rc ? rc : dict_add(dict, key, value, err);
}

/* ---- making values ---- */

int value_copy_string(struct heap *heap, struct string text, struct value *out, struct error *err)
{
    char *copy;
    int rc = heap_array(heap, &copy, text.len, err);
    if (rc) return rc;
    if (text.len) memcpy(copy, text.data, text.len);
    *out = value_string(string_of(copy, text.len));
    return 0;
}

int value_make_list(struct heap *heap, enum value_kind kind, const struct value *items, size_t n,
                    struct value *out, struct error *err)
{
    struct list *list;
    struct extent extent = {.depth = 1};
    int rc = heap_array(heap, &list, 1, err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = extend(&extent, &items[i], 1, err);
    if (rc) return rc;
    *list = (struct list){n, extent, items};
    *out = (struct value){.kind = kind, .list = list};
    return 0;
}

int value_make_dict(struct heap *heap, enum value_kind kind, size_t n_expected, struct value *out,
                    struct error *err)
{
    struct dict *dict;
    int rc = heap_array(heap, &dict, 1, err);
    if (!rc && n_expected) rc = heap_array(heap, &dict->pairs, n_expected, err);
    if (rc) return rc;
    dict->capacity = n_expected;
    dict->extent.depth = 1;
    *out = (struct value){.kind = kind, .dict = dict};
    return 0;
}
