/* Statements, as jinja2/parser.py reads them. */
#include <string.h>

#include "model/jinja/parser.h"

enum { TARGETS_MAX = 16, PARAMETERS_MAX = 32 };

static int parse_targets(struct parser *p, struct target *target, struct error *err);

static int parse_target_tuple(struct parser *p, struct target *target, struct error *err)
{
    int rc = 0;
    TRY(parser_enter(p, err));
    TRY(parser_expect_operator(p, "(", err));
    TRY(parse_targets(p, target, err));
    TRY(parser_expect_operator(p, ")", err));
    p->depth--;
out:
    return rc;
}

static int parse_target(struct parser *p, struct target *target, struct error *err)
{
    struct string name;
    if (parser_is_operator(p, "(")) return parse_target_tuple(p, target, err);
    *target = (struct target){.kind = TARGET_NAME, .line = p->at->line};
    int rc = parser_variable(p, &name, &target->symbol, err);
    if (rc || !parser_skip_operator(p, ".")) return rc;
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of an attribute", err);
    target->kind = TARGET_ATTRIBUTE;
    target->attribute = p->at->text;
    p->at++;
    return 0;
}

/* One target, or several with commas between them. */
static int parse_targets(struct parser *p, struct target *target, struct error *err)
{
    int rc = 0, line = p->at->line;
    struct target list[TARGETS_MAX], *kept;
    size_t n = 0;
    bool is_tuple = false;
    do {
        if (n == TARGETS_MAX) return parser_unexpected(p, "fewer variables", err);
        /* A comma at the end. */
        if (n && p->at->kind != TOKEN_NAME && !parser_is_operator(p, "(")) break;
        TRY(parse_target(p, &list[n++], err));
    } while (parser_skip_operator(p, ",") && (is_tuple = true));
    *target = list[0];
    if (!is_tuple) goto out;
    TRY(parser_array(p, &kept, n, err));
    *target = (struct target){
        .kind = TARGET_TUPLE, .line = line, .n = n, .items = memcpy(kept, list, n * sizeof *list)};
out:
    return rc;
}

/* ---- statements ---- */

static int parse_body(struct parser *p, const char *const ends[], struct statement **out,
                      struct error *err);

static int make(struct parser *p, enum statement_kind kind, struct statement **out,
                struct error *err)
{
    int rc = parser_array(p, out, 1, err);
    if (rc) return rc;
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return 0;
}

/* The rest of a block from the end of its first tag: body, {% end %}. */
static int parse_block(struct parser *p, const char *end, struct statement **body,
                       struct error *err)
{
    int rc = 0;
    const char *const ends[] = {end, NULL};
    TRY(parser_expect_block_end(p, err));
    TRY(parse_body(p, ends, body, err));
    TRY(parser_expect_name(p, end, err));
    TRY(parser_expect_block_end(p, err));
out:
    return rc;
}

/* A condition, and the body that it decides about. */
static int parse_branch(struct parser *p, struct branch *branch, struct error *err)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    int rc = parse_tuple(p, false, &branch->test, err);
    if (!rc) rc = parser_expect_block_end(p, err);
    return rc ? rc : parse_body(p, ends, &branch->body, err);
}

static int parse_if(struct parser *p, struct statement **out, struct error *err)
{
    int rc = 0;
    struct statement *s;
    TRY(make(p, STATEMENT_IF, &s, err));
    *out = s;
    struct branch *branch = &s->branch;
    TRY(parse_branch(p, branch, err));
    while (parser_skip_name(p, "elif")) {
        TRY(parser_array(p, &branch->next, 1, err));
        branch = branch->next;
        TRY(parse_branch(p, branch, err));
    }
    if (parser_skip_name(p, "else")) {
        TRY(parser_array(p, &branch->next, 1, err));
        return parse_block(p, "endif", &branch->next->body, err);
    }
    TRY(parser_expect_name(p, "endif", err));
    TRY(parser_expect_block_end(p, err));
out:
    return rc;
}

static int parse_for(struct parser *p, struct statement **out, struct error *err)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    int rc = 0;
    struct statement *s;
    TRY(make(p, STATEMENT_FOR, &s, err));
    TRY(parse_targets(p, &s->loop.target, err));
    TRY(parser_expect_name(p, "in", err));
    TRY(parse_tuple(p, false, &s->loop.items, err));
    if (parser_skip_name(p, "if")) TRY(parse_expression(p, &s->loop.test, err));
    if (parser_is_name(p, "recursive")) {
        rc = parser_unsupported(s->line, "a loop that is", p->at->text, err);
        goto out;
    }
    TRY(parser_expect_block_end(p, err));
    p->n_loops++;
    rc = parse_body(p, ends, &s->loop.body, err);
    p->n_loops--;
    if (rc) goto out;
    *out = s;
    if (parser_skip_name(p, "else")) return parse_block(p, "endfor", &s->loop.otherwise, err);
    TRY(parser_expect_name(p, "endfor", err));
    TRY(parser_expect_block_end(p, err));
