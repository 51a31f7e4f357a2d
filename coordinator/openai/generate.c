/* /v1/completions and /v1/chat/completions: a body becomes one job for each of its prompts. */
#include "access/keys.h"
#include "coordinator/job/sent_reply.h"
#include "coordinator/openai/prepare.h"

/* State of the work on one request. */
struct work {
    struct intake_task *task;
    struct openai_api *api;
    struct openai_answer *answer;
    struct openai_prepared prepared;
};

static int fill_score(const struct work *w, struct job *job, const struct openai_prompt *prompt,
                      struct error *err)
{
    const struct generate_request *request = &w->prepared.request.generate;
    const int logprobs = request->logprobs;
    const struct score_request score = {.text = prompt->text,
                                        .text_len = prompt->len,
                                        .ids = prompt->ids,
                                        .n_ids = prompt->n_ids,
                                        .top_n = logprobs > 0 ? logprobs : 0,
                                        .adds_no_special = request->adds_no_special,
                                        .parses_no_special = request->parses_no_special};
    int rc = admission_fill_score(w->task->admission, job, &score, err);
    if (rc) return rc;
    /* Its name, its client, its class and its time are what a score has of a generation. */
    return generate_request_keep(&job->generate, &job->arena, request, err);
}

/* The field whose value is wrong, if the sentence names it; otherwise it is the prompt. */
static int blame(struct work *w, int rc)
{
    struct openai_reading *r = &w->prepared.reading;
    if (rc != ERR_ARGUMENT || *r->wrong->param) return rc;
    openai_request_blame(r, w->prepared.request.kind);
    return *r->wrong->param ? rc : openai_blame(r, r->wrong->prompt);
}

static int fill(const struct work *w, struct job *job, int i, struct error *err)
{
    if (w->prepared.request.scores_only) {
        return fill_score(w, job, openai_prepared_prompt(&w->prepared, i), err);
    }
    const struct generate_request request = openai_prepared_generate(&w->prepared, i);
    return admission_fill_generate(w->task->admission, job, &request, err);
}

/* The engine refuses it, too, but it does not know the field's name. */
static int check_prompt(const struct job *job, struct error *err)
{
    if (job->prompt.n) return 0;
    return error_set(err, ERR_ARGUMENT, "the prompt is empty: give at least one token");
}

/* A prompt of ids is echoed as the text that they make. */
static int echo_ids(const struct work *w, int i, const struct openai_prompt *prompt,
                    struct error *err)
{
    bool shows_special = w->prepared.request.generate.shows_special;
    struct buffer text = {0};
    int rc = openai_decode_ids(w->api, prompt->ids, prompt->n_ids, !shows_special, &text, err);
    const struct openai_echo echo = {.text = (const char *)text.data,
                                     .len = text.len,
                                     .special_end = shows_special ? prompt->n_ids : 0};
    if (!rc) rc = openai_answer_set_echo(w->answer, i, &echo, err);
    buffer_free(&text);
    return rc;
}

/* A text is echoed as it came, without the tokens that were added to its ids. */
static int set_echo(const struct work *w, int i, const struct job *job, struct error *err)
{
    const struct openai_prompt *prompt = openai_prepared_prompt(&w->prepared, i);
    const struct generate_request *request = &w->prepared.request.generate;
    size_t n_before = 0, n_after = 0;
    if (!request->echo) return 0;
    if (!prompt->text) return echo_ids(w, i, prompt, err);
    if (!request->adds_no_special) {
        tokenizer_count_added(w->task->admission->tok, &n_before, &n_after);
    }
    const struct openai_echo echo = {.text = prompt->text,
                                     .len = prompt->len,
                                     .special_begin = (int)n_before,
                                     .special_end = (int)(job->prompt.n - n_after)};
    return openai_answer_set_echo(w->answer, i, &echo, err);
}

static int submit_prompt(struct work *w, int i, struct error *err)
{
    struct job *job = NULL;
    int rc = 0;
    TRY(job_open(&job, w->prepared.request.scores_only ? JOB_SCORE : JOB_GENERATE, err));
    TRY(sent_reply_open(&job->reply, openai_answer_stream(w->answer, i), w->api->options.sender,
                        err));
    TRY(job_hold_grant(job, w->task->grant, err));
    TRY(blame(w, fill(w, job, i, err)));
    TRY(blame(w, check_prompt(job, err)));
    TRY(set_echo(w, i, job, err));
    rc = intake_submit_take(w->task, job, err);
    job = NULL;
out:
    job_free(job);
    return rc;
}

/* More prompts than there will ever be room for. */
static int check_room(const struct work *w, struct error *err)
{
    const struct grant *grant = w->task->grant;
    int n = w->prepared.n_prompts, capacity = w->task->admission->capacity;
    int most = grant ? atomic_load(&grant->max_jobs) : 0;
    if (n > capacity) {
        return error_set(err, ERR_ARGUMENT,
                         "prompt has %d texts, more than the %d that may wait (--queue)", n,
                         capacity);
    }
    if (most == 0 || n <= most) return 0;
    return error_set(
        err, ERR_ARGUMENT,
        "prompt has %d texts, more than the %d requests that the key of '%s' allows at "
        "once",
        n, most, grant_name(grant));
}

/* Jobs of prompts that are in the queue already end when a later one is refused, because the answer
 * is over then. */
static int submit_all(struct work *w, struct error *err)
{
    const struct openai_prepared *p = &w->prepared;
    int rc = 0;
    TRY(blame(w, check_room(w, err)));
    TRY(openai_answer_expect(w->answer, &p->request, p->n_prompts, &p->model,
                             w->task->admission->budget, err));
    for (int i = 0; i < p->n_prompts; i++) {
        TRY(submit_prompt(w, i, err));
    }
out:
    return rc;
}

static int work(struct intake_task *task, struct error *err)
{
    const struct openai_endpoint *endpoint = task->state;
    struct work w = {.task = task, .api = endpoint->api, .answer = openai_answer_of(task->stream)};
    int rc = openai_prepare(&w.prepared, w.api, task, endpoint->kind, err);
    if (!rc) rc = submit_all(&w, err);
    openai_prepared_free(&w.prepared);
    return rc;
}

void openai_completions(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "cmpl", &api->endpoints[OPENAI_COMPLETION], work, true);
}

void openai_chat_completions(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "chatcmpl", &api->endpoints[OPENAI_CHAT], work, true);
}
