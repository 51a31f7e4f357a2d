/* Methods of texts, as Python's str has them. */
#include <string.h>

#include <utf8proc.h>

#include "model/jinja/arguments.h"
#include "model/jinja/methods.h"
#include "model/jinja/pystring.h"
#include "model/jinja/render.h"

static int strip(struct render *r, const struct builtin_call *in, unsigned sides, struct value *out,
                 struct error *err)
{
    return string_strip_chars(r, in->self->text, in->args[0], sides, out, err);
}

static int run_strip(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return strip(r, in, STRING_LEFT | STRING_RIGHT, out, err);
}

static int run_lstrip(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return strip(r, in, STRING_LEFT, out, err);
}

static int run_rstrip(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return strip(r, in, STRING_RIGHT, out, err);
}

static int split(struct render *r, const struct builtin_call *in, bool is_right, struct value *out,
                 struct error *err)
{
    struct string separator = {0};
    int64_t most = -1;
    int rc = argument_text(in, 0, &separator, err);
    if (!rc) rc = argument_int(in, 1, &most, err);
    if (rc) return rc;
    return string_split(r, in->self->text, argument_is_given(in, 0) ? &separator : NULL, most,
                        is_right, out, err);
}

static int run_split(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return split(r, in, false, out, err);
}

static int run_rsplit(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return split(r, in, true, out, err);
}

static int run_splitlines(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    bool keeps_ends = argument_is_true(in, 0);
    return string_split_lines(r, in->self->text, keeps_ends, out, err);
}

/* Checks if the text begins (or ends) with a part, or with one of a tuple of them. */
static int affix(struct render *r, const struct builtin_call *in, bool is_end, struct value *out,
                 struct error *err)
{
    struct string self = in->self->text;
    const struct list alone = {.n = 1, .items = in->args[0]};
    const struct list *parts = in->args[0]->kind == VALUE_TUPLE ? in->args[0]->list : &alone;
    *out = value_bool(false);
    for (size_t i = 0; i < parts->n; i++) {
        const struct value *part = &parts->items[i];
        if (part->kind != VALUE_STRING) {
            return error_set(err, ERR_ARGUMENT, "a text is needed, not a %s", value_type(part));
        }
        int rc = render_bytes(r, part->text.len, err);
        if (rc) return rc;
        if (part->text.len > self.len) continue;
        const char *at = is_end ? self.data + self.len - part->text.len : self.data;
        if (string_equal(string_of(at, part->text.len), part->text)) *out = value_bool(true);
    }
    return 0;
}

static int run_startswith(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    return affix(r, in, false, out, err);
}

static int run_endswith(struct render *r, const struct builtin_call *in, struct value *out,
                        struct error *err)
{
    return affix(r, in, true, out, err);
}

static int remove_affix(struct render *r, const struct builtin_call *in, bool is_end,
                        struct value *out, struct error *err)
{
    struct string self = in->self->text, part = {0};
    int rc = argument_must_be_text(in, 0, &part, err);
    if (!rc) rc = affix(r, in, is_end, out, err);
    if (rc) return rc;
    if (value_is_true(out)) {
        self.len -= part.len;
        if (!is_end) self.data += part.len;
    }
    *out = value_string(self);
    return 0;
}

static int run_removeprefix(struct render *r, const struct builtin_call *in, struct value *out,
                            struct error *err)
{
    return remove_affix(r, in, false, out, err);
}

static int run_removesuffix(struct render *r, const struct builtin_call *in, struct value *out,
                            struct error *err)
{
    return remove_affix(r, in, true, out, err);
}

static int run_upper(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return string_change_case(r, in->self->text, STRING_UPPER, out, err);
}

static int run_lower(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return string_change_case(r, in->self->text, STRING_LOWER, out, err);
}

static int run_title(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return string_change_case(r, in->self->text, STRING_TITLE, out, err);
}

static int run_capitalize(struct render *r, const struct builtin_call *in, struct value *out,
                          struct error *err)
{
    return string_change_case(r, in->self->text, STRING_CAPITALIZE, out, err);
}

static int run_replace(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    struct string from, to;
    int64_t most = -1;
    int rc = argument_must_be_text(in, 0, &from, err);
    if (!rc) rc = argument_must_be_text(in, 1, &to, err);
    if (!rc) rc = argument_int(in, 2, &most, err);
    return rc ? rc : string_replace(r, in->self->text, from, to, most, out, err);
}

