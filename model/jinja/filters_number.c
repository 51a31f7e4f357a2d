/* Filters that make numbers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/jinja/arguments.h"
#include "model/jinja/filters.h"
#include "model/jinja/pystring.h"

enum { NUMBER_BYTES = 400, DIGITS_MAX = 300 };

/* The text without blanks around it and "_" between digits, with an end mark; false if it is too
 * long or cannot be a number. */
static bool number_text(struct string text, char out[NUMBER_BYTES])
{
    size_t n = 0;
    text = string_strip(text, NULL, STRING_LEFT | STRING_RIGHT);
    if (!text.len || text.len >= NUMBER_BYTES) return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c != '_') {
            out[n++] = c;
            continue;
        }
        bool is_between = i && i + 1 < text.len && strchr("0123456789", text.data[i - 1]) &&
                          strchr("0123456789", text.data[i + 1]) && text.data[i - 1] &&
                          text.data[i + 1];
        if (!is_between) return false;
    }
    out[n] = 0;
    return strlen(out) == n;
}

/* float() of a text. strtod alone would also take 0x1p3 and nan(1). */
static bool text_as_double(struct string text, double *number)
{
    char copy[NUMBER_BYTES], *end;
    if (!number_text(text, copy) || strpbrk(copy, "xX(")) return false;
    if (string_is_blank((unsigned char)copy[0])) return false;
    *number = strtod(copy, &end);
    return end != copy && !*end;
}

/* int() of a text to a base. */
static int text_as_int(struct string text, int base, bool *is_number, int64_t *number,
                       struct error *err)
{
    char copy[NUMBER_BYTES], *end;
    *is_number = number_text(text, copy);
    if (!*is_number) return 0;
    const char *digits = copy + (copy[0] == '+' || copy[0] == '-');
    bool has_prefix = digits[0] == '0' && ((base == 2 && (digits[1] | 32) == 'b') ||
                                           (base == 8 && (digits[1] | 32) == 'o'));
    if (string_is_blank((unsigned char)digits[0]) || digits[0] == '+' || digits[0] == '-') {
        *is_number = false;
        return 0;
    }
    errno = 0;
    long long magnitude = strtoll(digits + (has_prefix ? 2 : 0), &end, base);
    *is_number = end != digits && !*end && (base == 16 || !strpbrk(digits, "xX"));
    if (!*is_number) return 0;
    if (errno) return error_set(err, ERR_ARGUMENT, "the number %s does not fit into 64 bits", copy);
    *number = copy[0] == '-' ? -magnitude : magnitude;
    return 0;
}

static int double_as_int(double number, struct value *out, struct error *err)
{
    if (!(fabs(number) < 9.2e18)) {
        return error_set(err, ERR_ARGUMENT, "int: %g does not fit into 64 bits", number);
    }
    *out = value_int((int64_t)number);
    return 0;
}

static int int_of_text(const struct builtin_call *in, int base, struct value *out,
                       struct error *err)
{
    bool is_number;
    int64_t whole = 0;
    double number;
    int rc = text_as_int(in->self->text, base, &is_number, &whole, err);
    if (rc) return rc;
    if (is_number) {
        *out = value_int(whole);
        return 0;
    }
    is_number = text_as_double(in->self->text, &number);
    return is_number && isfinite(number) ? double_as_int(number, out, err) : 0;
}

int filter_int(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    int64_t base = 10;
    int rc = argument_int(in, 1, &base, err);
    (void)r;
    if (rc) return rc;
    if (base < 2 || base > 36) return error_set(err, ERR_ARGUMENT, "int: a base of 2 to 36");
    if (in->self->kind == VALUE_UNDEFINED) return undefined_error(in->self, err);
    *out = in->args[0] ? *in->args[0] : value_int(0);
    switch (in->self->kind) {
    case VALUE_INT:
    case VALUE_BOOL:
        *out = value_int(in->self->integer);
        return 0;
    case VALUE_FLOAT:
        return isnan(in->self->number) ? 0 : double_as_int(in->self->number, out, err);
    case VALUE_STRING:
        return int_of_text(in, (int)base, out, err);
    default:
        return 0;
    }
}

int filter_float(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    double number;
    (void)r;
    if (in->self->kind == VALUE_UNDEFINED) return undefined_error(in->self, err);
    *out = in->args[0] ? *in->args[0] : value_float(0);
    if (value_is_number(in->self)) {
        *out = value_float(value_as_double(in->self));
    } else if (in->self->kind == VALUE_STRING && text_as_double(in->self->text, &number)) {
        *out = value_float(number);
    }
    return 0;
}

static int check_number(const struct builtin_call *in, const char *name, struct error *err)
{
    if (value_is_number(in->self)) return 0;
    return error_set(err, ERR_ARGUMENT, "%s: a number is needed, not a %s", name,
                     value_type(in->self));
}

int filter_abs(struct render *r, const struct builtin_call *in, struct value *out,
               struct error *err)
{
    int rc = check_number(in, "abs", err);
    (void)r;
    if (rc) return rc;
    if (in->self->kind == VALUE_FLOAT) {
        *out = value_float(fabs(in->self->number));
        return 0;
    }
    if (in->self->integer == INT64_MIN) {
        return error_set(err, ERR_ARGUMENT, "a whole number does not fit into 64 bits");
    }
    *out = value_int(in->self->integer < 0 ? -in->self->integer : in->self->integer);
    return 0;
}

/* The nearest number with that many digits after the point, as printf and Python find it: the exact
 * value counts, and of two equally near ones the even digit. */
static double round_digits(double number, int digits)
{
    char text[NUMBER_BYTES];
    if (!isfinite(number) || digits > 22) return number;
    if (digits < 0) {
        double unit = pow(10, -digits);
        return nearbyint(number / unit) * unit;
    }
    if (fabs(number) >= 1e200) return number;
    snprintf(text, sizeof text, "%.*f", digits, number);
    return strtod(text, NULL);
}

int filter_round(struct render *r, const struct builtin_call *in, struct value *out,
                 struct error *err)
{
    int rc = 0;
    int64_t digits = 0;
    struct string method = {"common", 6};
    (void)r;
    TRY(check_number(in, "round", err));
    TRY(argument_int(in, 0, &digits, err));
    TRY(argument_text(in, 1, &method, err));
    digits = digits < -DIGITS_MAX ? -DIGITS_MAX : digits > DIGITS_MAX ? DIGITS_MAX : digits;
    double number = value_as_double(in->self), unit = pow(10, (double)digits);
    if (string_is(method, "ceil")) {
        *out = value_float(ceil(number * unit) / unit);
    } else if (string_is(method, "floor")) {
        *out = value_float(floor(number * unit) / unit);
    } else if (!string_is(method, "common")) {
        rc = error_set(err, ERR_ARGUMENT, "round: method must be common, ceil or floor");
    } else if (in->self->kind == VALUE_FLOAT) {
        *out = value_float(round_digits(number, (int)digits));
    } else if (digits >= 0) {
        *out = value_int(in->self->integer);
    } else {
        rc = double_as_int(round_digits(number, (int)digits), out, err);
    }
out:
    return rc;
}
