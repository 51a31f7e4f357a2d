/* Lines of JSON become requests. Types and names are checked here; the ranges of most values are
 * the service's to check, which names field and value as well. */
#include "client/jobs/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/limits.h"
#include "base/text/json.h"
#include "speculation/accept/rules.h"

enum {
    ORIGIN_BYTES = 32,
    ARENA_RATIO = 16, /* an element of a list is two bytes here, such as "7,", and a struct there */
    ARENA_SLACK_BYTES = 4096,
    RUN_BYTES_MAX = 64
};

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    }
    return true;
}

int jobs_lines(struct jobs_line **lines, int *n, const char *text, size_t len, struct error *err)
{
    size_t capacity = 0;
    int number = 0;
    *lines = NULL;
    *n = 0;
    for (const char *at = text; at < text + len;) {
        size_t rest = (size_t)(text + len - at);
        const char *newline = memchr(at, '\n', rest);
        size_t line_len = newline ? (size_t)(newline - at) : rest;
        number++;
        if (!is_blank(at, line_len)) {
            int rc = mem_grow(lines, &capacity, (size_t)*n + 1, err);
            if (rc) return rc;
            (*lines)[(*n)++] = (struct jobs_line){.number = number, .text = at, .len = line_len};
        }
        at += line_len + 1;
    }
    return 0;
}

/* ---- fields ---- */

/* Reads one field of the object into the entry. */
struct reader {
    struct jobs_entry *entry;
    const char *origin;
    struct error *err;
};

static int wrong(const struct reader *r, const char *key, const char *wanted)
{
    return error_set(r->err, ERR_FORMAT, "%s: \"%s\" is not %s", r->origin, key, wanted);
}

static int read_float(const struct reader *r, const char *key, float *out)
{
    double value = (double)*out;
    int rc = json_read_double(r->entry->root, key, &value, r->origin, r->err);
    if (!rc) *out = (float)value;
    return rc;
}

/* Reads a number that is never negative. -1 is refused, because it would be taken for a number that
 * the line does not have. */
static int read_natural(const struct reader *r, const char *key, float *out)
{
    int rc = read_float(r, key, out);
    bool is_there = json_member(r->entry->root, key);
    return rc || !is_there || *out >= 0 ? rc : wrong(r, key, "0 or more");
}

static int read_int(const struct reader *r, const char *key, int least, int *out)
{
    return json_read_int(r->entry->root, key, least, INT32_MAX, out, r->origin, r->err);
}

/* A list of token ids; *ids is in the arena. */
static int read_ids(const struct reader *r, const char *key, const json_t *list,
                    const int32_t **ids, int *n)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || !count) return wrong(r, key, "a list of token ids");
    int32_t *out = arena_take(&r->entry->arena, count, sizeof *out);
    if (!out) return error_set(r->err, ERR_NO_MEMORY, "%s: \"%s\" is too long", r->origin, key);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value > INT32_MAX) return wrong(r, key, "a list of token ids");
        out[i] = (int32_t)value;
    }
    *ids = out;
    *n = (int)count;
    return 0;
}

static int read_prompt(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    const json_t *text = json_member(r->entry->root, "prompt");
    const json_t *ids = json_member(r->entry->root, "prompt_ids");
    if (!text == !ids) {
        return error_set(r->err, ERR_FORMAT, "%s: give either \"prompt\" or \"prompt_ids\"",
                         r->origin);
    }
    if (ids) return read_ids(r, "prompt_ids", ids, &req->prompt_ids, &req->n_prompt_ids);
    if (!json_is_string(text)) return wrong(r, "prompt", "a string");
    req->prompt = json_string_value(text);
    req->prompt_len = json_string_length(text);
    return 0;
}

static int read_prediction(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    const json_t *text = json_member(r->entry->root, "prediction");
    if (!text) return 0;
    if (!json_is_string(text)) return wrong(r, "prediction", "a string");
    req->prediction = json_string_value(text);
    req->prediction_len = json_string_length(text);
    return 0;
}

/* One string or a list of them. */
static int read_stops(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    const json_t *value = json_member(r->entry->root, "stop");
    if (!value) return 0;
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    const char **stops = arena_take(&r->entry->arena, n, sizeof *stops);
    if (!stops) return error_set(r->err, ERR_NO_MEMORY, "%s: \"stop\" is too long", r->origin);
    for (size_t i = 0; i < n; i++) {
        stops[i] = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!stops[i]) return wrong(r, "stop", "a string or a list of strings");
    }
    req->stop = stops;
    req->n_stop = (int)n;
    return 0;
}

