/* The parts of values: attributes, methods, and the items that loops go over. */
#include <string.h>

#include "model/jinja/render.h"

int undefined_error(const struct value *v, struct error *err)
{
    int len = string_shown(v->text);
    const struct value owner = {.kind = v->owner};
    if (v->owner == VALUE_UNDEFINED) {
        return error_set(err, ERR_ARGUMENT, "'%.*s' is undefined", len, v->text.data);
    }
    return error_set(err, ERR_ARGUMENT, "a %s has no '%.*s'", value_type(&owner), len,
                     v->text.data);
}

/* ---- dicts ---- */

static int refuse_key(const struct value *key, struct error *err)
{
    return error_set(err, ERR_ARGUMENT, "a %s cannot be a key of a dict", value_type(key));
}

int member_find(struct render *r, const struct dict *dict, const struct value *key,
                const struct value **found, struct error *err)
{
    *found = NULL;
    if (!value_is_hashable(key)) return refuse_key(key, err);
    if (!value_is_key(key)) return 0;
    int rc = render_step(r, dict_work(dict), err);
    if (!rc) *found = dict_find(dict, key);
    return rc;
}

int member_set(struct render *r, struct dict *dict, const struct value *key,
               const struct value *value, struct error *err)
{
    if (!value_is_key(key)) return refuse_key(key, err);
    int rc = render_step(r, dict_work(dict), err);
    return rc ? rc : dict_set(&r->heap, dict, key, value, err);
}

/* ---- attributes ---- */

static int bind_method(struct render *r, const struct builtin *method, const struct value *self,
                       struct value *out, struct error *err)
{
    struct bound_method *bound;
    int rc = heap_array(&r->heap, &bound, 1, err);
    if (rc) return rc;
    *bound = (struct bound_method){method, *self};
    *out = (struct value){.kind = VALUE_METHOD, .method = bound};
    return 0;
}

static struct value loop_neighbour(const struct loop *loop, bool is_next, struct string name)
{
    if (is_next) {
        return loop->index + 1 < loop->n ? loop->items[loop->index + 1] : value_undefined(name);
    }
    return loop->index ? loop->items[loop->index - 1] : value_undefined(name);
}

static struct value loop_attribute(const struct loop *loop, struct string name)
{
    static const char *const names[] = {"index",  "index0",   "revindex", "revindex0",
                                        "first",  "last",     "length",   "depth",
                                        "depth0", "previtem", "nextitem"};
    int64_t index = (int64_t)loop->index, n = (int64_t)loop->n;
    size_t which = 0;
    while (which < sizeof names / sizeof *names && !string_is(name, names[which]))
        which++;
    switch (which) {
    case 0:
        return value_int(index + 1);
    case 1:
        return value_int(index);
    case 2:
        return value_int(n - index);
    case 3:
        return value_int(n - index - 1);
    case 4:
        return value_bool(index == 0);
    case 5:
        return value_bool(index == n - 1);
    case 6:
        return value_int(n);
    case 7:
        return value_int(1); /* only recursive loops are deeper, and they are not supported */
    case 8:
        return value_int(0);
    case 9:
        return loop_neighbour(loop, false, name);
    case 10:
        return loop_neighbour(loop, true, name);
    default:
        return value_undefined(name);
    }
}

int eval_attribute(struct render *r, const struct value *object, struct string name,
                   struct value *out, struct error *err)
{
    const struct value self = *object, key = value_string(name); /* out may be object */
    const struct value *member = NULL;
    int rc = 0;
    if (self.kind == VALUE_UNDEFINED) return undefined_error(&self, err);
    const struct builtin *method = method_find(&self, name);
    if (method) return bind_method(r, method, &self, out, err);
    if (self.kind == VALUE_LOOP) {
        *out = loop_attribute(self.loop, name);
        return 0;
    }
    if (self.kind == VALUE_DICT || self.kind == VALUE_NAMESPACE) {
        rc = member_find(r, self.dict, &key, &member, err);
    }
    *out = member ? *member : value_absent(&self, name);
    return rc;
}