/* Where the part is, in characters; -1 = nowhere. */
static int find(struct render *r, const struct builtin_call *in, bool is_last, struct value *out,
                struct error *err)
{
    struct string self = in->self->text, part;
    int rc = argument_must_be_text(in, 0, &part, err);
    if (!rc) rc = render_step(r, string_find_work(self, part), err);
    if (rc) return rc;
    size_t found = is_last ? string_find_last(self, part) : string_find(self, part, 0);
    bool is_there = found <= self.len;
    *out = value_int(is_there ? (int64_t)string_length(string_of(self.data, found)) : -1);
    return 0;
}

static int run_find(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    return find(r, in, false, out, err);
}

static int run_rfind(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return find(r, in, true, out, err);
}

static int run_index(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    int rc = run_find(r, in, out, err);
    if (!rc && out->integer < 0) {
        return error_set(err, ERR_ARGUMENT, "index: the text does not contain the part");
    }
    return rc;
}

static int run_count(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    struct string self = in->self->text, part;
    int64_t n = 0;
    int rc = argument_must_be_text(in, 0, &part, err);
    if (!rc) rc = render_step(r, string_find_work(self, part), err);
    if (rc) return rc;
    for (size_t at = 0; part.len && (at = string_find(self, part, at)) <= self.len;
         at += part.len) {
        n++;
    }
    *out = value_int(part.len ? n : (int64_t)string_length(self) + 1);
    return 0;
}

static int run_join(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    int rc = 0;
    struct list items;
    struct string text = {"", 0};
    TRY(eval_items(r, in->args[0], &items, err));
    *out = value_string(text);
    for (size_t i = 0; i < items.n; i++) {
        if (items.items[i].kind != VALUE_STRING) {
            rc = error_set(err, ERR_ARGUMENT, "join: item %zu is a %s", i,
                           value_type(&items.items[i]));
            goto out;
        }
    }
    rc = string_join(r, &items, in->self->text, out, err);
out:
    return rc;
}

typedef bool char_fn(int32_t c);

/* Decimal digits. Unlike str.isdigit, it is false for superscripts and digits in circles. */
static bool is_digit(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

/* Checks if there are characters and all of them are of that class. */
static int all_are(struct render *r, const struct builtin_call *in, char_fn *is, struct value *out,
                   struct error *err)
{
    struct string text = in->self->text;
    int rc = render_bytes(r, text.len, err);
    bool holds = text.len != 0;
    for (size_t at = 0; at < text.len && holds && !rc;)
        holds = is(string_next(text, &at));
    *out = value_bool(holds);
    return rc;
}

static int run_isdigit(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return all_are(r, in, is_digit, out, err);
}

static int run_isalpha(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return all_are(r, in, string_is_letter, out, err);
}

static int run_isalnum(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return all_are(r, in, string_is_letter_or_number, out, err);
}

static int run_isspace(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return all_are(r, in, string_is_blank, out, err);
}

static int run_isupper(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return string_has_case(r, in->self->text, STRING_UPPER, out, err);
}

static int run_islower(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    return string_has_case(r, in->self->text, STRING_LOWER, out, err);
}

const struct builtin methods_of_text[] = {
    {"strip", run_strip, 0, false, {"chars"}},
    {"lstrip", run_lstrip, 0, false, {"chars"}},
    {"rstrip", run_rstrip, 0, false, {"chars"}},
    {"split", run_split, 0, false, {"sep", "maxsplit"}},
    {"rsplit", run_rsplit, 0, false, {"sep", "maxsplit"}},
    {"splitlines", run_splitlines, 0, false, {"keepends"}},
    {"startswith", run_startswith, 1, false, {"prefix"}},
    {"endswith", run_endswith, 1, false, {"suffix"}},
    {"removeprefix", run_removeprefix, 1, false, {"prefix"}},
    {"removesuffix", run_removesuffix, 1, false, {"suffix"}},
    {"upper", run_upper, 0, false, {0}},
    {"lower", run_lower, 0, false, {0}},
    {"title", run_title, 0, false, {0}},
    {"capitalize", run_capitalize, 0, false, {0}},
    {"replace", run_replace, 2, false, {"old", "new", "count"}},
    {"find", run_find, 1, false, {"sub"}},
    {"rfind", run_rfind, 1, false, {"sub"}},
    {"index", run_index, 1, false, {"sub"}},
    {"count", run_count, 1, false, {"sub"}},
    {"join", run_join, 1, false, {"iterable"}},
    {"isdigit", run_isdigit, 0, false, {0}},
    {"isdecimal", run_isdigit, 0, false, {0}},
    {"isalpha", run_isalpha, 0, false, {0}},
    {"isalnum", run_isalnum, 0, false, {0}},
    {"isspace", run_isspace, 0, false, {0}},
    {"isupper", run_isupper, 0, false, {0}},
    {"islower", run_islower, 0, false, {0}},
};

const int n_methods_of_text = sizeof methods_of_text / sizeof *methods_of_text;
