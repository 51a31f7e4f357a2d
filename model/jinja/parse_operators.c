/* Operators, from the one that binds least to the one that binds most, as jinja2/parser.py has
 * them. */
#include <string.h>

#include "model/jinja/parser.h"

typedef int parse_fn(struct parser *p, const struct expr **out, struct error *err);

static int make_binary(struct parser *p, enum expr_kind kind, enum operation operation, int line,
                       const struct expr *left, const struct expr *right, const struct expr **out,
                       struct error *err)
{
    struct expr *e;
    int rc = parser_make(p, kind, line, &e, err);
    if (rc) return rc;
    e->binary.operation = operation;
    e->binary.left = left;
    e->binary.right = right;
    *out = e;
    return 0;
}

struct operators {
    size_t n;
    struct {
        const char *text;
        enum operation operation;
    } of[4];
};

/* left op right op right ..., each with the same parser of operands. */
static int parse_chain(struct parser *p, const struct operators *operators, parse_fn *operand,
                       const struct expr **out, struct error *err)
{
    int rc = operand(p, out, err);
    for (size_t i = 0; i < operators->n && !rc;) {
        const struct expr *right;
        int line = p->at->line;
        if (!parser_skip_operator(p, operators->of[i].text)) {
            i++;
            continue;
        }
        bool formats = operators->of[i].operation == OPERATION_MODULO &&
                       (*out)->kind == EXPR_CONSTANT && (*out)->constant.kind == VALUE_STRING;
        if (formats) {
            return parser_unsupported(line, "after a text the operator", string_of("%", 1), err);
        }
        rc = operand(p, &right, err);
        if (!rc) {
            rc = make_binary(p, EXPR_BINARY, operators->of[i].operation, line, *out, right, out,
                             err);
        }
        i = 0;
    }
    return rc;
}

static int parse_unary(struct parser *p, bool with_filters, const struct expr **out,
                       struct error *err);

static int parse_signed(struct parser *p, enum expr_kind kind, const struct expr **out,
                        struct error *err)
{
    struct expr *e;
    int rc = parser_make(p, kind, p->at->line, &e, err);
    p->at++;
    if (!rc) rc = parse_unary(p, false, &e->operand, err);
    *out = e;
    return rc;
}

static int parse_unary(struct parser *p, bool with_filters, const struct expr **out,
                       struct error *err)
{
    int rc = parser_enter(p, err);
    if (rc) return rc;
    if (parser_is_operator(p, "-") || parser_is_operator(p, "+")) {
        rc = parse_signed(p, parser_is_operator(p, "-") ? EXPR_MINUS : EXPR_PLUS, out, err);
    } else {
        rc = parse_postfix_expression(p, out, err);
    }
    if (!rc && with_filters) rc = parse_filters(p, out, err);
    p->depth--;
    return rc;
}

static int parse_filtered(struct parser *p, const struct expr **out, struct error *err)
{
    return parse_unary(p, true, out, err);
}

static int parse_power(struct parser *p, const struct expr **out, struct error *err)
{
    static const struct operators operators = {1, {{"**", OPERATION_POWER}}};
    return parse_chain(p, &operators, parse_filtered, out, err);
}

static int parse_product(struct parser *p, const struct expr **out, struct error *err)
{
    static const struct operators operators = {4,
                                               {{"*", OPERATION_MULTIPLY},
                                                {"/", OPERATION_DIVIDE},
                                                {"//", OPERATION_FLOOR_DIVIDE},
                                                {"%", OPERATION_MODULO}}};
    return parse_chain(p, &operators, parse_power, out, err);
}

static int parse_concatenation(struct parser *p, const struct expr **out, struct error *err)
{
    static const struct operators operators = {1, {{"~", OPERATION_CONCATENATE}}};
    return parse_chain(p, &operators, parse_product, out, err);
}

