/* The filter tojson, as transformers define it: json.dumps of Python, without ASCII escapes unless
 * they are asked for. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/filters.h"
#include "model/jinja/literal.h"
#include "model/jinja/pystring.h"
#include "model/jinja/writer.h"

enum { INDENT_MAX = 64 };

struct dump {
    struct render *r;
    struct writer w;
    int depth;
    bool is_ascii, is_indented, sorts_keys;
    char indent_blanks[INDENT_MAX + 1];
    struct string indent, between_items, after_key;
};

static int dump_value(struct dump *d, const struct value *v, struct error *err);

/* ---- texts ---- */

static int put_unit(struct dump *d, unsigned unit, struct error *err)
{
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", unit & 0xffff);
    return writer_text(&d->w, text, err);
}

/* Surrogates for what is above 16 bits. */
static int put_ascii(struct dump *d, int32_t c, struct error *err)
{
    if (c < 0x10000) return put_unit(d, (unsigned)c, err);
    int rc = put_unit(d, 0xd800 + ((unsigned)(c - 0x10000) >> 10), err);
    return rc ? rc : put_unit(d, 0xdc00 + ((unsigned)(c - 0x10000) & 0x3ff), err);
}

static int dump_text(struct dump *d, struct string text, struct error *err)
{
    static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    int rc = writer_text(&d->w, "\"", err);
    for (size_t at = 0; at < text.len && !rc;) {
        size_t begin = at;
        int32_t c = string_next(text, &at);
        const char *found = c && c < 0x80 ? strchr(special, c) : NULL;
        if (found) {
            const char escape[] = {'\\', letters[found - special]};
            rc = writer_put(&d->w, escape, sizeof escape, err);
        } else if (c < 0x20 || (d->is_ascii && c > 0x7e)) {
            rc = c == 0x7f ? writer_text(&d->w, "\x7f", err) : put_ascii(d, c, err);
        } else {
            rc = writer_put(&d->w, text.data + begin, at - begin, err);
        }
    }
    return rc ? rc : writer_text(&d->w, "\"", err);
}

static int dump_number(struct dump *d, const struct value *v, struct error *err)
{
    char text[LITERAL_FLOAT_BYTES];
    if (v->kind == VALUE_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
    } else if (isnan(v->number) || isinf(v->number)) {
        return writer_text(&d->w,
                           isnan(v->number) ? "NaN"
                           : v->number > 0  ? "Infinity"
                                            : "-Infinity",
                           err);
    } else {
        literal_print_float(v->number, text);
    }
    return writer_text(&d->w, text, err);
}

/* ---- lists and dicts ---- */

static int new_line(struct dump *d, struct error *err)
{
    int rc = d->is_indented ? writer_text(&d->w, "\n", err) : 0;
    for (int i = 0; d->is_indented && i < d->depth && !rc; i++) {
        rc = writer_put(&d->w, d->indent.data, d->indent.len, err);
    }
    return rc;
}

static int separate(struct dump *d, bool is_first, struct error *err)
{
    int rc = is_first ? 0 : writer_put(&d->w, d->between_items.data, d->between_items.len, err);
    return rc ? rc : new_line(d, err);
}

/* After the last item. */
static int close_with(struct dump *d, const char *bracket, struct error *err)
{
    d->depth--;
    int rc = new_line(d, err);
    return rc ? rc : writer_text(&d->w, bracket, err);
}

static int dump_list(struct dump *d, const struct list *list, struct error *err)
{
    int rc = 0;
    if (!list->n) return writer_text(&d->w, "[]", err);
    TRY(writer_text(&d->w, "[", err));
    d->depth++;
    for (size_t i = 0; i < list->n; i++) {
        TRY(separate(d, i == 0, err));
        TRY(dump_value(d, &list->items[i], err));
    }
    TRY(close_with(d, "]", err));
out:
    return rc;
}

static int dump_key(struct dump *d, const struct value *key, struct error *err)
{
    int rc;
    switch (key->kind) {
    case VALUE_STRING:
        return dump_text(d, key->text, err);
    case VALUE_NONE:
        return writer_text(&d->w, "\"null\"", err);
    case VALUE_BOOL:
        return writer_text(&d->w, key->integer ? "\"true\"" : "\"false\"", err);
    case VALUE_INT:
    case VALUE_FLOAT:
        rc = writer_text(&d->w, "\"", err);
        if (!rc) rc = dump_number(d, key, err);
        return rc ? rc : writer_text(&d->w, "\"", err);
    default:
        return error_set(err, ERR_ARGUMENT, "tojson: a key is a %s", value_type(key));
    }
}

