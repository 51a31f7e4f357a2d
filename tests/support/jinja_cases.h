/* Templates and what they print, with values that all of these tests share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/text/buffer.h"
#include "model/jinja/jinja.h"
#include "tests/support/check_util.h"

struct jinja_case {
    const char *template, *text;
};

enum { JINJA_NOW_S = 1700000000 }; /* Tuesday, 14 November 2023, 22:13:20 */

static const char jinja_values[] =
    "{\"a\": 5, \"b\": -3, \"f\": 2.5, \"s\": \"Hello World\", \"e\": \"\", \"n\": null,"
    " \"t\": true, \"l\": [3, 1, 2], \"w\": [\"b\", \"A\", \"c\", \"a\"],"
    " \"d\": {\"x\": 1, \"y\": {\"z\": [1, 2, {\"k\": \"v\"}]}, \"items\": 9},"
    " \"u\": \"äöü ß 你好 😀 <&>\\\"'\", \"ml\": \"one\\n two\\n\\nthree\\n\","
    " \"big\": 9007199254740993,"
    " \"people\": [{\"name\": \"Bob\", \"age\": 30}, {\"name\": \"alice\", \"age\": 25},"
    "              {\"name\": \"Carl\"}],"
    " \"nested\": [[1, 2], [3]],"
    " \"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
    "                {\"role\": \"assistant\", \"content\": \"yo\\n\"}]}";

/* Reads and renders a template; the caller frees *text. */
static inline int jinja_run(const char *template, const struct jinja_limits *limits,
                            struct buffer *text, struct error *err)
{
    struct jinja *jinja;
    *text = (struct buffer){0};
    int rc = jinja_parse(&jinja, template, strlen(template), "the template", err);
    if (rc) return rc;
    json_t *values = json_loads(jinja_values, 0, NULL);
    ck_assert(values != NULL);
    rc = jinja_render(jinja, values, JINJA_NOW_S, limits, text, err);
    json_decref(values);
    jinja_close(jinja);
    return rc;
}

static const struct jinja_limits jinja_ample = {
    .steps = 100000, .depth = 100, .memory_bytes = 1 << 20};

static inline void jinja_check(const struct jinja_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buffer text;
        struct error err = {0};
        int rc = jinja_run(cases[i].template, &jinja_ample, &text, &err);
        bool is_equal = !rc && text.len == strlen(cases[i].text) &&
                        (!text.len || memcmp(text.data, cases[i].text, text.len) == 0);
        ck_assert_msg(is_equal, "%s\ngives %s%.*s\nand not %s", cases[i].template,
                      rc ? err.text : "", (int)text.len, text.data ? (char *)text.data : "",
                      cases[i].text);
        buffer_free(&text);
    }
}

#define CHECK_CASES(cases) jinja_check((cases), sizeof(cases) / sizeof *(cases))
