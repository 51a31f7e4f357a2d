/* Operators, with Python's meaning. */
#include <math.h>
#include <string.h>

#include "model/jinja/literal.h"
#include "model/jinja/pystring.h"
#include "model/jinja/render.h"

int operator_refuse(enum operation operation, const struct value *a, const struct value *b,
                    struct error *err)
{
    static const char *const texts[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                        "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};
    const struct value *missing = a->kind == VALUE_UNDEFINED ? a : b;
    if (missing->kind == VALUE_UNDEFINED) return undefined_error(missing, err);
    return error_set(err, ERR_ARGUMENT, "'%s' %s '%s' has no meaning", value_type(a),
                     texts[operation], value_type(b));
}

/* ---- numbers ---- */

static int too_large(struct error *err)
{
    return error_set(err, ERR_ARGUMENT, "a whole number does not fit into 64 bits");
}

/* Rounded down, as Python does. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

static int power_of_whole(int64_t base, int64_t exponent, struct value *out, struct error *err)
{
    int64_t result = 1;
    if (exponent < 0) {
        *out = value_float(pow((double)base, (double)exponent));
        return 0;
    }
    if (base == 0 || base == 1) exponent = exponent > 0;
    if (base == -1) exponent = exponent % 2 + 2;
    for (int64_t i = 0; i < exponent; i++) {
        if (__builtin_mul_overflow(result, base, &result)) return too_large(err);
    }
    *out = value_int(result);
    return 0;
}

static int divide_whole(enum operation operation, int64_t a, int64_t b, struct value *out,
                        struct error *err)
{
    if (b == 0) return error_set(err, ERR_ARGUMENT, "division by zero");
    if (operation == OPERATION_DIVIDE) {
        *out = value_float((double)a / (double)b);
        return 0;
    }
    if (b == -1 && a == INT64_MIN) return too_large(err);
    int64_t quotient = floor_divide(a, b);
    *out = value_int(operation == OPERATION_MODULO ? a - quotient * b : quotient);
    return 0;
}

static int whole_numbers(enum operation operation, int64_t a, int64_t b, struct value *out,
                         struct error *err)
{
    int64_t result = 0;
    bool is_over;
    switch (operation) {
    case OPERATION_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OPERATION_SUBTRACT:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OPERATION_MULTIPLY:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OPERATION_POWER:
        return power_of_whole(a, b, out, err);
    default:
        return divide_whole(operation, a, b, out, err);
    }
    *out = value_int(result);
    return is_over ? too_large(err) : 0;
}

static int numbers(enum operation operation, double a, double b, struct value *out,
                   struct error *err)
{
    double result = 0;
    bool divides = operation == OPERATION_DIVIDE || operation == OPERATION_FLOOR_DIVIDE ||
                   operation == OPERATION_MODULO;
    if (divides && b == 0) return error_set(err, ERR_ARGUMENT, "division by zero");
    switch (operation) {
    case OPERATION_ADD:
        result = a + b;
        break;
    case OPERATION_SUBTRACT:
        result = a - b;
        break;
    case OPERATION_MULTIPLY:
        result = a * b;
        break;
    case OPERATION_DIVIDE:
        result = a / b;
        break;
    case OPERATION_FLOOR_DIVIDE:
        result = floor(a / b);
        break;
    case OPERATION_POWER:
        result = pow(a, b);
        break;
    default:
        result = fmod(a, b);
        if (result != 0 && (result < 0) != (b < 0)) result += b;
    }
    *out = value_float(result);
    return 0;
}

/* ---- texts and lists ---- */

int value_as_string(struct render *r, const struct value *v, struct string *out, struct error *err)
{
    struct buffer text = {0};
    struct value copy;
    *out = v->text;
    if (v->kind == VALUE_STRING) return 0;
    int rc = literal_print(&text, v, false, r->limits->memory_bytes, err);
    if (!rc) rc = render_bytes(r, text.len, err);
    if (!rc) {
        rc = value_copy_string(&r->heap, string_of((const char *)text.data, text.len), &copy, err);
    }
    if (!rc) *out = copy.text;
    buffer_free(&text);
    return rc;
}

static int join_strings(struct render *r, struct string a, struct string b, struct value *out,
                        struct error *err)
{
    char *joined;
    int rc = render_bytes(r, a.len + b.len, err);
    if (!rc) rc = heap_array(&r->heap, &joined, a.len + b.len, err);
    if (rc) return rc;
    if (a.len) memcpy(joined, a.data, a.len);
    if (b.len) memcpy(joined + a.len, b.data, b.len);
    *out = value_string(string_of(joined, a.len + b.len));
    return 0;
}

/* If only one of the texts is marked as safe, the other one is escaped, as markupsafe does. */
static int add_texts(struct render *r, const struct value *a, const struct value *b,
                     struct value *out, struct error *err)
{
    int rc = 0;
    struct value left = *a, right = *b;
    bool is_safe = a->is_safe || b->is_safe;
    if (is_safe && !a->is_safe) TRY(string_escape(r, a->text, &left, err));
    if (is_safe && !b->is_safe) TRY(string_escape(r, b->text, &right, err));
    TRY(join_strings(r, left.text, right.text, out, err));
    out->is_safe = is_safe;
out:
    return rc;
}

static int concatenate(struct render *r, const struct value *a, const struct value *b,
                       struct value *out, struct error *err)
{
    struct string x, y;
    int rc = value_as_string(r, a, &x, err);
    if (!rc) rc = value_as_string(r, b, &y, err);
    return rc ? rc : join_strings(r, x, y, out, err);
}

static int join_lists(struct render *r, const struct value *a, const struct value *b,
                      struct value *out, struct error *err)
{
    struct value *items;
    size_t n = a->list->n + b->list->n;
    int rc = render_step(r, n, err);
    if (!rc) rc = heap_array(&r->heap, &items, n, err);
    if (rc) return rc;
    if (a->list->n) memcpy(items, a->list->items, a->list->n * sizeof *items);
    if (b->list->n) memcpy(items + a->list->n, b->list->items, b->list->n * sizeof *items);
    return value_make_list(&r->heap, a->kind, items, n, out, err);
}

/* value * times, for texts, lists and tuples. */
static int repeat(struct render *r, const struct value *value, int64_t times, struct value *out,
                  struct error *err)
{
    bool is_text = value->kind == VALUE_STRING;
    size_t size = is_text ? 1 : sizeof(struct value);
    size_t n = is_text ? value->text.len : value->list->n, n_times = times > 0 ? (size_t)times : 0;
    const void *from = is_text ? (const void *)value->text.data : value->list->items;
    if (n && n_times > r->limits->memory_bytes / size / n) {
        return error_set(err, ERR_EXHAUSTED, "a text or list is repeated too often");
    }
    int rc = render_bytes(r, n * n_times, err);
    unsigned char *items = rc ? NULL : heap_take(&r->heap, n * n_times, size, err);
    if (!items) return err->code;
    for (size_t i = 0; n && i < n_times; i++)
        memcpy(items + i * n * size, from, n * size);
    if (!is_text) {
        return value_make_list(&r->heap, value->kind, (struct value *)(void *)items, n * n_times,
                               out, err);
    }
    *out = value_string(string_of((char *)items, n * n_times));
    return 0;
}

static bool is_whole(const struct value *v)
{
    return v->kind == VALUE_INT || v->kind == VALUE_BOOL;
}

static int run_on_sequences(struct render *r, enum operation operation, const struct value *a,
                            const struct value *b, struct value *out, struct error *err)
{
    bool a_is_text = a->kind == VALUE_STRING, a_is_list = value_is_sequence(a);
    bool b_is_text = b->kind == VALUE_STRING, b_is_list = value_is_sequence(b);
    if (operation == OPERATION_ADD && a_is_text && b_is_text) {
        return add_texts(r, a, b, out, err);
    }
    if (operation == OPERATION_ADD && a_is_list && b->kind == a->kind) {
        return join_lists(r, a, b, out, err);
    }
    if (operation == OPERATION_MULTIPLY && (a_is_text || a_is_list) && is_whole(b)) {
        return repeat(r, a, b->integer, out, err);
    }
    if (operation == OPERATION_MULTIPLY && (b_is_text || b_is_list) && is_whole(a)) {
        return repeat(r, b, a->integer, out, err);
    }
    if (operation == OPERATION_MODULO && a_is_text) {
        return error_set(err, ERR_UNSUPPORTED, "the operator %% on texts is not supported");
    }
    return operator_refuse(operation, a, b, err);
}

int operator_run(struct render *r, enum operation operation, const struct value *a,
                 const struct value *b, struct value *out, struct error *err)
{
    if (operation >= OPERATION_EQUAL) return compare_run(r, operation, a, b, out, err);
    if (operation == OPERATION_CONCATENATE) return concatenate(r, a, b, out, err);
    if (is_whole(a) && is_whole(b)) {
        return whole_numbers(operation, a->integer, b->integer, out, err);
    }
    if (value_is_number(a) && value_is_number(b)) {
        return numbers(operation, value_as_double(a), value_as_double(b), out, err);
    }
    return run_on_sequences(r, operation, a, b, out, err);
}

/* ---- slices ---- */

/* Sets the first index and returns how many there are, as PySlice_AdjustIndices. */
static size_t slice_indices(const int64_t part[3], const bool is_given[3], int64_t n,
                            int64_t *begin)
{
    int64_t step = is_given[2] ? part[2] : 1, low = step < 0 ? -1 : 0;
    int64_t high = step < 0 ? n - 1 : n, at[2];
    for (int i = 0; i < 2; i++) {
        bool takes_low = (i == 0) == (step > 0);
        at[i] = takes_low ? low : high;
        if (!is_given[i]) continue;
        at[i] = part[i] < 0 ? (part[i] < -n ? -1 : part[i] + n) : part[i];
        at[i] = at[i] < low ? low : at[i] > high ? high : at[i];
    }
    *begin = at[0];
    if (step > 0) return at[1] > at[0] ? (size_t)((at[1] - at[0] - 1) / step + 1) : 0;
    uint64_t size = (uint64_t)0 - (uint64_t)step;
    return at[0] > at[1] ? (size_t)(((uint64_t)(at[0] - at[1]) - 1) / size + 1) : 0;
}

static int join_chars(struct render *r, const struct value *chars, size_t n, struct value *out,
                      struct error *err)
{
    size_t len = 0;
    char *text;
    for (size_t i = 0; i < n; i++)
        len += chars[i].text.len;
    int rc = heap_array(&r->heap, &text, len, err);
    if (rc) return rc;
    *out = value_string(string_of(text, len));
    for (size_t i = 0; i < n; i++) {
        memcpy(text, chars[i].text.data, chars[i].text.len);
        text += chars[i].text.len;
    }
    return 0;
}

int operator_slice(struct render *r, const struct value *object, const struct value part[3],
                   struct value *out, struct error *err)
{
    int rc = 0;
    int64_t numbers_of[3] = {0}, at;
    bool is_given[3];
    struct list items;
    struct value *chosen;
    for (int i = 0; i < 3; i++) {
        is_given[i] = part[i].kind != VALUE_NONE;
        if (is_given[i] && !is_whole(&part[i])) {
            return error_set(err, ERR_ARGUMENT, "a slice from or to a %s", value_type(&part[i]));
        }
        if (is_given[i]) numbers_of[i] = part[i].integer;
    }
    if (!value_is_sequence(object) && object->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "a %s cannot be sliced", value_type(object));
    }
    if (is_given[2] && !numbers_of[2]) return error_set(err, ERR_ARGUMENT, "a slice with step 0");
    TRY(eval_items(r, object, &items, err));
    size_t n = slice_indices(numbers_of, is_given, (int64_t)items.n, &at);
    TRY(render_step(r, n, err));
    TRY(heap_array(&r->heap, &chosen, n, err));
    for (size_t i = 0; i < n; i++) {
        chosen[i] = items.items[at + (int64_t)i * (is_given[2] ? numbers_of[2] : 1)];
    }
    if (object->kind == VALUE_STRING) return join_chars(r, chosen, n, out, err);
    TRY(value_make_list(&r->heap, object->kind, chosen, n, out, err));
out:
    return rc;
}