out:
    return rc;
}

static int parse_set(struct parser *p, struct statement **out, struct error *err)
{
    int rc = 0;
    struct statement *s;
    TRY(make(p, STATEMENT_SET, &s, err));
    TRY(parse_targets(p, &s->set.target, err));
    if (parser_skip_operator(p, "=")) {
        TRY(parse_tuple(p, true, &s->set.value, err));
        TRY(parser_expect_block_end(p, err));
    } else {
        s->kind = STATEMENT_SET_BLOCK;
        if (parser_skip_operator(p, "|")) TRY(parse_block_filter(p, &s->set.filter, err));
        TRY(parse_block(p, "endset", &s->set.body, err));
    }
    *out = s;
out:
    return rc;
}

/* "(a, b=1)" of a macro or a call block. */
static int parse_parameters(struct parser *p, struct macro *macro, struct error *err)
{
    int rc = 0;
    struct parameter list[PARAMETERS_MAX], *kept;
    size_t n = 0;
    TRY(parser_expect_operator(p, "(", err));
    while (!parser_skip_operator(p, ")")) {
        if (n == PARAMETERS_MAX) return parser_unexpected(p, "fewer parameters", err);
        if (n) TRY(parser_expect_operator(p, ",", err));
        list[n] = (struct parameter){0};
        TRY(parser_variable(p, &list[n].name, &list[n].symbol, err));
        if (parser_skip_operator(p, "=")) {
            TRY(parse_expression(p, &list[n].otherwise, err));
        } else if (n && list[n - 1].otherwise) {
            rc = parser_unexpected(p, "a default, as the parameter before has one", err);
            goto out;
        }
        n++;
    }
    TRY(parser_array(p, &kept, n, err));
    macro->n_parameters = n;
    if (n) macro->parameters = memcpy(kept, list, n * sizeof *list);
out:
    return rc;
}

static int parse_macro_body(struct parser *p, struct macro *macro, const char *end,
                            struct error *err)
{
    struct parser outer = *p;
    p->uses_varargs = p->uses_kwargs = p->uses_caller = false;
    p->n_loops = 0;
    int rc = parse_block(p, end, &macro->body, err);
    macro->uses_varargs = p->uses_varargs;
    macro->uses_kwargs = p->uses_kwargs;
    macro->uses_caller = p->uses_caller;
    p->uses_varargs = outer.uses_varargs;
    p->uses_kwargs = outer.uses_kwargs;
    p->uses_caller = outer.uses_caller;
    p->n_loops = outer.n_loops;
    return rc;
}

static int parse_macro(struct parser *p, struct statement **out, struct error *err)
{
    int rc = 0;
    struct statement *s;
    TRY(make(p, STATEMENT_MACRO, &s, err));
    TRY(parser_variable(p, &s->macro.macro.name, &s->macro.symbol, err));
    TRY(parse_parameters(p, &s->macro.macro, err));
    TRY(parse_macro_body(p, &s->macro.macro, "endmacro", err));
    *out = s;
out:
    return rc;
}

static int parse_call_block(struct parser *p, struct statement **out, struct error *err)
{
    int rc = 0;
    struct statement *s;
    TRY(make(p, STATEMENT_CALL, &s, err));
    s->call.caller.name = string_of("caller", 6);
    if (parser_is_operator(p, "(")) TRY(parse_parameters(p, &s->call.caller, err));
    TRY(parse_postfix_expression(p, &s->call.call, err));
    if (s->call.call->kind != EXPR_CALL) return parser_unexpected(p, "a call", err);
    TRY(parse_macro_body(p, &s->call.caller, "endcall", err));
    *out = s;
out:
    return rc;
}

static int parse_filter_block(struct parser *p, struct statement **out, struct error *err)
{
    struct statement *s;
    int rc = make(p, STATEMENT_FILTER, &s, err);
    if (!rc) rc = parse_block_filter(p, &s->filter.filter, err);
    if (!rc) rc = parse_block(p, "endfilter", &s->filter.body, err);
    *out = s;
    return rc;
}

static int parse_with(struct parser *p, struct statement **out, struct error *err)
{
    int rc = 0;
    struct statement *s;
    struct target targets[TARGETS_MAX], *kept;
    const struct expr *values[TARGETS_MAX];
    size_t n = 0;
    TRY(make(p, STATEMENT_WITH, &s, err));
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n == TARGETS_MAX) return parser_unexpected(p, "fewer variables", err);
        if (n) TRY(parser_expect_operator(p, ",", err));
        TRY(parse_target(p, &targets[n], err));
        TRY(parser_expect_operator(p, "=", err));
        TRY(parse_expression(p, &values[n++], err));
    }
    s->with.n = n;
    TRY(parser_array(p, &kept, n, err));
    TRY(parser_array(p, &s->with.values, n, err));
    if (n) s->with.targets = memcpy(kept, targets, n * sizeof *targets);
    if (n) memcpy(s->with.values, values, n * sizeof *values);
    TRY(parse_block(p, "endwith", &s->with.body, err));
    *out = s;
