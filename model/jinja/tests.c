/* The tests, as in "x is defined", and their table. */
#include <math.h>

#include "model/jinja/arguments.h"
#include "model/jinja/pystring.h"
#include "model/jinja/render.h"

/* ---- kinds ---- */

static bool is_kind(const struct builtin_call *in, enum value_kind kind)
{
    return in->self->kind == kind;
}

/* A test that only looks at the value. */
#define KIND_TEST(name, condition)                                                      \
    static int name(struct render *r, const struct builtin_call *in, struct value *out, \
                    struct error *err)                                                  \
    {                                                                                   \
        (void)r, (void)err;                                                             \
        *out = value_bool(condition);                                                   \
        return 0;                                                                       \
    }

KIND_TEST(test_defined, !is_kind(in, VALUE_UNDEFINED))
KIND_TEST(test_undefined, is_kind(in, VALUE_UNDEFINED))
KIND_TEST(test_none, is_kind(in, VALUE_NONE))
KIND_TEST(test_boolean, is_kind(in, VALUE_BOOL))
KIND_TEST(test_true, is_kind(in, VALUE_BOOL) && in->self->integer)
KIND_TEST(test_false, is_kind(in, VALUE_BOOL) && !in->self->integer)
KIND_TEST(test_integer, is_kind(in, VALUE_INT))
KIND_TEST(test_float, is_kind(in, VALUE_FLOAT))
KIND_TEST(test_number, value_is_number(in->self))
KIND_TEST(test_string, is_kind(in, VALUE_STRING))
KIND_TEST(test_mapping, is_kind(in, VALUE_DICT))
KIND_TEST(test_escaped, is_kind(in, VALUE_STRING) && in->self->is_safe)
KIND_TEST(test_callable, is_kind(in, VALUE_MACRO) || is_kind(in, VALUE_METHOD) ||
                             is_kind(in, VALUE_FUNCTION) || is_kind(in, VALUE_LOOP) ||
                             is_kind(in, VALUE_UNDEFINED))

/* An undefined value counts as empty. */
static bool has_items(const struct value *v)
{
    return value_is_sequence(v) || v->kind == VALUE_STRING || v->kind == VALUE_DICT ||
           v->kind == VALUE_UNDEFINED;
}

KIND_TEST(test_sequence, has_items(in->self))
KIND_TEST(test_iterable, has_items(in->self) || is_kind(in, VALUE_LOOP))

/* ---- comparisons ---- */

static int compare(struct render *r, enum operation operation, const struct builtin_call *in,
                   struct value *out, struct error *err)
{
    return operator_run(r, operation, in->self, in->args[0], out, err);
}

#define COMPARISON_TEST(name, operation)                                                \
    static int name(struct render *r, const struct builtin_call *in, struct value *out, \
                    struct error *err)                                                  \
    {                                                                                   \
        return compare(r, operation, in, out, err);                                     \
    }

COMPARISON_TEST(test_eq, OPERATION_EQUAL)
COMPARISON_TEST(test_ne, OPERATION_UNEQUAL)
COMPARISON_TEST(test_lt, OPERATION_LESS)
COMPARISON_TEST(test_le, OPERATION_LESS_EQUAL)
COMPARISON_TEST(test_gt, OPERATION_GREATER)
COMPARISON_TEST(test_ge, OPERATION_GREATER_EQUAL)
COMPARISON_TEST(test_in, OPERATION_IN)

/* `is` of Python, which is equality for all that a template can tell apart; lists and dicts are
 * compared by where they are. */
static int test_sameas(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    const struct value *a = in->self, *b = in->args[0];
    bool is_same = a->kind == b->kind;
    int rc = 0;
    if (is_same && value_is_sequence(a)) {
        is_same = a->list == b->list;
    } else if (is_same && a->kind == VALUE_DICT) {
        is_same = a->dict == b->dict;
    } else if (is_same) {
        rc = compare_equal(r, a, b, &is_same, err);
    }
    *out = value_bool(is_same);
    return rc;
}

/* ---- numbers and texts ---- */