/* An object: token id as text -> number, as OpenAI has it. */
static int read_biases(const struct reader *r)
{
    static const char wanted[] = "an object of numbers by token id";
    struct generate_request *req = &r->entry->request;
    json_t *object = json_member(r->entry->root, "logit_bias");
    if (!object) return 0;
    if (!json_is_object(object)) return wrong(r, "logit_bias", wanted);
    struct token_bias *out = arena_take(&r->entry->arena, json_object_size(object), sizeof *out);
    if (!out) return wrong(r, "logit_bias", "short enough");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char rest;
        int id = -1;
        if (sscanf(key, "%9d%c", &id, &rest) != 1 || id < 0 || !json_is_number(value)) {
            return wrong(r, "logit_bias", wanted);
        }
        out[req->n_biases++] = (struct token_bias){id, (float)json_number_value(value)};
    }
    req->biases = out;
    return 0;
}

static int read_bans(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    const json_t *list = json_member(r->entry->root, "bad_words");
    if (!list) return 0;
    if (!json_is_array(list)) return wrong(r, "bad_words", "a list of lists of token ids");
    size_t n = json_array_size(list);
    struct token_ban *bans = arena_take(&r->entry->arena, n, sizeof *bans);
    if (!bans) return wrong(r, "bad_words", "short enough");
    req->bans = bans;
    for (size_t i = 0; i < n; i++) {
        int rc = read_ids(r, "bad_words", json_array_get(list, i), &bans[i].ids, &bans[i].n);
        if (rc) return rc;
        req->n_bans++;
    }
    return 0;
}

/* A seed may be too large for a JSON number, so it may also be text. */
static int read_seed(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    const json_t *value = json_member(r->entry->root, "seed");
    char rest;
    if (!value) return 0;
    req->has_seed = true;
    req->seed = (uint64_t)json_integer_value(value);
    if (json_is_integer(value) && json_integer_value(value) >= 0) return 0;
    const char *text = json_string_value(value);
    if (text && text[0] != '-' && sscanf(text, "%" SCNu64 "%c", &req->seed, &rest) == 1) return 0;
    return wrong(r, "seed", "an integer from 0 on");
}

static int read_word(const struct reader *r, const char *key, const char *const *words, int n,
                     int *out)
{
    const char *text = NULL;
    int rc = json_read_string(r->entry->root, key, &text, r->origin, r->err);
    if (rc || !text) return rc;
    for (int i = 0; i < n; i++) {
        if (words[i] && strcmp(words[i], text) == 0) {
            *out = i;
            return 0;
        }
    }
    return error_set(r->err, ERR_FORMAT, "%s: \"%s\" is '%.40s', which is not one of its values",
                     r->origin, key, text);
}

static int read_speculation(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    int strategy = (int)req->strategy, rc = 0;
    TRY(read_int(r, "draft_tokens", 0, &req->n_draft));
    TRY(read_prediction(r));
    TRY(read_word(r, "strategy", strategy_names, N_STRATEGIES, &strategy));
    req->strategy = (enum strategy)strategy;
    req->has_threshold = json_member(r->entry->root, "threshold");
    TRY(read_float(r, "threshold", &req->threshold));
    TRY(json_read_string(r->entry->root, "rule", &req->rule, r->origin, r->err));
    TRY(json_read_string(r->entry->root, "tree_rule", &req->tree_rule, r->origin, r->err));
out:
    return rc;
}

static int read_sampling(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    int rc = 0;
    TRY(read_natural(r, "temperature", &req->sampling.temperature));
    TRY(read_int(r, "top_k", 0, &req->sampling.top_k));
    TRY(read_natural(r, "top_p", &req->sampling.top_p));
    TRY(read_natural(r, "min_p", &req->sampling.min_p));
    TRY(read_seed(r));
    TRY(read_natural(r, "repetition_penalty", &req->repetition_penalty));
    TRY(read_float(r, "presence_penalty", &req->presence_penalty));
    TRY(read_float(r, "frequency_penalty", &req->frequency_penalty));
    TRY(read_biases(r));
    TRY(read_bans(r));
out:
    return rc;
}

/* Reads how special tokens are treated in the prompt and the answer. */
static int read_special(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    json_t *root = r->entry->root;
    bool adds = true, parses = true, skips = true;
    int rc = 0;
    TRY(json_read_bool(root, "add_special_tokens", &adds, r->origin, r->err));
    TRY(json_read_bool(root, "parse_special", &parses, r->origin, r->err));
    TRY(json_read_bool(root, "skip_special_tokens", &skips, r->origin, r->err));
    req->adds_no_special = !adds;
    req->parses_no_special = !parses;
    req->shows_special = !skips;
out:
    return rc;
}

static int read_extent(const struct reader *r)
{
    struct generate_request *req = &r->entry->request;
    json_t *root = r->entry->root, *stop_ids = json_member(root, "stop_token_ids");
    int rc = 0;
    TRY(read_int(r, "max_tokens", 1, &req->max_tokens));
    TRY(read_int(r, "min_tokens", 0, &req->min_tokens));
    TRY(json_read_int(root, "n", 1, GENERATE_SEQUENCES_MAX, &req->n, r->origin, r->err));
    TRY(read_int(r, "logprobs", 0, &req->logprobs));
    TRY(json_read_bool(root, "echo", &req->echo, r->origin, r->err));
    TRY(json_read_bool(root, "ignore_eos", &req->ignore_eos, r->origin, r->err));
    TRY(read_stops(r));
    if (stop_ids) TRY(read_ids(r, "stop_token_ids", stop_ids, &req->stop_ids, &req->n_stop_ids));
out:
    return rc;
}

