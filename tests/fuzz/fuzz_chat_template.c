/* ctest: libs=jinja */
/* Any bytes as a chat template and, after the first zero byte, as the JSON of its values. It must
 * be refused with a sentence or rendered within its limits, each time to the same valid text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "model/jinja/jinja.h"

static const struct jinja_limits limits = {.steps = 50000, .depth = 60, .memory_bytes = 1 << 20};

static const char some_values[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u00e4 kind.\"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \" Hello \"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"123456789\","
    "  \"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, true, \"<a>\"]}}}]},"
    " {\"role\": \"tool\", \"content\": \"5\"}, {\"role\": \"user\", \"content\": \"So?\\n\"}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
    " \"tools\": null, \"a\": 5, \"b\": -3, \"f\": 2.5, \"s\": \"Hello World\", \"e\": \"\","
    " \"l\": [3, 1, 2], \"d\": {\"x\": 1, \"y\": {\"z\": [1, {\"k\": \"v\"}]}}, \"n\": null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check_utf8(const char *text, size_t len)
{
    json_t *string = json_stringn(text, len); /* which refuses what is not valid */
    demand(string != NULL);
    json_decref(string);
}

static void check_refusal(int rc, const struct error *err)
{
    demand(rc == ERR_FORMAT || rc == ERR_UNSUPPORTED || rc == ERR_ARGUMENT || rc == ERR_EXHAUSTED);
    demand(rc == err->code && err->text[0]);
    check_utf8(err->text, strlen(err->text));
}

static json_t *read_values(const char *text, size_t len)
{
    json_t *values;
    struct error err;
    if (len && json_parse_text(&values, text, len, "values", &err) == 0) return values;
    demand(json_parse_text(&values, some_values, sizeof some_values - 1, "values", &err) == 0);
    return values;
}

/* Renders twice. */
static void render(const struct jinja *jinja, const json_t *values)
{
    struct buffer first = {0}, second = {0};
    struct error err;
    int rc = jinja_render(jinja, values, 1700000000, &limits, &first, &err);
    if (rc) check_refusal(rc, &err);
    demand(!rc || !first.len);
    demand(first.len <= limits.memory_bytes);
    if (first.len) check_utf8((const char *)first.data, first.len);
    demand(jinja_render(jinja, values, 1700000000, &limits, &second, &err) == rc);
    demand(first.len == second.len);
    demand(!first.len || memcmp(first.data, second.data, first.len) == 0);
    buffer_free(&first);
    buffer_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja *jinja;
    struct error err;
    const char *text = (const char *)data;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - data) : size, rest = end ? len + 1 : size;
    int rc = jinja_parse(&jinja, text, len, "fuzz", &err);
    if (rc) {
        check_refusal(rc, &err);
        return 0;
    }
    json_t *values = read_values(text + rest, size - rest);
    render(jinja, values);
    json_decref(values);
    jinja_close(jinja);
    return 0;
}
