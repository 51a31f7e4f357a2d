/* Recorded texts as safetensors files. */
#include "client/record/recording.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/file.h"
#include "model/export/tensor_header.h"

enum { TENSORS = 5, NUMBERS_BYTES = 128, SETTING_BYTES = 32 };

static void free_rows(struct recording *r)
{
    free(r->features);
    free(r->logprobs);
    free(r->best_ids);
    free(r->best_logprobs);
    r->features = NULL;
    r->logprobs = r->best_logprobs = NULL;
    r->best_ids = NULL;
}

void recording_free(struct recording *r)
{
    free_rows(r);
    token_ids_free(&r->ids);
    *r = (struct recording){0};
}

int recording_begin(struct recording *r, int n_columns, int top_n, struct error *err)
{
    size_t n = r->ids.n - 1;
    int rc = 0;
    free_rows(r);
    r->n_columns = n_columns;
    r->top_n = top_n;
    r->dim = 0;
    r->n_scored = r->n_features = 0;
    TRY(mem_array(&r->logprobs, n, sizeof *r->logprobs, err));
    TRY(mem_array(&r->best_ids, n * (size_t)top_n, sizeof *r->best_ids, err));
    TRY(mem_array(&r->best_logprobs, n * (size_t)top_n, sizeof *r->best_logprobs, err));
out:
    return rc;
}

static int add_features(struct recording *r, const struct score_features *f, struct error *err)
{
    int rc = 0;
    if (f->n == 0) return 0;
    if (r->dim == 0) {
        r->dim = f->dim;
        TRY(mem_array(&r->features, (r->ids.n - 1) * (size_t)r->n_columns * (size_t)r->dim,
                      sizeof *r->features, err));
    }
    if (f->dim != r->dim || f->n_columns != r->n_columns || (size_t)f->first != r->n_features ||
        (size_t)f->n > r->ids.n - 1 - r->n_features) {
        return error_set(err, ERR_FORMAT,
                         "features [%d][%d][%d] from token %d on came, expected [..][%d][%d] from "
                         "token %zu on",
                         f->n, f->n_columns, f->dim, f->first, r->n_columns, r->dim, r->n_features);
    }
    size_t row = (size_t)r->n_columns * (size_t)r->dim;
    memcpy(r->features + r->n_features * row, f->rows, (size_t)f->n * row * sizeof *r->features);
    r->n_features += (size_t)f->n;
out:
    return rc;
}

/* The score of token i says what the target says after token i - 1. */
static void add_score(struct recording *r, size_t i, const struct score_token *token)
{
    size_t top = (size_t)r->top_n;
    r->logprobs[i - 1] = token->logprob;
    for (size_t t = 0; t < top; t++) {
        bool is_there = (int)t < token->n_top;
        r->best_ids[(i - 1) * top + t] = is_there ? token->top[t].id : -1;
        r->best_logprobs[(i - 1) * top + t] = is_there ? token->top[t].logprob : -1e30f;
    }
}

int recording_add(struct recording *r, const struct score_reply *reply, struct error *err)
{
    for (int i = 0; i < reply->n; i++) {
        size_t at = r->n_scored;
        const struct score_token *token = &reply->tokens[i];
        if (at >= r->ids.n || token->id != r->ids.data[at] || token->has_logprob != (at > 0)) {
            return error_set(err, ERR_FORMAT, "the score of token %zu is of another text", at);
        }
        if (at > 0) add_score(r, at, token);
        r->n_scored++;
    }
    return add_features(r, &reply->features, err);
}

bool recording_is_whole(const struct recording *r)
{
    return r->n_scored == r->ids.n && r->n_features == r->ids.n - 1;
}

