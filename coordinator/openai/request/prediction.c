/* OpenAI's "prediction": the text that the answer is expected to be, but for a few changes. */
#include <stdio.h>
#include <string.h>

#include "coordinator/openai/request/fields.h"

static int refuse_content(struct reading *r, const json_t *v)
{
    r->r->field = "prediction.content";
    return openai_refuse(r->r, "is %s, must be a text or a list of parts of type \"text\"",
                         v ? openai_type_of(v) : "missing");
}

/* Joins the texts of parts, in order. */
static int join_parts(struct reading *r, const json_t *parts)
{
    struct generate_request *g = &r->out->generate;
    char field[OPENAI_PARAM_BYTES], *joined;
    size_t i, len = 0;
    json_t *part;
    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        snprintf(field, sizeof field, "prediction.content[%zu]", i);
        r->r->field = field;
        int rc = openai_check_part(r->r, part);
        if (rc) return rc;
        len += json_string_length(json_object_get(part, "text"));
    }
    r->r->field = "prediction.content";
    int rc = openai_take(r->r, &joined, len + 1, 1);
    if (rc) return rc;
    g->prediction = joined;
    g->prediction_len = len;
    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        size_t n = json_string_length(text);
        memcpy(joined, json_string_value(text), n);
        joined += n;
    }
    return 0;
}

int openai_field_prediction(struct reading *r, const json_t *v)
{
    struct generate_request *g = &r->out->generate;
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *content = json_object_get(v, "content");
    if (!json_is_object(v)) {
        return openai_refuse(r->r,
                             "is %s, must be an object {\"type\": \"content\", \"content\": ...}",
                             openai_type_of(v));
    }
    if (!type || strcmp(type, "content") != 0) {
        r->r->field = "prediction.type";
        return openai_refuse(r->r, "must be \"content\"");
    }
    if (json_is_array(content)) return join_parts(r, content);
    if (!json_is_string(content)) return refuse_content(r, content);
    g->prediction = json_string_value(content);
    g->prediction_len = json_string_length(content);
    return 0;
}
