/* Reads prompts from a file, or draws them. */
#include "client/bench/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "client/input.h"

enum { N_MOST = 1 << 28 };

/* One line of the file, without its newline. */
struct line {
    char *text;
    size_t len;
    int number;
};

static bool is_blank(const struct line *line)
{
    return strspn(line->text, " \t\r") == line->len;
}

static int take_json(struct bench_prompts *prompts, struct bench_prompt *prompt,
                     const struct line *line, const char *path, struct error *err)
{
    json_error_t failure;
    json_t *object = json_loadb(line->text, line->len, JSON_REJECT_DUPLICATES, &failure);
    json_t *text = json_object_get(object, "prompt"), *n = json_object_get(object, "n");
    int rc = 0;
    if (!object) {
        rc = error_set(err, ERR_FORMAT, "%.200s, line %d: %s", path, line->number, failure.text);
    } else if (!json_is_string(text)) {
        rc = error_set(err, ERR_FORMAT, "%.200s, line %d: there is no text \"prompt\"", path,
                       line->number);
    } else if (n && (json_integer_value(n) < 1 || json_integer_value(n) > N_MOST)) {
        rc = error_set(err, ERR_FORMAT, "%.200s, line %d: \"n\" is not a whole number from 1 to %d",
                       path, line->number, N_MOST);
    } else if (json_array_append(prompts->lines, object)) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for the prompts");
    } else {
        *prompt = (struct bench_prompt){.text = json_string_value(text),
                                        .len = json_string_length(text),
                                        .max_tokens = (int)json_integer_value(n)};
    }
    json_decref(object);
    return rc;
}

static int take_line(struct bench_prompts *prompts, const struct line *line, const char *path,
                     struct error *err)
{
    struct bench_prompt *prompt = &prompts->items[prompts->n];
    if (is_blank(line)) return 0;
    if (prompts->n == BENCH_PROMPTS_MAX) {
        return error_set(err, ERR_FORMAT, "%.200s has more than %d prompts", path,
                         BENCH_PROMPTS_MAX);
    }
    if (prompts->n == 0 && line->text[0] == '{') prompts->lines = json_array();
    if (prompts->lines) {
        int rc = take_json(prompts, prompt, line, path, err);
        if (rc) return rc;
    } else {
        *prompt = (struct bench_prompt){.text = line->text, .len = line->len};
    }
    prompts->n++;
    return 0;
}

static int take_lines(struct bench_prompts *prompts, size_t len, const char *path,
                      struct error *err)
{
    struct line line = {.text = prompts->file, .number = 1};
    const char *end = prompts->file + len;
    while (line.text < end) {
        char *newline = memchr(line.text, '\n', (size_t)(end - line.text));
        line.len = (size_t)((newline ? newline : end) - line.text);
        line.text[line.len] =
            '\0'; /* a NUL within the line ends the test for blanks early, no more */
        int rc = take_line(prompts, &line, path, err);
        if (rc) return rc;
        line.text += line.len + 1;
        line.number++;
    }
    if (prompts->n) return 0;
    return error_set(err, ERR_FORMAT, "%.200s has no prompt: one a line is expected", path);
}

int bench_prompts_read(struct bench_prompts *prompts, const char *path, struct error *err)
{
    int rc = 0;
    size_t len = 0, n_lines = 1;
    *prompts = (struct bench_prompts){0};
    TRY(file_read_text(&prompts->file, &len, path, INPUT_BYTES_MAX, err));
    for (size_t i = 0; i < len; i++)
        n_lines += prompts->file[i] == '\n';
    TRY(mem_array(&prompts->items, n_lines, sizeof *prompts->items, err));
    TRY(take_lines(prompts, len, path, err));
out:
    if (rc) bench_prompts_close(prompts);
    return rc;
}

static int32_t draw_id(const struct bench_draw *draw, int prompt, int token)
{
    uint32_t number = token < draw->n_shared ? 0 : (uint32_t)prompt;
    const struct rng_address at = {draw->seed, (uint32_t)token, number};
    return (int32_t)(rng_uniform(&at, RNG_LOAD, 0) * draw->vocab_size);
}

int bench_prompts_draw(struct bench_prompts *prompts, const struct bench_draw *draw,
                       struct error *err)
{
    int rc = 0;
    size_t n_ids = (size_t)draw->n * (size_t)draw->n_tokens;
    *prompts = (struct bench_prompts){.n = draw->n};
    TRY(mem_array(&prompts->items, (size_t)draw->n, sizeof *prompts->items, err));
    TRY(mem_array(&prompts->ids, n_ids, sizeof *prompts->ids, err));
    for (int i = 0; i < draw->n; i++) {
        int32_t *ids = prompts->ids + (size_t)i * (size_t)draw->n_tokens;
        for (int t = 0; t < draw->n_tokens; t++) {
            ids[t] = draw_id(draw, i, t);
        }
        prompts->items[i] = (struct bench_prompt){.ids = ids, .n_ids = draw->n_tokens};
    }
out:
    if (rc) bench_prompts_close(prompts);
    return rc;
}

void bench_prompts_renew(struct bench_prompts *prompts, const struct bench_draw *draw, int slice)
{
    for (int i = 0; prompts->ids && i < draw->n; i++) {
        int64_t id = (int64_t)draw_id(draw, i, 0) + slice;
        prompts->ids[(size_t)i * (size_t)draw->n_tokens] = (int32_t)(id % draw->vocab_size);
    }
}

void bench_prompts_close(struct bench_prompts *prompts)
{
    json_decref(prompts->lines);
    free(prompts->items);
    free(prompts->file);
    free(prompts->ids);
    *prompts = (struct bench_prompts){0};
}
