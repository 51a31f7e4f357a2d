/* Filters of texts. */
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/filters.h"
#include "model/jinja/pystring.h"

static int self_text(struct render *r, const struct builtin_call *in, struct string *text,
                     struct error *err)
{
    return value_as_string(r, in->self, text, err);
}

int filter_trim(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    struct string text;
    int rc = self_text(r, in, &text, err);
    if (rc) return rc;
    return string_strip_chars(r, text, in->args[0], STRING_LEFT | STRING_RIGHT, out, err);
}

static int change_case(struct render *r, const struct builtin_call *in, enum string_case to,
                       struct value *out, struct error *err)
{
    struct string text;
    int rc = self_text(r, in, &text, err);
    return rc ? rc : string_change_case(r, text, to, out, err);
}

int filter_upper(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    return change_case(r, in, STRING_UPPER, out, err);
}

int filter_lower(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    return change_case(r, in, STRING_LOWER, out, err);
}

int filter_capitalize(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return change_case(r, in, STRING_CAPITALIZE, out, err);
}

/* Unlike str.title, words begin after blanks, "-" and opening brackets only. */
int filter_title(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    return change_case(r, in, STRING_WORDS, out, err);
}

int filter_replace(struct render *r, const struct builtin_call *in, struct value *out,
                   struct error *err)
{
    int rc = 0;
    struct string text, from, to;
    int64_t most = -1;
    TRY(self_text(r, in, &text, err));
    TRY(value_as_string(r, in->args[0], &from, err));
    TRY(value_as_string(r, in->args[1], &to, err));
    TRY(argument_int(in, 2, &most, err));
    TRY(string_replace(r, text, from, to, most, out, err));
out:
    return rc;
}

int filter_string(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    struct string text;
    int rc = self_text(r, in, &text, err);
    if (!rc) *out = value_string(text);
    return rc;
}

/* ---- indent ---- */

/* Lines begin with the argument where it is a text, otherwise with that many blanks. */
static int read_width(struct render *r, const struct builtin_call *in, struct string *blanks,
                      struct error *err)
{
    enum { WIDTH_MAX = 256 };
    int64_t width = 4;
    char *made;
    if (in->args[0] && in->args[0]->kind == VALUE_STRING) {
        *blanks = in->args[0]->text;
        return 0;
    }
    int rc = argument_int(in, 0, &width, err);
    if (rc) return rc;
    width = width < 0 ? 0 : width;
    if (width > WIDTH_MAX) {
        return error_set(err, ERR_ARGUMENT, "indent: more than %d blanks", WIDTH_MAX);
    }
    rc = heap_array(&r->heap, &made, (size_t)width, err);
    if (!rc) *blanks = string_of(memset(made, ' ', (size_t)width), (size_t)width);
    return rc;
}

/* Puts the indent before a line that is to have one. */
static int indent_line(struct render *r, struct value *line, struct string blanks, bool is_indented,
                       struct error *err)
{
    struct value indent = value_string(blanks);
    if (!is_indented) return 0;
    return operator_run(r, OPERATION_ADD, &indent, line, line, err);
}

int filter_indent(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    int rc = 0;
    struct string text, blanks = {"", 0};
    struct value lines, *items;
    bool first = argument_is_true(in, 1), empty_too = argument_is_true(in, 2);
    if (in->self->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "indent: a text is needed, not a %s",
                         value_type(in->self));
    }
    text = in->self->text;
    TRY(read_width(r, in, &blanks, err));
    /* One more line break makes an empty last line one of the lines. */
    const struct value ended = value_string(text), line_break = value_string(string_of("\n", 1));
    TRY(operator_run(r, OPERATION_ADD, &ended, &line_break, out, err));
    TRY(string_split_lines(r, out->text, false, &lines, err));
    size_t n = lines.list->n;
    TRY(heap_array(&r->heap, &items, n, err));
    for (size_t i = 0; i < n; i++) {
        items[i] = lines.list->items[i];
        bool is_indented = i ? empty_too || items[i].text.len : first;
        TRY(indent_line(r, &items[i], blanks, is_indented, err));
    }
    const struct list all = {.n = n, .items = items};
    TRY(string_join(r, &all, line_break.text, out, err));
out:
    return rc;
}

/* ---- marked texts ---- */

int filter_safe(struct render *r, const struct builtin_call *in, struct value *out,
                struct error *err)
{
    int rc = filter_string(r, in, out, err);
    out->is_safe = true;
    return rc;
}

int filter_escape(struct render *r, const struct builtin_call *in, struct value *out,
                  struct error *err)
{
    struct value text;
    if (in->self->kind == VALUE_STRING && in->self->is_safe) {
        *out = *in->self;
        return 0;
    }
    int rc = filter_string(r, in, &text, err);
    return rc ? rc : string_escape(r, text.text, out, err);
}