static int read_service(const struct reader *r)
{
    static const char *const classes[JOB_CLASSES] = {
        [JOB_CLASS_NORMAL] = "normal", [JOB_CLASS_HIGH] = "high", [JOB_CLASS_LOW] = "low"};
    struct generate_request *req = &r->entry->request;
    json_t *root = r->entry->root;
    int job_class = JOB_CLASS_NORMAL, timeout_ms = 0, rc = 0;
    TRY(read_word(r, "priority", classes, JOB_CLASSES, &job_class));
    TRY(read_int(r, "timeout_ms", 0, &timeout_ms));
    req->job_class = (enum job_class)job_class;
    req->timeout_ms = (uint32_t)timeout_ms;
    TRY(json_read_string(root, "user", &req->client, r->origin, r->err));
    TRY(json_read_string(root, "request_id", &req->request_id, r->origin, r->err));
    TRY(json_read_string(root, "custom_id", &r->entry->custom_id, r->origin, r->err));
out:
    return rc;
}

/* A misspelt field would otherwise be left out without a word. */
static int check_names(const struct reader *r)
{
    static const char *const names[] = {"prompt",
                                        "prompt_ids",
                                        "add_special_tokens",
                                        "parse_special",
                                        "skip_special_tokens",
                                        "max_tokens",
                                        "min_tokens",
                                        "n",
                                        "logprobs",
                                        "echo",
                                        "ignore_eos",
                                        "stop",
                                        "stop_token_ids",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "seed",
                                        "repetition_penalty",
                                        "logit_bias",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "bad_words",
                                        "draft_tokens",
                                        "prediction",
                                        "strategy",
                                        "threshold",
                                        "rule",
                                        "tree_rule",
                                        "priority",
                                        "timeout_ms",
                                        "user",
                                        "request_id",
                                        "custom_id",
                                        "key"};
    const char *key;
    json_t *value;
    json_object_foreach(r->entry->root, key, value)
    {
        size_t i = 0;
        while (i < sizeof names / sizeof *names && strcmp(names[i], key) != 0) {
            i++;
        }
        if (i == sizeof names / sizeof *names) {
            return error_set(r->err, ERR_FORMAT, "%s: there is no field \"%.60s\"", r->origin, key);
        }
    }
    return 0;
}

/* ---- a line ---- */

static int make_key(struct jobs_entry *entry, const struct jobs_line *line, const char *run,
                    const struct reader *r)
{
    const char *own = "";
    int rc = json_read_string(entry->root, "key", &own, r->origin, r->err);
    if (rc) return rc;
    if (strlen(own) >= sizeof entry->key) {
        return error_set(r->err, ERR_FORMAT, "%s: \"key\" has %zu bytes, at most %zu are taken",
                         r->origin, strlen(own), sizeof entry->key - 1);
    }
    if (own[0]) {
        snprintf(entry->key, sizeof entry->key, "%s", own);
    } else {
        snprintf(entry->key, sizeof entry->key, "%.*s-%d-%016" PRIx64, RUN_BYTES_MAX, run,
                 line->number, (uint64_t)XXH3_64bits(line->text, line->len));
    }
    return 0;
}

int jobs_entry_read(struct jobs_entry *entry, const struct jobs_line *line, const char *run,
                    struct error *err)
{
    char origin[ORIGIN_BYTES];
    const struct reader reader = {entry, origin, err};
    int rc = 0;
    snprintf(origin, sizeof origin, "line %d", line->number);
    *entry = (struct jobs_entry){.custom_id = ""};
    generate_request_init(&entry->request);
    TRY(json_parse_text(&entry->root, line->text, line->len, origin, err));
    if (!json_is_object(entry->root)) {
        rc = error_set(err, ERR_FORMAT, "%s is not a JSON object", origin);
        goto out;
    }
    TRY(arena_open(&entry->arena, ARENA_RATIO * line->len + ARENA_SLACK_BYTES, err));
    TRY(check_names(&reader));
    TRY(make_key(entry, line, run, &reader));
    TRY(read_prompt(&reader));
    TRY(read_extent(&reader));
    TRY(read_special(&reader));
    TRY(read_sampling(&reader));
    TRY(read_speculation(&reader));
    TRY(read_service(&reader));
out:
    if (rc) jobs_entry_free(entry);
    return rc;
}

void jobs_entry_free(struct jobs_entry *entry)
{
    json_decref(entry->root);
    arena_close(&entry->arena);
    *entry = (struct jobs_entry){0};
}