/* The pairs in the order of their keys. */
static int sort_pairs(struct dump *d, const struct dict *dict, struct pair **sorted,
                      struct error *err)
{
    int rc = 0, order;
    TRY(heap_array(&d->r->heap, sorted, dict->n, err));
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        for (; at > 0; at--) {
            TRY(render_step(d->r, 1, err));
            TRY(compare_order(d->r, &(*sorted)[at - 1].key, &dict->pairs[i].key, &order, err));
            if (order <= 0) break;
            (*sorted)[at] = (*sorted)[at - 1];
        }
        (*sorted)[at] = dict->pairs[i];
    }
out:
    return rc;
}

static int dump_dict(struct dump *d, const struct dict *dict, struct error *err)
{
    int rc = 0;
    struct pair *pairs = dict->pairs;
    if (!dict->n) return writer_text(&d->w, "{}", err);
    if (d->sorts_keys) TRY(sort_pairs(d, dict, &pairs, err));
    TRY(writer_text(&d->w, "{", err));
    d->depth++;
    for (size_t i = 0; i < dict->n; i++) {
        TRY(separate(d, i == 0, err));
        TRY(dump_key(d, &pairs[i].key, err));
        TRY(writer_put(&d->w, d->after_key.data, d->after_key.len, err));
        TRY(dump_value(d, &pairs[i].value, err));
    }
    TRY(close_with(d, "}", err));
out:
    return rc;
}

static int dump_value(struct dump *d, const struct value *v, struct error *err)
{
    int rc = render_step(d->r, 1, err);
    if (rc) return rc;
    switch (v->kind) {
    case VALUE_NONE:
        return writer_text(&d->w, "null", err);
    case VALUE_BOOL:
        return writer_text(&d->w, v->integer ? "true" : "false", err);
    case VALUE_INT:
    case VALUE_FLOAT:
        return dump_number(d, v, err);
    case VALUE_STRING:
        return dump_text(d, v->text, err);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return dump_list(d, v->list, err);
    case VALUE_DICT:
        return dump_dict(d, v->dict, err);
    case VALUE_UNDEFINED:
        return undefined_error(v, err);
    default:
        return error_set(err, ERR_ARGUMENT, "tojson: a %s has no JSON", value_type(v));
    }
}

/* ---- the filter ---- */

/* indent: a number of blanks, or a text. */
static int read_indent(struct dump *d, const struct builtin_call *in, struct error *err)
{
    int64_t n = 0;
    if (!argument_is_given(in, 1)) return 0;
    d->is_indented = true;
    if (in->args[1]->kind == VALUE_STRING) {
        d->indent = in->args[1]->text;
        return 0;
    }
    int rc = argument_int(in, 1, &n, err);
    if (rc) return rc;
    if (n > INDENT_MAX) {
        return error_set(err, ERR_ARGUMENT, "tojson: an indent of more than %d", INDENT_MAX);
    }
    memset(d->indent_blanks, ' ', INDENT_MAX);
    d->indent = string_of(d->indent_blanks, n > 0 ? (size_t)n : 0);
    return 0;
}

static int read_separators(struct dump *d, const struct builtin_call *in, struct error *err)
{
    d->between_items = d->is_indented ? string_of(",", 1) : string_of(", ", 2);
    d->after_key = string_of(": ", 2);
    if (!argument_is_given(in, 2)) return 0;
    const struct value *v = in->args[2];
    bool is_right = value_is_sequence(v) && v->list->n == 2 &&
                    v->list->items[0].kind == VALUE_STRING &&
                    v->list->items[1].kind == VALUE_STRING;
    if (!is_right) return error_set(err, ERR_ARGUMENT, "tojson: separators are two texts");
    d->between_items = v->list->items[0].text;
    d->after_key = v->list->items[1].text;
    return 0;
}

int filter_tojson(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    int rc = 0;
    struct buffer text = {0};
    struct dump d = {.r = r,
                     .w = {.out = &text, .most_bytes = r->limits->memory_bytes},
                     .is_ascii = argument_is_true(in, 0),
                     .sorts_keys = argument_is_true(in, 3)};
    TRY(read_indent(&d, in, err));
    TRY(read_separators(&d, in, err));
    TRY(dump_value(&d, in->self, err));
    TRY(render_bytes(r, text.len, err));
    TRY(value_copy_string(&r->heap, string_of((const char *)text.data, text.len), out, err));
out:
    buffer_free(&text);
    return rc;
}
