/* A short text can become a large tree: "[[],[],[]" takes 20 times its length. So the values are
 * counted before they are made. */
#include "coordinator/openai/body.h"

#include <stdbool.h>

#include "base/text/json.h"

enum { VALUE_BYTES = 96 }; /* of the largest kind, an empty object with its place in a list */

/* At least as many as there are values before the first error. A prompt has commas and brackets of
 * its own, which are none. */
static size_t count_values(const char *text, size_t len)
{
    size_t n = 1;
    bool is_string = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"') is_string = !is_string;
        if (is_string)
            i += text[i] == '\\';
        else
            n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return n;
}

int openai_body_parse(struct openai_body *body, const char *text, size_t len, struct budget *budget,
                      struct error *err)
{
    size_t bytes = len + VALUE_BYTES * count_values(text, len);
    *body = (struct openai_body){.budget = budget};
    if (!len) return error_set(err, ERR_FORMAT, "the body is empty; it must be a JSON object");
    int rc = budget_take(budget, bytes, err);
    if (rc) return rc;
    body->charged_bytes = bytes;
    rc = json_parse_wide(&body->root, text, len, "seed", "the body", err);
    if (rc) openai_body_free(body);
    return rc;
}

void openai_body_free(struct openai_body *body)
{
    json_decref(body->root);
    if (body->charged_bytes) budget_give(body->budget, body->charged_bytes);
    *body = (struct openai_body){0};
}