/* ---- items ---- */

/* The character number `index` of a text; false if there is none. */
static bool char_at(struct string text, int64_t index, struct string *out)
{
    int64_t n = 0;
    for (size_t i = 0; index < 0 && i < text.len; i++)
        n += (text.data[i] & 0xc0) != 0x80;
    if (index < 0) index += n;
    size_t at = 0;
    for (; at < text.len && index > 0; index--) {
        do
            at++;
        while (at < text.len && (text.data[at] & 0xc0) == 0x80);
    }
    if (index != 0 || at >= text.len) return false;
    size_t end = at + 1;
    while (end < text.len && (text.data[end] & 0xc0) == 0x80)
        end++;
    *out = string_of(text.data + at, end - at);
    return true;
}

static int numbered_item(struct render *r, const struct value *object, int64_t index,
                         struct value *out, struct error *err)
{
    struct string text;
    struct value found = value_absent(object, string_of("element of that number", 22));
    int rc = 0;
    if (object->kind == VALUE_STRING) {
        rc = render_bytes(r, object->text.len, err);
        if (!rc && char_at(object->text, index, &text)) found = value_string(text);
    } else {
        int64_t n = (int64_t)object->list->n;
        if (index < 0) index += n;
        if (index >= 0 && index < n) found = object->list->items[index];
    }
    *out = found;
    return rc;
}

int eval_item(struct render *r, const struct value *object, const struct value *index,
              struct value *out, struct error *err)
{
    if (object->kind == VALUE_UNDEFINED) return undefined_error(object, err);
    bool is_whole = index->kind == VALUE_INT || index->kind == VALUE_BOOL;
    if (is_whole && (value_is_sequence(object) || object->kind == VALUE_STRING)) {
        return numbered_item(r, object, index->integer, out, err);
    }
    if (object->kind == VALUE_DICT && value_is_hashable(index)) {
        const struct value *member;
        int rc = member_find(r, object->dict, index, &member, err);
        if (rc) return rc;
        if (member) {
            *out = *member;
            return 0;
        }
    }
    if (index->kind == VALUE_STRING) return eval_attribute(r, object, index->text, out, err);
    *out = value_absent(object, string_of("element of that kind", 20));
    return 0;
}

/* ---- items of a loop ---- */

static int items_of_text(struct render *r, struct string text, struct list *items,
                         struct error *err)
{
    size_t n = 0, at = 0;
    struct value *chars;
    for (size_t i = 0; i < text.len; i++)
        n += (text.data[i] & 0xc0) != 0x80;
    int rc = render_step(r, n, err);
    if (!rc) rc = heap_array(&r->heap, &chars, n, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        size_t end = at + 1;
        while (end < text.len && (text.data[end] & 0xc0) == 0x80)
            end++;
        chars[i] = value_string(string_of(text.data + at, end - at));
        at = end;
    }
    *items = (struct list){.n = n, .items = chars};
    return 0;
}

static int items_of_dict(struct render *r, const struct dict *dict, struct list *items,
                         struct error *err)
{
    struct value *keys;
    int rc = heap_array(&r->heap, &keys, dict->n, err);
    if (rc) return rc;
    for (size_t i = 0; i < dict->n; i++)
        keys[i] = dict->pairs[i].key;
    *items = (struct list){.n = dict->n, .items = keys};
    return 0;
}

int eval_items(struct render *r, const struct value *of, struct list *items, struct error *err)
{
    *items = (struct list){0};
    switch (of->kind) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *items = *of->list;
        return 0;
    case VALUE_STRING:
        return items_of_text(r, of->text, items, err);
    case VALUE_DICT:
        return items_of_dict(r, of->dict, items, err);
    default:
        return error_set(err, ERR_ARGUMENT, "a %s has no items to go over", value_type(of));
    }
}
