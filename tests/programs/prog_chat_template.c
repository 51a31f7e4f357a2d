/* ctest: libs=jinja */
/* Renders templates for tests/cluster/test_chat_templates.py, which compares them with jinja2. A
 * line of the standard input is {"template": text, "values": object, "now_s": number}; its answer
 * is a line {"text": text} or {"refused": sentence, "when": "read" or "rendered"}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/jinja/jinja.h"

static json_t *refusal(const char *when, const struct error *err)
{
    return json_pack("{s:s,s:s}", "refused", err->text, "when", when);
}

static json_t *answer_text(const struct buffer *text)
{
    const char *data = text->len ? (const char *)text->data : "";
    json_t *answer = json_pack("{s:s%}", "text", data, text->len);
    return answer ? answer : json_pack("{s:s}", "wrong", "the text is not valid UTF-8");
}

static json_t *answer_to(const json_t *request)
{
    const struct jinja_limits limits = {.steps = 4000000, .depth = 200, .memory_bytes = 128 << 20};
    const json_t *template = json_object_get(request, "template");
    const json_t *values = json_object_get(request, "values");
    int64_t now_s = json_integer_value(json_object_get(request, "now_s"));
    struct jinja *jinja;
    struct buffer text = {0};
    struct error err;
    if (jinja_parse(&jinja, json_string_value(template), json_string_length(template),
                    "the template", &err)) {
        return refusal("read", &err);
    }
    int rc = jinja_render(jinja, values, now_s, &limits, &text, &err);
    json_t *answer = rc ? refusal("rendered", &err) : answer_text(&text);
    buffer_free(&text);
    jinja_close(jinja);
    return answer;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t error;
        json_t *request = json_loads(line, JSON_ALLOW_NUL, &error);
        if (!json_is_string(json_object_get(request, "template"))) {
            fprintf(stderr, "not a request: %s: %s\n", error.text, line);
            return 2;
        }
        json_t *answer = answer_to(request);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        json_decref(request);
    }
    free(line);
    return 0;
}
