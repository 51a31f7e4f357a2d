/* /v1/jobs: requests that go on without their client. A body is one of /v1/completions or, where it
 * has messages, of /v1/chat/completions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/keys.h"
#include "coordinator/openai/events.h"
#include "coordinator/openai/prepare.h"
#include "coordinator/openai/shape.h"
#include "coordinator/store/job_answer.h"
#include "coordinator/store/submission.h"

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAX = 1000,
    PREFIX_BYTES = sizeof "/v1/jobs/" - 1,
    ID_DIGITS = 18 /* of an event, at most */
};

/* ---- a job as JSON ---- */

static json_t *time_of(int64_t ms)
{
    return ms ? json_real((double)ms / 1000) : json_null();
}

static json_t *error_of(const struct job_info *info)
{
    if (!info->error_code) return json_null();
    json_t *body = openai_error_body(info->error_code, info->error, NULL);
    json_t *error = json_incref(json_object_get(body, "error"));
    json_decref(body);
    return error;
}

static json_t *job_of(const struct job_info *info)
{
    bool has_ended = info->state == JOB_STATE_ENDED;
    return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:i, s:{s:i, s:i}, s:o, s:o, s:s, s:s?}", "id",
                     info->id, "object", "job", "state", job_state_names[info->state], "end",
                     has_ended ? job_end_names[info->end] : NULL, "error", error_of(info), "n",
                     info->n_sequences, "usage", "prompt_tokens", info->n_prompt,
                     "completion_tokens", info->n_tokens, "submitted_at",
                     time_of(info->submitted_ms), "ended_at", time_of(info->ended_ms), "request_id",
                     info->request_id, "key", *info->key ? info->key : NULL);
}

static json_t *choices_of(const struct job_answer *answer)
{
    json_t *list = json_array();
    for (int i = 0; i < answer->n; i++) {
        const struct job_text *text = &answer->texts[i];
        const struct generate_summary *s = text->summary;
        json_t *outrider = s ? openai_shape_summary(s) : json_null();
        json_array_append_new(list, json_pack("{s:i, s:s%, s:s?, s:o}", "index", i, "text",
                                              text->text, text->text_len, "finish_reason",
                                              s ? s->finish_reason : NULL, "outrider", outrider));
    }
    return list;
}

/* ---- submit ---- */

/* Answers that are read later have neither, so a client would miss them only then. */
static int check_fields(const struct generate_request *request, struct openai_error *wrong,
                        struct error *err)
{
    const char *field = request->logprobs >= 0 ? "logprobs" : request->echo ? "echo" : NULL;
    if (!field) return 0;
    snprintf(wrong->param, sizeof wrong->param, "%s", field);
    return error_set(err, ERR_UNSUPPORTED,
                     "%s is not kept with jobs: leave it out, or send the request to "
                     "/v1/completions or /v1/chat/completions",
                     field);
}

static int check_one(const struct openai_prepared *p, struct openai_error *wrong, struct error *err)
{
    if (p->request.scores_only) {
        return error_set(err, ERR_UNSUPPORTED, "max_tokens is 0; a job makes at least one token");
    }
    if (p->n_prompts == 1) return check_fields(&p->request.generate, wrong, err);
    return error_set(err, ERR_ARGUMENT,
                     "prompt has %d texts; a job has one: submit one job for each", p->n_prompts);
}

static int submit_prepared(struct intake_task *task, const struct openai_prepared *p,
                           struct error *err)
{
    struct openai_api *api = task->state;
    struct openai_answer *answer = openai_answer_of(task->stream);
    const struct generate_request request = openai_prepared_generate(p, 0);
    struct job_info info;
    bool existed;
    int rc = 0;
    TRY(submission_make(task, api->options.jobs, &request, openai_answer_key(answer), &info,
                        &existed, err));
    json_t *made = job_of(&info);
    json_object_set_new(made, "existed", json_boolean(existed));
    openai_answer_json(openai_answer_exchange(answer), made);
out:
    return rc;
}

static int submit(struct intake_task *task, struct error *err)
{
    struct openai_error *wrong = openai_answer_error(openai_answer_of(task->stream));
    struct openai_prepared prepared;
    int rc = openai_prepare_any(&prepared, task->state, task, err);
    if (!rc) rc = check_one(&prepared, wrong, err);
    if (!rc) rc = submit_prepared(task, &prepared, err);
    openai_prepared_free(&prepared);
    return rc;
}

void openai_jobs_submit(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "req", api, submit, true);
}

/* ---- one job ---- */

/* The id in /v1/jobs/ID or /v1/jobs/ID/what. */
static void id_in(const char *path, char id[JOBS_ID_BYTES])
{
    const char *begin = path + PREFIX_BYTES;
    snprintf(id, JOBS_ID_BYTES, "%.*s", (int)strcspn(begin, "/"), begin);
}

static int get(struct intake_task *task, struct error *err)
{
    struct openai_api *api = task->state;
    struct http_exchange *x = openai_answer_exchange(openai_answer_of(task->stream));
    struct job_answer answer = {0};
    struct job_info info;
    char id[JOBS_ID_BYTES];
    id_in(http_path(x), id);
    int rc = job_answer_read(&answer, api->options.jobs, grant_name(task->grant), id, &info, err);
    if (!rc) {
        json_t *made = job_of(&info);
        json_object_set_new(made, "choices", choices_of(&answer));
        openai_answer_json(x, made);
    }
    job_answer_free(&answer);
    return rc;
}

