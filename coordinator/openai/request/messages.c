/* The messages of a conversation: what is refused of them, and what a template sees. A template
 * sees no key that is null, as with transformers: templates ask whether a key is there, and would
 * print "None" or refuse the answer of an earlier turn that a client sends back as it got it. */
#include <stdio.h>
#include <string.h>

#include "base/text/buffer.h"
#include "coordinator/openai/request/request.h"

/* ---- what is refused ---- */

int openai_check_part(struct openai_reading *r, const json_t *part)
{
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    char field[OPENAI_PARAM_BYTES];
    if (!json_is_object(part)) {
        return openai_refuse(r, "is %s, must be an object {\"type\": \"text\", \"text\": ...}",
                             openai_type_of(part));
    }
    if (!json_is_string(type) || strcmp(json_string_value(type), "text")) {
        return openai_refuse(r,
                             "is a part of type \"%.40s\", must be of type \"text\"; this model "
                             "reads text alone",
                             json_is_string(type) ? json_string_value(type) : "");
    }
    if (json_is_string(text)) return 0;
    snprintf(field, sizeof field, "%.*s.text", (int)sizeof field - 8, r->field);
    r->field = field;
    return openai_refuse(r, "is %s, must be a text", text ? openai_type_of(text) : "missing");
}

/* The content of message number i, if it has one. */
static int check_content(struct openai_reading *r, size_t i, const json_t *content)
{
    char field[OPENAI_PARAM_BYTES];
    size_t part;
    json_t *v;
    int rc;
    if (!content || json_is_null(content) || json_is_string(content)) return 0;
    r->field = field;
    snprintf(field, sizeof field, "messages[%zu].content", i);
    if (!json_is_array(content)) {
        return openai_refuse(r, "is %s, must be a text or a list of parts of type \"text\"",
                             openai_type_of(content));
    }
    json_array_foreach((json_t *)(uintptr_t)content, part, v)
    {
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", i, part);
        if ((rc = openai_check_part(r, v))) return rc;
    }
    r->field = "messages";
    return 0;
}

int openai_check_messages(struct openai_reading *r, const json_t *v)
{
    int rc = 0;
    r->field = "messages";
    if (!json_is_array(v) || !json_array_size(v)) {
        return openai_refuse(r, "must be an array of messages, at least one");
    }
    for (size_t i = 0; i < json_array_size(v) && !rc; i++) {
        const json_t *message = json_array_get(v, i);
        if (!json_is_object(message)) {
            return openai_refuse(r, "has an item %zu that is not an object", i);
        }
        if (!json_is_string(json_object_get(message, "role"))) {
            return openai_refuse(r, "has an item %zu without a role", i);
        }
        rc = check_content(r, i, json_object_get(message, "content"));
    }
    r->field = "messages"; /* not one of another function's stack */
    return rc;
}

/* ---- what a template sees ---- */

/* The object without its null keys; NULL = no memory. */
static json_t *without_nulls(const json_t *object)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)object), *value;
    const char *key;
    void *next;
    json_object_foreach_safe(copy, next, key, value)
    {
        if (json_is_null(value)) json_object_del(copy, key);
    }
    return copy;
}

/* Parts as one text, which is what templates of text models expect; NULL = no memory. */
static json_t *joined_parts(const json_t *parts)
{
    struct buffer text = {0};
    struct error err;
    size_t i;
    json_t *part, *joined = NULL;
    int rc = 0;
    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        const json_t *own = json_object_get(part, "text");
        if (i) TRY(buffer_append(&text, "\n", 1, &err));
        TRY(buffer_append(&text, json_string_value(own), json_string_length(own), &err));
    }
    joined = json_stringn(text.data ? (const char *)text.data : "", text.len);
out:
    buffer_free(&text);
    return joined;
}

/* Parts without their null keys; NULL = no memory. */
static json_t *plain_parts(const json_t *parts)
{
    json_t *list = json_array(), *part;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        if (!json_array_append_new(list, without_nulls(part))) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* "tool_calls": [] says that there are none, and templates ask for the first of what is there. */
static json_t *plain_message(const json_t *message, bool takes_parts)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *plain = without_nulls(message), *own;
    if (json_is_array(calls) && !json_array_size(calls)) json_object_del(plain, "tool_calls");
    if (!plain || !json_is_array(content)) return plain;
    own = takes_parts ? plain_parts(content) : joined_parts(content);
    if (!json_object_set_new(plain, "content", own)) return plain;
    json_decref(plain);
    return NULL;
}

int openai_plain_messages(const json_t *messages, bool takes_parts, json_t **plain,
                          struct error *err)
{
    size_t i;
    json_t *message, *list = json_array();
    json_array_foreach((json_t *)(uintptr_t)messages, i, message)
    {
        if (!json_array_append_new(list, plain_message(message, takes_parts))) continue;
        json_decref(list);
        list = NULL;
        break;
    }
    *plain = list;
    return list ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for a conversation");
}