static int list_tensors(const struct recording *r, struct tensor_header_entry *tensors,
                        struct file_part *data)
{
    uint64_t n = r->ids.n - 1, columns = (uint64_t)r->n_columns, dim = (uint64_t)r->dim;
    uint64_t top = (uint64_t)r->top_n;
    const struct tensor_header_entry all[TENSORS] = {
        {"features", "BF16", 3, {n, columns, dim}, n * columns * dim * 2},
        {"tokens", "I32", 1, {n + 1}, (n + 1) * 4},
        {"logprobs", "F32", 1, {n}, n * 4},
        {"best_ids", "I32", 2, {n, top}, n * top * 4},
        {"best_logprobs", "F32", 2, {n, top}, n * top * 4},
    };
    const void *const in_memory[TENSORS] = {r->features, r->ids.data, r->logprobs, r->best_ids,
                                            r->best_logprobs};
    int n_tensors = r->top_n ? TENSORS : TENSORS - 2;
    memcpy(tensors, all, (size_t)n_tensors * sizeof *tensors);
    for (int i = 0; i < n_tensors; i++) {
        data[i] = (struct file_part){in_memory[i], tensors[i].n_bytes};
    }
    return n_tensors;
}

/* Adds what the request says about a setting, or that it leaves it to the model. -1: no memory. */
static int add_setting(json_t *metadata, const char *name, double value, double open)
{
    char text[SETTING_BYTES] = "model";
    if (value != open) snprintf(text, sizeof text, "%.6g", value);
    return json_object_set_new(metadata, name, json_string(text));
}

/* Adds how the answer was chosen. -1: no memory. */
static int add_settings(json_t *metadata, const struct generate_request *request)
{
    const struct {
        const char *name;
        double value, open; /* NAN: it is never open */
    } settings[] = {
        {"temperature", (double)request->sampling.temperature, GENERATE_OPEN},
        {"top_k", request->sampling.top_k, GENERATE_OPEN},
        {"top_p", (double)request->sampling.top_p, GENERATE_OPEN},
        {"min_p", (double)request->sampling.min_p, GENERATE_OPEN},
        {"repetition_penalty", (double)request->repetition_penalty, GENERATE_OPEN},
        {"presence_penalty", (double)request->presence_penalty, (double)NAN},
        {"frequency_penalty", (double)request->frequency_penalty, (double)NAN},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (add_setting(metadata, settings[i].name, settings[i].value, settings[i].open)) return -1;
    }
    return 0;
}

static json_t *metadata_of(const struct recording *r, const struct feature_wish *wish,
                           const struct service_description *served)
{
    char numbers[NUMBERS_BYTES] = "", n_prompt[32], fingerprint[32];
    size_t len = 0;
    for (int i = 0; i < wish->n; i++) {
        len += (size_t)snprintf(numbers + len, sizeof numbers - len, "%s%d", i ? "," : "",
                                wish->boundaries[i]);
    }
    snprintf(n_prompt, sizeof n_prompt, "%zu", r->n_prompt);
    snprintf(fingerprint, sizeof fingerprint, "%016llx",
             (unsigned long long)served->model_fingerprint);
    return json_pack("{ss ss ss ss ss ss ss}", "boundaries", numbers, "normed",
                     wish->normed ? "true" : "false", "prompt_tokens", n_prompt, "model",
                     served->target_model, "arithmetic", served->arithmetic, "fingerprint",
                     fingerprint, "rule", r->rule);
}

int recording_write(const struct recording *r, const char *path, const struct feature_wish *wish,
                    const struct generate_request *request,
                    const struct service_description *served, struct error *err)
{
    int rc = 0;
    struct tensor_header_entry tensors[TENSORS];
    struct file_part parts[1 + TENSORS];
    struct buffer header = {0};
    int n = list_tensors(r, tensors, parts + 1);
    json_t *metadata = metadata_of(r, wish, served);
    bool is_given = strcmp(r->rule, RECORDING_GIVEN) == 0;
    if (!metadata || (!is_given && add_settings(metadata, request))) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for the header of %.200s", path);
        goto out;
    }
    TRY(tensor_header_write(&header, metadata, tensors, (size_t)n, err));
    parts[0] = (struct file_part){header.data, header.len}; /* the data follow where they are */
    TRY(file_replace_parts(path, parts, 1 + (size_t)n, err));
out:
    json_decref(metadata);
    buffer_free(&header);
    return rc;
}