void openai_jobs_get(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "req", api, get, false);
}

void openai_jobs_cancel(struct openai_api *api, struct http_exchange *x)
{
    struct job_info info;
    struct error err;
    char id[JOBS_ID_BYTES];
    id_in(http_path(x), id);
    int rc = jobs_cancel(api->options.jobs, grant_name(api->caller), id, &info, &err);
    if (rc)
        openai_error_answer(x, rc, err.text, NULL);
    else
        openai_answer_json(x, job_of(&info));
}

/* ---- lists ---- */

/* A number in the query; `least` to `most`. */
static int query_number(struct http_exchange *x, const char *key, uint64_t most, uint64_t *out,
                        struct error *err)
{
    const char *text = http_query(x, key);
    char rest;
    uint64_t n;
    if (!text) return 0;
    if (sscanf(text, "%" SCNu64 "%c", &n, &rest) == 1 && n >= 1 && n <= most) {
        *out = n;
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "%s is \"%.40s\", must be 1 to %" PRIu64, key, text, most);
}

static int query_state(struct http_exchange *x, enum job_state *state, struct error *err)
{
    const char *text = http_query(x, "state");
    *state = JOB_STATE_ANY;
    if (!text) return 0;
    for (int i = 0; i < JOB_STATES; i++) {
        if (strcmp(text, job_state_names[i])) continue;
        *state = (enum job_state)i;
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "state is \"%.40s\", must be waiting, running or ended",
                     text);
}

static json_t *page_of(const struct job_info *infos, int n, bool is_last)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, job_of(&infos[i]));
    }
    bool has_more = n && !is_last;
    json_t *next = has_more ? json_integer((json_int_t)infos[n - 1].number) : json_null();
    return json_pack("{s:s, s:o, s:b, s:o}", "object", "list", "data", list, "has_more", has_more,
                     "next_before", next);
}

static int list_jobs(struct openai_api *api, struct http_exchange *x, struct error *err)
{
    struct job_info *infos = NULL;
    uint64_t limit = PAGE_DEFAULT, before = UINT64_MAX;
    enum job_state state;
    bool is_last;
    int rc = 0;
    TRY(query_number(x, "limit", PAGE_MAX, &limit, err));
    TRY(query_number(x, "before", INT64_MAX, &before, err));
    TRY(query_state(x, &state, err));
    TRY(mem_array(&infos, (size_t)limit, sizeof *infos, err));
    int n = jobs_list(api->options.jobs, grant_name(api->caller), before, state, infos, (int)limit,
                      &is_last);
    openai_answer_json(x, page_of(infos, n, is_last));
out:
    free(infos);
    return rc;
}

void openai_jobs_list(struct openai_api *api, struct http_exchange *x)
{
    struct error err;
    int rc = list_jobs(api, x, &err);
    if (rc) openai_error_answer(x, rc, err.text, NULL);
}

/* ---- events ---- */

/* Where the client goes on: Last-Event-ID, which browsers send by themselves, or ?after=. */
static int read_position(struct http_exchange *x, uint64_t *position, struct error *err)
{
    const char *text = http_header(x, "Last-Event-ID");
    const char *name = text ? "Last-Event-ID" : "after";
    *position = 0;
    if (!text) text = http_query(x, "after");
    if (!text || !*text) return 0;
    size_t n_digits = strspn(text, "0123456789");
    if (!text[n_digits] && n_digits <= ID_DIGITS) {
        *position = strtoull(text, NULL, 10);
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "%s is \"%.40s\", which is no id of an event", name, text);
}

static int watch(struct intake_task *task, struct error *err)
{
    struct openai_api *api = task->state;
    struct job_info info;
    char id[JOBS_ID_BYTES];
    id_in(http_path(openai_events_exchange(task->stream)), id);
    int rc = jobs_find(api->options.jobs, grant_name(task->grant), id, &info, err);
    if (rc) return rc;
    uint64_t first = openai_events_begin(task->stream);
    return job_watch_add(api->options.watch, task->stream, id, 0, first, err);
}

/* On a thread of the intake, because the store and those who watch may be busy. */
static int start_watch(struct openai_api *api, struct http_exchange *x, struct error *err)
{
    struct buffer no_body = {0};
    struct response_stream *stream;
    uint64_t position;
    int rc = read_position(x, &position, err);
    if (!rc) rc = openai_events_open(&stream, x, position, err);
    if (rc) return rc;
    const struct intake_task task = {.admission = api->options.admission,
                                     .state = api,
                                     .stream = stream,
                                     .grant = api->caller,
                                     .work = watch,
                                     .deadline_us = INT64_MAX};
    intake_hand_over(&task, &no_body);
    response_stream_unref(stream);
    return 0;
}

void openai_jobs_events(struct openai_api *api, struct http_exchange *x)
{
    struct error err;
    int rc = start_watch(api, x, &err);
    if (rc) openai_error_answer(x, rc, err.text, NULL);
}
