/* A template from its source to its text:
 *
 *   source --lexer.c--> tokens --parser.c, parse_*.c--> statements and expressions (syntax.h)
 *                                                                 |
 *   JSON --jinja.c--> values (value.h) -----------------------> render.c --> text
 *
 * render.c runs statements; eval.c computes expressions with access.c (attributes and items),
 * operators.c, compare.c and call.c. What a template calls by name is in tables (library.h):
 * filters.c, tests.c, methods.c and the functions of call.c. pystring.c, literal.c, tojson.c and
 * strftime.c do what Python's library does. */
#include "model/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/jinja/parser.h"
#include "model/jinja/pystring.h"
#include "model/jinja/render.h"

enum { SOURCE_BYTES_MAX = 1 << 20, TEMPLATE_BYTES_MAX = 64 << 20 };

/* ---- reading ---- */

int jinja_parse(struct jinja **jinja, const char *source, size_t len, const char *origin,
                struct error *err)
{
    int rc = 0;
    struct jinja *made = NULL;
    struct parser *parser = NULL;
    struct token *tokens;
    *jinja = NULL;
    if (len > SOURCE_BYTES_MAX) {
        return error_set(err, ERR_FORMAT, "%s has more than %d bytes", origin, SOURCE_BYTES_MAX);
    }
    if (!string_is_valid(string_of(source, len))) {
        return error_set(err, ERR_FORMAT, "%s is not valid UTF-8", origin);
    }
    TRY(mem_array(&made, 1, sizeof *made, err));
    TRY(mem_array(&parser, 1, sizeof *parser, err));
    made->heap.most_bytes = TEMPLATE_BYTES_MAX;
    TRY(heap_array(&made->heap, &made->origin, strlen(origin) + 1, err));
    memcpy(made->origin, origin, strlen(origin));
    parser->jinja = made;
    TRY(lexer_run(&made->heap, source, len, &tokens, err));
    parser->at = tokens;
    TRY(parse_template(parser, err));
    *jinja = made;
    made = NULL;
out:
    if (rc) error_wrap(err, "%s", origin);
    free(parser);
    jinja_close(made);
    return rc;
}

void jinja_close(struct jinja *jinja)
{
    if (!jinja) return;
    heap_free(&jinja->heap);
    free(jinja);
}

/* ---- values ---- */

static int value_of_json(struct render *r, json_t *json, struct value *out, struct error *err);

static int list_of_json(struct render *r, const json_t *json, struct value *out, struct error *err)
{
    int rc = 0;
    struct value *items;
    size_t n = json_array_size(json);
    TRY(heap_array(&r->heap, &items, n, err));
    for (size_t i = 0; i < n; i++)
        TRY(value_of_json(r, json_array_get(json, i), &items[i], err));
    TRY(value_make_list(&r->heap, VALUE_LIST, items, n, out, err));
out:
    return rc;
}

static int dict_of_json(struct render *r, json_t *json, struct value *out, struct error *err)
{
    int rc = 0;
    const char *name;
    size_t len;
    json_t *member;
    TRY(value_make_dict(&r->heap, VALUE_DICT, json_object_size(json), out, err));
    json_object_keylen_foreach(json, name, len, member)
    {
        const struct value key = value_string(string_of(name, len));
        struct value value;
        TRY(value_of_json(r, member, &value, err));
        TRY(dict_add(out->dict, &key, &value, err));
    }
out:
    return rc;
}

/* Strings are not copied, because the caller keeps the JSON until the text is there. */
static int value_of_json(struct render *r, json_t *json, struct value *out, struct error *err)
{
    int rc = render_enter(r, err);
    if (rc) return rc;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        rc = dict_of_json(r, json, out, err);
        break;
    case JSON_ARRAY:
        rc = list_of_json(r, json, out, err);
        break;
    case JSON_STRING:
        *out = value_string(string_of(json_string_value(json), json_string_length(json)));
        break;
    case JSON_INTEGER:
        *out = value_int(json_integer_value(json));
        break;
    case JSON_REAL:
        *out = value_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = value_bool(json_is_true(json));
        break;
    case JSON_NULL:
        *out = value_none();
        break;
    }
    r->depth--;
    return rc;
}

/* ---- rendering ---- */

/* Values of the names that the template has. */
static int set_globals(struct render *r, const json_t *values, struct error *err)
{
    int rc = 0;
    struct value *globals;
    const struct symbols *symbols = &r->jinja->symbols;
    TRY(heap_array(&r->heap, &globals, symbols->n, err));
    for (size_t i = 0; i < symbols->n; i++) {
        struct string name = symbols->names[i];
        json_t *value = json_object_getn(values, name.data, name.len);
        if (value) TRY(value_of_json(r, value, &globals[i], err));
    }
    r->globals = globals;
out:
    return rc;
}

int jinja_render(const struct jinja *jinja, const json_t *values, int64_t now_s,
                 const struct jinja_limits *limits, struct buffer *out, struct error *err)
{
    int rc = 0;
    struct render r = {.jinja = jinja, .limits = limits, .out = out, .now_s = now_s, .line = 1};
    r.heap.most_bytes = limits->memory_bytes;
    out->len = 0;
    TRY(set_globals(&r, values, err));
    TRY(scope_open(&r, NULL, &r.scope, err));
    TRY(render_body(&r, jinja->body, err));
out:
    if (rc) {
        error_wrap(err, "%s, line %d", jinja->origin, r.line);
        out->len = 0;
    }
    heap_free(&r.heap);
    return rc;
}