static int remainder_is(struct render *r, const struct builtin_call *in, int64_t by,
                        int64_t remainder, struct value *out, struct error *err)
{
    const struct value divisor = value_int(by), wanted = value_int(remainder);
    int rc =
        operator_run(r, OPERATION_MODULO, in->self, in->args[0] ? in->args[0] : &divisor, out, err);
    return rc ? rc : operator_run(r, OPERATION_EQUAL, out, &wanted, out, err);
}

static int test_odd(struct render *r, const struct builtin_call *in, struct value *out,
                    struct error *err)
{
    return remainder_is(r, in, 2, 1, out, err);
}

static int test_even(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    return remainder_is(r, in, 2, 0, out, err);
}

static int test_divisibleby(struct render *r, const struct builtin_call *in, struct value *out,
                            struct error *err)
{
    return remainder_is(r, in, 0, 0, out, err);
}

static int has_case(struct render *r, const struct builtin_call *in, enum string_case which,
                    struct value *out, struct error *err)
{
    struct string text;
    int rc = value_as_string(r, in->self, &text, err);
    return rc ? rc : string_has_case(r, text, which, out, err);
}

static int test_lower(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return has_case(r, in, STRING_LOWER, out, err);
}

static int test_upper(struct render *r, const struct builtin_call *in, struct value *out,
                      struct error *err)
{
    return has_case(r, in, STRING_UPPER, out, err);
}

/* Checks if there is a filter, or a test, of that name. */
static int test_filter(struct render *r, const struct builtin_call *in, struct value *out,
                       struct error *err)
{
    (void)r, (void)err;
    *out = value_bool(is_kind(in, VALUE_STRING) && filter_find(in->self->text));
    return 0;
}

static int test_test(struct render *r, const struct builtin_call *in, struct value *out,
                     struct error *err)
{
    (void)r, (void)err;
    *out = value_bool(is_kind(in, VALUE_STRING) && test_find(in->self->text));
    return 0;
}

/* ---- the table ---- */

static const struct builtin tests[] = {
    {"!=", test_ne, 1, false, {"other"}},
    {"<", test_lt, 1, false, {"other"}},
    {"<=", test_le, 1, false, {"other"}},
    {"==", test_eq, 1, false, {"other"}},
    {">", test_gt, 1, false, {"other"}},
    {">=", test_ge, 1, false, {"other"}},
    {"boolean", test_boolean, 0, false, {0}},
    {"callable", test_callable, 0, false, {0}},
    {"defined", test_defined, 0, false, {0}},
    {"divisibleby", test_divisibleby, 1, false, {"num"}},
    {"eq", test_eq, 1, false, {"other"}},
    {"equalto", test_eq, 1, false, {"other"}},
    {"escaped", test_escaped, 0, false, {0}},
    {"even", test_even, 0, false, {0}},
    {"false", test_false, 0, false, {0}},
    {"filter", test_filter, 0, false, {0}},
    {"float", test_float, 0, false, {0}},
    {"ge", test_ge, 1, false, {"other"}},
    {"greaterthan", test_gt, 1, false, {"other"}},
    {"gt", test_gt, 1, false, {"other"}},
    {"in", test_in, 1, false, {"seq"}},
    {"integer", test_integer, 0, false, {0}},
    {"iterable", test_iterable, 0, false, {0}},
    {"le", test_le, 1, false, {"other"}},
    {"lessthan", test_lt, 1, false, {"other"}},
    {"lower", test_lower, 0, false, {0}},
    {"lt", test_lt, 1, false, {"other"}},
    {"mapping", test_mapping, 0, false, {0}},
    {"ne", test_ne, 1, false, {"other"}},
    {"none", test_none, 0, false, {0}},
    {"number", test_number, 0, false, {0}},
    {"odd", test_odd, 0, false, {0}},
    {"sameas", test_sameas, 1, false, {"other"}},
    {"sequence", test_sequence, 0, false, {0}},
    {"string", test_string, 0, false, {0}},
    {"test", test_test, 0, false, {0}},
    {"true", test_true, 0, false, {0}},
    {"undefined", test_undefined, 0, false, {0}},
    {"upper", test_upper, 0, false, {0}},
};

const struct builtin *test_find(struct string name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (string_is(name, tests[i].name)) return &tests[i];
    }
    return NULL;
}
