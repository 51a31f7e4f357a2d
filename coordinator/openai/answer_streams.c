/* The streams of one answer, which several threads may use, and who holds the answer. */
#include <stdlib.h>
#include <time.h>

#include "coordinator/openai/answer_parts.h"

/* Half a millisecond of work: of a copied message, and of what an answer keeps until its end. */
enum { LARGE_MESSAGE_BYTES = 32 << 10, LARGE_ANSWER_BYTES = 16 << 10 };

/* ---- the stream of a job ---- */

static struct openai_part *part_of(struct response_stream *stream)
{
    return (struct openai_part *)stream;
}

static int send(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *err)
{
    struct openai_answer *a = part_of(stream)->answer;
    (void)scratch;
    monitor_enter(&a->monitor);
    int rc = openai_answer_take(part_of(stream), message, err);
    monitor_leave(&a->monitor);
    return rc;
}

static void finish(struct response_stream *stream, int code, const char *text, bool is_abort)
{
    struct openai_answer *a = part_of(stream)->answer;
    monitor_enter(&a->monitor);
    if (code)
        openai_answer_refuse(a, code, text);
    else if (!a->is_over)
        openai_answer_end(part_of(stream));
    monitor_leave(&a->monitor);
    if (is_abort) http_abort(a->x);
}

static struct backpressure_progress progress(const struct response_stream *stream)
{
    const struct http_exchange *x = ((const struct openai_part *)stream)->answer->x;
    return (struct backpressure_progress){http_waiting_bytes(x), http_taken_bytes(x)};
}

static bool is_over(const struct openai_answer *a)
{
    return a->is_over || http_is_gone(a->x);
}

/* Also where another job of the answer has failed: nobody gets this one's text. */
static bool is_cancelled(const struct response_stream *stream)
{
    return is_over(((const struct openai_part *)stream)->answer);
}

static void free_answer(struct openai_answer *a)
{
    for (int i = 0; i < a->n_choices; i++) {
        buffer_free(&a->choices[i].text);
        openai_logprobs_free(&a->choices[i].logprobs);
        buffer_free(&a->choices[i].origins);
        json_decref(a->choices[i].outrider);
    }
    for (int i = 0; i < a->n_parts; i++) {
        buffer_free(&a->parts[i].echo);
        openai_logprobs_free(&a->parts[i].echo_logprobs);
    }
    free(a->choices);
    free(a->parts);
    if (a->charged_bytes) budget_give(a->budget, a->charged_bytes);
    openai_shape_close(&a->shape);
    buffer_free(&a->out);
    http_exchange_unref(a->x);
    monitor_close(&a->monitor);
    free(a);
}

/* Counts all parts together, because they share the answer's monitor. */
static bool takes_long(const struct response_stream *stream, size_t n_bytes, bool is_end)
{
    struct openai_answer *a = ((const struct openai_part *)stream)->answer;
    size_t kept = is_end ? (size_t)a->n_bytes : 0;
    if (n_bytes > LARGE_MESSAGE_BYTES || kept > LARGE_ANSWER_BYTES) a->is_large = true;
    return a->is_large;
}

static const struct response_stream_ops part_ops = {
    .send = send,
    .finish = finish,
    .progress = progress,
    .is_cancelled = is_cancelled,
    .takes_long = takes_long,
};

/* ---- the stream of the request as a whole ---- */

static struct openai_answer *answer_of(const struct response_stream *stream)
{
    return (struct openai_answer *)(uintptr_t)stream; /* for its monitor */
}

static void finish_request(struct response_stream *stream, int code, const char *text,
                           bool is_abort)
{
    struct openai_answer *a = answer_of(stream);
    (void)is_abort;
    monitor_enter(&a->monitor);
    if (code) openai_answer_refuse(a, code, text);
    monitor_leave(&a->monitor);
}

static bool is_request_cancelled(const struct response_stream *stream)
{
    return is_over(answer_of(stream));
}

static void close_answer(struct response_stream *stream)
{
    free_answer(answer_of(stream));
}

static const struct response_stream_ops request_ops = {
    .finish = finish_request,
    .is_cancelled = is_request_cancelled,
    .close = close_answer,
};

/* ---- open ---- */

int openai_answer_open(struct openai_answer **out, struct http_exchange *x,
                       const struct openai_names *names, const struct tokenizer *tok,
                       struct error *err)
{
    struct openai_answer *a;
    *out = NULL;
    int rc = mem_array(&a, 1, sizeof *a, err);
    if (rc) return rc;
    *a = (struct openai_answer){
        .base = {.ops = &request_ops, .n_references = 1}, .x = x, .tok = tok};
    a->names = *names;
    monitor_open(&a->monitor);
    http_exchange_ref(x);
    *out = a;
    return 0;
}

struct response_stream *openai_answer_whole(struct openai_answer *a)
{
    return &a->base;
}

struct openai_answer *openai_answer_of(struct response_stream *whole)
{
    return (struct openai_answer *)whole;
}

const char *openai_answer_name(const struct openai_answer *a)
{
    return a->names.name;
}

const char *openai_answer_key(const struct openai_answer *a)
{
    return a->names.key;
}

struct http_exchange *openai_answer_exchange(const struct openai_answer *a)
{
    return a->x;
}

struct openai_error *openai_answer_error(struct openai_answer *a)
{
    return &a->wrong;
}

int openai_answer_expect(struct openai_answer *a, const struct openai_request *request, int n_jobs,
                         const struct served_model_info *model, struct budget *budget,
                         struct error *err)
{
    int rc = 0;
    a->budget = budget;
    a->scores_only = request->scores_only;
    a->tells_outrider = request->tells_outrider;
    a->wants_logprobs = request->generate.logprobs >= 0;
    a->has_prediction = request->generate.prediction_len > 0;
    a->n = request->generate.n;
    TRY(openai_shape_open(&a->shape, request, a->names.id, model->name, model->fingerprint,
                          (int64_t)time(NULL), err));
    TRY(mem_array(&a->parts, (size_t)n_jobs, sizeof *a->parts, err));
    a->n_parts = a->n_left = n_jobs;
    for (int i = 0; i < n_jobs; i++) {
        a->parts[i] = (struct openai_part){
            .base = {.ops = &part_ops, .holder = &a->base}, .answer = a, .number = i};
    }
    TRY(mem_array(&a->choices, (size_t)n_jobs * (size_t)a->n, sizeof *a->choices, err));
    a->n_choices = n_jobs * a->n;
    for (int i = 0; i < a->n_choices; i++) {
        a->choices[i].logprobs.shows_special = request->generate.shows_special;
    }
out:
    return rc;
}

int openai_answer_set_echo(struct openai_answer *a, int job, const struct openai_echo *echo,
                           struct error *err)
{
    struct openai_part *part = &a->parts[job];
    part->echo_logprobs.special_begin = echo->special_begin;
    part->echo_logprobs.special_end = echo->special_end;
    return buffer_append(&part->echo, echo->text, echo->len, err);
}

struct response_stream *openai_answer_stream(struct openai_answer *a, int job)
{
    return &a->parts[job].base;
}
