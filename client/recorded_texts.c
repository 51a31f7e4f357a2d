/* Reads recorded texts. */
#include "client/recorded_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/ending.h"
#include "base/text/json.h"
#include "client/input.h"

enum { FILE_BYTES_MAX = 256 << 20, PLACE_BYTES = 300 };

void recorded_texts_free(struct recorded_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++) {
        token_ids_free(&texts->data[i].prompt);
        token_ids_free(&texts->data[i].answer);
    }
    free(texts->data);
    *texts = (struct recorded_texts){0};
}

static int encode(const struct tokenizer *tok, const char *text, size_t len, const char *place,
                  struct token_ids *ids, struct error *err)
{
    if (!tok) {
        return error_set(err, ERR_ARGUMENT,
                         "%s holds text, which needs --model FOLDER with a tokenizer.json", place);
    }
    int rc = tokenizer_encode(tok, text, len, TOKENIZER_PARSE_SPECIAL, ids, err);
    return rc ? error_wrap(err, "%s", place) : 0;
}

/* One half of a text: KEY as a text or KEY_ids as a list. */
static int read_half(const json_t *object, const char *key, const struct tokenizer *tok,
                     const char *place, struct token_ids *ids, struct error *err)
{
    char key_ids[32];
    snprintf(key_ids, sizeof key_ids, "%s_ids", key);
    const json_t *list = json_member(object, key_ids);
    const char *text = NULL;
    if (list) return input_json_ids(ids, list, key_ids, place, err);
    int rc = json_read_string(object, key, &text, place, err);
    if (rc || !text) return rc;
    return encode(tok, text, strlen(text), place, ids, err);
}

static int read_line(struct recorded_texts *texts, const struct tokenizer *tok, const char *line,
                     size_t len, const char *place, struct error *err)
{
    json_t *object = NULL;
    int rc = 0;
    TRY(json_parse_text(&object, line, len, place, err));
    TRY(mem_grow(&texts->data, &texts->capacity, texts->n + 1, err));
    struct recorded_text *text = &texts->data[texts->n++];
    *text = (struct recorded_text){0};
    TRY(read_half(object, "prompt", tok, place, &text->prompt, err));
    TRY(read_half(object, "answer", tok, place, &text->answer, err));
    if (text->answer.n == 0) {
        rc = error_set(err, ERR_FORMAT, "%s has neither \"answer\" nor \"answer_ids\" with tokens",
                       place);
    }
out:
    json_decref(object);
    return rc;
}

static int read_lines(struct recorded_texts *texts, const struct tokenizer *tok, const char *path,
                      const char *text, size_t len, struct error *err)
{
    char place[PLACE_BYTES];
    const char *end = text + len;
    for (int number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t line_len = (size_t)((newline ? newline : end) - text);
        snprintf(place, sizeof place, "%.250s, line %d", path, number);
        int rc = line_len ? read_line(texts, tok, text, line_len, place, err) : 0;
        if (rc) return rc;
        text += line_len + 1;
    }
    return 0;
}

/* The whole file, cut after n_prompt tokens. */
static int read_plain(struct recorded_texts *texts, const struct tokenizer *tok, const char *path,
                      const char *data, size_t len, int n_prompt, struct error *err)
{
    struct token_ids all = {0};
    int rc = 0;
    TRY(encode(tok, data, len, path, &all, err));
    if (all.n <= (size_t)n_prompt) {
        rc = error_set(err, ERR_FORMAT,
                       "%s has %zu tokens, which leaves no answer after %d tokens of prompt", path,
                       all.n, n_prompt);
        goto out;
    }
    TRY(mem_grow(&texts->data, &texts->capacity, texts->n + 1, err));
    struct recorded_text *text = &texts->data[texts->n++];
    *text = (struct recorded_text){0};
    TRY(token_ids_append(&text->prompt, all.data, (size_t)n_prompt, err));
    TRY(token_ids_append(&text->answer, all.data + n_prompt, all.n - (size_t)n_prompt, err));
out:
    token_ids_free(&all);
    return rc;
}

int recorded_texts_read(struct recorded_texts *texts, const struct tokenizer *tok, const char *path,
                        int n_prompt, struct error *err)
{
    char *data = NULL;
    size_t len;
    int rc = 0;
    TRY(file_read_text(&data, &len, path, FILE_BYTES_MAX, err));
    if (ending_is(path, ".jsonl")) {
        rc = read_lines(texts, tok, path, data, len, err);
    } else {
        rc = read_plain(texts, tok, path, data, len, n_prompt, err);
    }
out:
    free(data);
    return rc;
}