static int parse_sum(struct parser *p, const struct expr **out, struct error *err)
{
    static const struct operators operators = {2,
                                               {{"+", OPERATION_ADD}, {"-", OPERATION_SUBTRACT}}};
    return parse_chain(p, &operators, parse_concatenation, out, err);
}

/* Takes the operator of a comparison, if one comes next. */
static bool take_comparison(struct parser *p, enum operation *operation)
{
    static const struct {
        const char *text;
        enum operation operation;
    } comparisons[] = {{"==", OPERATION_EQUAL},  {"!=", OPERATION_UNEQUAL},
                       {"<", OPERATION_LESS},    {"<=", OPERATION_LESS_EQUAL},
                       {">", OPERATION_GREATER}, {">=", OPERATION_GREATER_EQUAL}};
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        *operation = comparisons[i].operation;
        if (parser_skip_operator(p, comparisons[i].text)) return true;
    }
    *operation = OPERATION_IN;
    if (parser_skip_name(p, "in")) return true;
    *operation = OPERATION_NOT_IN;
    bool is_not_in =
        parser_is_name(p, "not") && p->at[1].kind == TOKEN_NAME && string_is(p->at[1].text, "in");
    if (is_not_in) p->at += 2;
    return is_not_in;
}

static int parse_comparison(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = 0, line = p->at->line;
    struct expr *e;
    struct comparison rest[PARSER_CHAIN_MAX];
    struct comparison *kept;
    size_t n = 0;
    enum operation operation;
    TRY(parse_sum(p, out, err));
    while (take_comparison(p, &operation)) {
        if (n == PARSER_CHAIN_MAX) {
            rc = parser_unexpected(p, "fewer comparisons in a row", err);
            goto out;
        }
        rest[n].operation = operation;
        TRY(parse_sum(p, &rest[n++].right, err));
    }
    if (!n) goto out;
    TRY(parser_make(p, EXPR_COMPARE, line, &e, err));
    TRY(parser_array(p, &kept, n, err));
    e->compare.left = *out;
    e->compare.n = n;
    e->compare.rest = memcpy(kept, rest, n * sizeof *rest);
    *out = e;
out:
    return rc;
}

static int parse_not(struct parser *p, const struct expr **out, struct error *err)
{
    struct expr *e;
    int line = p->at->line;
    if (!parser_skip_name(p, "not")) return parse_comparison(p, out, err);
    int rc = parser_enter(p, err);
    if (!rc) rc = parser_make(p, EXPR_NOT, line, &e, err);
    if (rc) return rc;
    rc = parse_not(p, &e->operand, err);
    p->depth--;
    *out = e;
    return rc;
}

static int parse_words(struct parser *p, const char *word, enum expr_kind kind, parse_fn *operand,
                       const struct expr **out, struct error *err)
{
    int rc = operand(p, out, err), line = p->at->line;
    while (!rc && parser_skip_name(p, word)) {
        const struct expr *right;
        rc = operand(p, &right, err);
        if (!rc) rc = make_binary(p, kind, OPERATION_ADD, line, *out, right, out, err);
    }
    return rc;
}

static int parse_and(struct parser *p, const struct expr **out, struct error *err)
{
    return parse_words(p, "and", EXPR_AND, parse_not, out, err);
}

int parse_without_if(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = parser_enter(p, err);
    if (rc) return rc;
    rc = parse_words(p, "or", EXPR_OR, parse_and, out, err);
    p->depth--;
    return rc;
}

int parse_expression(struct parser *p, const struct expr **out, struct error *err)
{
    int rc = 0, depth = p->depth, line = p->at->line;
    TRY(parser_enter(p, err));
    TRY(parse_without_if(p, out, err));
    while (parser_skip_name(p, "if")) {
        struct expr *e;
        TRY(parser_make(p, EXPR_IF, line, &e, err));
        e->choice.then = *out;
        TRY(parse_without_if(p, &e->choice.test, err));
        if (parser_skip_name(p, "else")) TRY(parse_expression(p, &e->choice.otherwise, err));
        *out = e;
    }
out:
    p->depth = depth;
    return rc;
}
