/* Values of a rendering, as Python has them. They are immutable, but for namespaces, and all of
 * them are in the heap of the rendering, which frees them together. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/jinja/heap.h"

enum value_kind {
    VALUE_UNDEFINED, /* text: the name that is missing, for messages */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_METHOD, /* of a value: `self` */
    VALUE_FUNCTION
};

/* Valid UTF-8, without an end mark. */
struct string {
    const char *data;
    size_t len;
};

struct value {
    enum value_kind kind;
    enum value_kind owner; /* of VALUE_UNDEFINED: what has no attribute or item `text` */
    bool is_safe;          /* of VALUE_STRING: marked by the filters safe and escape, kept by "+" */
    union {
        int64_t integer; /* and VALUE_BOOL: 0 or 1 */
        double number;
        struct string text; /* VALUE_STRING, VALUE_UNDEFINED */
        const struct list *list;
        struct dict *dict; /* VALUE_DICT, VALUE_NAMESPACE */
        struct loop *loop;
        const struct macro_value *macro;
        const struct bound_method *method;
        const struct builtin *function;
    };
};

/* The size of a list or a dict and all that is in it. */
struct extent {
    int depth;        /* levels of lists and dicts, at most VALUE_DEPTH_MAX */
    size_t work;      /* steps that comparing it may take */
    bool holds_lists; /* or dicts */
};

struct list {
    size_t n;
    struct extent extent;
    const struct value *items;
};

struct pair {
    struct value key, value;
};

enum {
    VALUE_DEPTH_MAX = 100,
    VALUE_STEP_BYTES = 64 /* of text that are read or copied count as one step of work */
};

/* In the order in which keys came. A key is found by looking at all of them, because dicts of
 * conversations have few. */
struct dict {
    size_t n, capacity;
    struct extent extent;
    struct pair *pairs;
};

struct bound_method {
    const struct builtin *method;
    struct value self;
};

static inline struct string string_of(const char *text, size_t len)
{
    return (struct string){text, len};
}

static inline struct value value_string(struct string text)
{
    return (struct value){.kind = VALUE_STRING, .text = text};
}

static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

static inline struct value value_float(double number)
{
    return (struct value){.kind = VALUE_FLOAT, .number = number};
}

static inline struct value value_bool(bool is_true)
{
    return (struct value){.kind = VALUE_BOOL, .integer = is_true};
}

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static inline struct value value_undefined(struct string name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .text = name};
}

/* The undefined value of a name that `of` does not have. */
static inline struct value value_absent(const struct value *of, struct string name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .owner = of->kind, .text = name};
}

/* Names are looked for in tables all the time, and most differ in their first character. */
static inline bool string_is(struct string text, const char *other)
{
    char first = 0;
    if (text.len) first = text.data[0];
    return first == other[0] && text.len == strlen(other) &&
           memcmp(text.data, other, text.len) == 0;
}

static inline bool string_equal(struct string a, struct string b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* The bytes of its whole characters that fit into `most`; and those that a message shows, for
 * "%.*s". */
int string_cut(struct string text, size_t most);
int string_shown(struct string text);

static inline bool value_is_number(const struct value *v)
{
    return v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_BOOL;
}

static inline bool value_is_sequence(const struct value *v)
{
    return v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

/* The value of a number as a double. */
double value_as_double(const struct value *v);
/* bool() of Python. */
bool value_is_true(const struct value *v);
/* The steps that comparing two values may take, which are to be counted before. */
size_t value_work(const struct value *a, const struct value *b);
/* The operator "==". */
bool value_equal(const struct value *a, const struct value *b);
/* Writes -1, 0 or 1. Errors: ERR_ARGUMENT the two have no order. */
int value_compare(const struct value *a, const struct value *b, int *order, struct error *err);
/* True if it can be a key of a dict: a text, a number, true, false or none. */
bool value_is_key(const struct value *v);
/* True if Python would look for it among keys: it holds no list and no dict. */
bool value_is_hashable(const struct value *v);
/* The name of the value's type in messages: "str", "dict", ... */
const char *value_type(const struct value *v);

/* Steps of finding a key. */
size_t dict_work(const struct dict *dict);
/* The value of a key, or NULL. */
const struct value *dict_find(const struct dict *dict, const struct value *key);
const struct value *dict_find_text(const struct dict *dict, struct string key);
/* Sets a key; room for it comes from the heap. Errors: ERR_EXHAUSTED, also too deep. */
int dict_set(struct heap *heap, struct dict *dict, const struct value *key,
             const struct value *value, struct error *err);
/* Adds a key that is not there yet; the dict has room for it. Errors: ERR_EXHAUSTED too deep. */
int dict_add(struct dict *dict, const struct value *key, const struct value *value,
             struct error *err);

int value_copy_string(struct heap *heap, struct string text, struct value *out, struct error *err);
/* A list or tuple of the items, which must be in the heap. Errors: ERR_EXHAUSTED, also too deep. */
int value_make_list(struct heap *heap, enum value_kind kind, const struct value *items, size_t n,
                    struct value *out, struct error *err);
int value_make_dict(struct heap *heap, enum value_kind kind, size_t n_expected, struct value *out,
                    struct error *err);
