/* Reads the prompts of `outrider record`. */
#include "client/record/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/json.h"
#include "client/input.h"

enum { FILE_BYTES_MAX = 256 << 20, PLACE_BYTES = 300 };

void record_prompts_free(struct record_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++) {
        free(prompts->data[i].text);
        token_ids_free(&prompts->data[i].ids);
        token_ids_free(&prompts->data[i].answer);
    }
    free(prompts->data);
    *prompts = (struct record_prompts){0};
}

static int read_line(struct record_prompts *prompts, const char *line, size_t len, int number,
                     const char *place, struct error *err)
{
    json_t *object = NULL;
    const char *text = NULL;
    int rc = 0;
    TRY(json_parse_text(&object, line, len, place, err));
    TRY(mem_grow(&prompts->data, &prompts->capacity, prompts->n + 1, err));
    struct record_prompt *prompt = &prompts->data[prompts->n++];
    *prompt = (struct record_prompt){.line = number};
    TRY(json_read_string(object, "prompt", &text, place, err));
    TRY(input_json_ids(&prompt->ids, json_member(object, "prompt_ids"), "prompt_ids", place, err));
    TRY(input_json_ids(&prompt->answer, json_member(object, "answer_ids"), "answer_ids", place,
                       err));
    if (!text == !prompt->ids.n) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: give either \"prompt\", a text, or \"prompt_ids\", at least one id",
                       place);
    } else if (text && prompt->answer.n) {
        rc = error_set(err, ERR_FORMAT, "%s: \"answer_ids\" goes with \"prompt_ids\"", place);
    } else if (text) {
        prompt->text = strdup(text);
        if (!prompt->text) rc = error_set(err, ERR_NO_MEMORY, "no memory for a prompt");
    }
out:
    json_decref(object);
    return rc;
}

int record_prompts_read(struct record_prompts *prompts, const char *path, struct error *err)
{
    char *data = NULL, place[PLACE_BYTES];
    size_t len;
    int rc = 0, number = 1;
    TRY(file_read_text(&data, &len, path, FILE_BYTES_MAX, err));
    for (const char *at = data, *end = data + len; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        snprintf(place, sizeof place, "%.250s, line %d", path, number);
        if (n) TRY(read_line(prompts, at, n, number, place, err));
        at += n + 1;
    }
    if (prompts->n == 0) rc = error_set(err, ERR_FORMAT, "%.250s has no prompt", path);
out:
    free(data);
    return rc;
}