out:
    return rc;
}

/* {% generation %} marks what the assistant says, for training; here it is only a scope. */
static int parse_generation(struct parser *p, struct statement **out, struct error *err)
{
    struct statement *s;
    int rc = make(p, STATEMENT_WITH, &s, err), n_loops = p->n_loops;
    p->n_loops = 0; /* in jinja2, too, break cannot leave it */
    if (!rc) rc = parse_block(p, "endgeneration", &s->with.body, err);
    p->n_loops = n_loops;
    *out = s;
    return rc;
}

static int parse_jump(struct parser *p, enum statement_kind kind, struct statement **out,
                      struct error *err)
{
    struct statement *s;
    if (!p->n_loops) return parser_unexpected(p, "a loop around break or continue", err);
    int rc = make(p, kind, &s, err);
    if (!rc) rc = parser_expect_block_end(p, err);
    *out = s;
    return rc;
}

static int parse_break(struct parser *p, struct statement **out, struct error *err)
{
    return parse_jump(p, STATEMENT_BREAK, out, err);
}

static int parse_continue(struct parser *p, struct statement **out, struct error *err)
{
    return parse_jump(p, STATEMENT_CONTINUE, out, err);
}

static int parse_tag(struct parser *p, struct statement **out, struct error *err)
{
    static const struct {
        const char *name;
        int (*parse)(struct parser *, struct statement **, struct error *);
    } tags[] = {{"if", parse_if},           {"for", parse_for},
                {"set", parse_set},         {"macro", parse_macro},
                {"call", parse_call_block}, {"filter", parse_filter_block},
                {"with", parse_with},       {"generation", parse_generation},
                {"break", parse_break},     {"continue", parse_continue}};
    if (p->at->kind != TOKEN_NAME) return parser_unexpected(p, "the name of a tag", err);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (parser_skip_name(p, tags[i].name)) return tags[i].parse(p, out, err);
    }
    bool is_end = p->at->text.len > 3 && memcmp(p->at->text.data, "end", 3) == 0;
    if (is_end || parser_is_name(p, "else") || parser_is_name(p, "elif")) {
        return parser_unexpected(p, "a tag that is open", err);
    }
    return parser_unsupported(p->at->line, "the tag", p->at->text, err);
}

static int parse_print(struct parser *p, struct statement **out, struct error *err)
{
    struct statement *s;
    int rc = make(p, STATEMENT_PRINT, &s, err);
    if (!rc) rc = parse_tuple(p, true, &s->value, err);
    if (!rc && p->at->kind != TOKEN_PRINT_END) {
        rc = parser_unexpected(p, "the end of the tag", err);
    }
    p->at += !rc;
    *out = s;
    return rc;
}

static int parse_text(struct parser *p, struct statement **out, struct error *err)
{
    struct statement *s;
    int rc = make(p, STATEMENT_TEXT, &s, err);
    if (rc) return rc;
    s->text = p->at->text;
    p->at++;
    *out = s;
    return 0;
}

static const char *last_of(const char *const names[])
{
    while (names[1])
        names++;
    return names[0];
}

static bool is_one_of(const struct parser *p, const char *const ends[])
{
    for (size_t i = 0; ends && ends[i]; i++) {
        if (parser_is_name(p, ends[i])) return true;
    }
    return false;
}

/* Statements up to the tag of one of `ends`, whose name is the next token then; for NULL up to the
 * end of the template. */
static int parse_body(struct parser *p, const char *const ends[], struct statement **out,
                      struct error *err)
{
    int rc = 0, depth = p->depth;
    struct statement **next = out;
    *out = NULL;
    TRY(parser_enter(p, err));
    while (p->at->kind != TOKEN_END) {
        enum token_kind kind = p->at->kind;
        p->at += kind != TOKEN_TEXT;
        if (kind == TOKEN_BLOCK_BEGIN && is_one_of(p, ends)) goto out;
        if (kind == TOKEN_TEXT) {
            TRY(parse_text(p, next, err));
        } else if (kind == TOKEN_PRINT_BEGIN) {
            TRY(parse_print(p, next, err));
        } else {
            TRY(parse_tag(p, next, err));
        }
        next = &(*next)->next;
    }
    if (ends) rc = parser_missing(p, last_of(ends), err);
out:
    p->depth = depth;
    return rc;
}

int parse_statements(struct parser *p, struct statement **out, struct error *err)
{
    return parse_body(p, NULL, out, err);
}
