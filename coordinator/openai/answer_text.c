/* Messages of the engine become chunks, or wait until the answer is whole. What the texts of one
 * prompt share is formatted and kept once. */
#include <stdio.h>
#include <string.h>

#include "base/text/json_text.h"
#include "coordinator/openai/answer_parts.h"
#include "coordinator/openai/internal.h"

enum {
    KEPT_BYTES = BACKPRESSURE_BYTES, /* of each answer, that are not charged */
    COPIES = 2,            /* of a whole answer: its buffer grows to twice of it at most */
    ORIGIN_BYTES = 9,      /* of each token: one, and its place in a list of values */
    WRITE_BYTES = 64 << 10 /* at a time, so that nobody waits long for the exchange */
};

/* ---- what is kept; inside the monitor ---- */

/* Charges what this answer keeps, as requests are charged, and refuses it where there is no room,
 * so that few large answers cannot take all memory. */
static int charge(struct openai_answer *a, size_t n_bytes, struct error *err)
{
    size_t wanted = n_bytes > KEPT_BYTES ? n_bytes - KEPT_BYTES : 0;
    a->n_bytes = n_bytes;
    if (wanted > a->charged_bytes) {
        int rc = budget_take(a->budget, wanted - a->charged_bytes, err);
        if (rc) return error_wrap(err, "the answer is too large to be kept");
    } else {
        budget_give(a->budget, a->charged_bytes - wanted);
    }
    a->charged_bytes = wanted;
    return 0;
}

static size_t bytes_of(const struct openai_choice *c)
{
    return c->text.capacity + openai_logprobs_bytes(&c->logprobs) +
           ORIGIN_BYTES * c->origins.capacity;
}

/* ---- what leaves; inside the monitor ---- */

static int write_out(struct openai_answer *a, struct error *err)
{
    for (size_t at = 0; at < a->out.len; at += WRITE_BYTES) {
        size_t n = a->out.len - at < WRITE_BYTES ? a->out.len - at : WRITE_BYTES;
        int rc = http_write(a->x, a->out.data + at, n, err);
        if (rc) return rc;
    }
    return 0;
}

static int flush(struct openai_answer *a, int rc, struct error *err)
{
    if (!rc) rc = write_out(a, err);
    a->out.len = 0;
    return rc ? rc : charge(a, a->out.capacity + http_waiting_bytes(a->x), err);
}

/* The first chunk begins the stream: until then the request can still be refused with a status. */
static void begin_stream(struct openai_answer *a)
{
    struct error err;
    http_set_header(a->x, "Cache-Control", "no-cache", &err);
    http_set_header(a->x, "X-Accel-Buffering", "no", &err);
    http_begin(a->x, 200, "text/event-stream; charset=utf-8");
}

static int put_choice(struct openai_answer *a, int index, struct error *err)
{
    struct openai_choice *c = &a->choices[index];
    const struct openai_logprobs *of_prompt = &a->parts[index / a->n].echo_logprobs;
    const struct openai_said said = {.index = index,
                                     .text = (const char *)c->text.data,
                                     .len = c->text.len,
                                     .prompt_logprobs = of_prompt,
                                     .logprobs = a->wants_logprobs ? &c->logprobs : NULL,
                                     .finish_reason = c->finish_reason};
    return openai_shape_choice(&a->shape, &a->out, &said, err);
}

static int put_outrider(struct openai_answer *a, struct error *err)
{
    int rc = 0;
    json_t *list = json_array();
    for (int i = 0; i < a->n_choices; i++) {
        if (a->choices[i].outrider) json_array_append(list, a->choices[i].outrider);
    }
    TRY(json_text_format(&a->out, err, ",\"outrider\":"));
    TRY(json_text_value(&a->out, list, err));
out:
    json_decref(list);
    return rc;
}

static int put_whole(struct openai_answer *a, struct error *err)
{
    int rc = 0;
    TRY(buffer_append(&a->out, a->shape.head.data, a->shape.head.len, err));
    TRY(json_text_format(&a->out, err, ",\"choices\":["));
    for (int i = 0; i < a->n_choices; i++) {
        if (i) TRY(buffer_append(&a->out, ",", 1, err));
        TRY(put_choice(a, i, err));
    }
    TRY(json_text_format(&a->out, err, "],\"usage\":"));
    TRY(openai_shape_usage(&a->out, &a->usage, err));
    if (a->tells_outrider) TRY(put_outrider(a, err));
    TRY(buffer_append(&a->out, "}", 1, err));
out:
    return rc;
}

/* The bytes of a whole answer, about: what the texts of a prompt share is in each of them. */
static size_t whole_bytes(const struct openai_answer *a)
{
    size_t n = a->n_bytes;
    for (int i = 0; i < a->n_parts; i++) {
        n += (size_t)(a->n - 1) * openai_logprobs_bytes(&a->parts[i].echo_logprobs);
    }
    return n;
}

/* The bytes are the exchange's now, until its client has read them. */
static void hand_charge_over(struct openai_answer *a)
{
    struct openai_call *call = http_context(a->x);
    if (!call) return;
    call->budget = a->budget;
    call->charged_bytes = a->charged_bytes;
    a->charged_bytes = 0;
}

static void finish_whole(struct openai_answer *a)
{
    struct error err;
    int rc = charge(a, a->n_bytes + COPIES * whole_bytes(a), &err);
    if (!rc) rc = put_whole(a, &err);
    if (rc) {
        openai_error_answer(a->x, err.code, err.text, NULL);
    } else {
        hand_charge_over(a);
        http_answer_take(a->x, 200, "application/json", &a->out);
    }
}

static void finish_stream(struct openai_answer *a)
{
    struct error err;
    int rc = flush(a, openai_shape_end(&a->shape, &a->out, &a->usage, &err), &err);
    if (rc) http_abort(a->x);
    http_end(a->x);
}

/* A stream that has begun ends with the error as its last event. */
static void fail_stream(struct openai_answer *a, int code, const char *text)
{
    struct error err;
    int rc = json_text_format(&a->out, &err, "data: ");
    json_t *body = openai_error_body(code, text, &a->wrong);
    if (!rc) rc = json_text_value(&a->out, body, &err);
    if (!rc) rc = json_text_format(&a->out, &err, "\n\n");
    if (!rc) rc = write_out(a, &err);
    if (rc) http_abort(a->x);
    http_end(a->x);
    json_decref(body);
}

void openai_answer_refuse(struct openai_answer *a, int code, const char *text)
{
    if (a->is_over) return;
    a->is_over = true;
    if (a->has_begun)
        fail_stream(a, code, text);
    else
        openai_error_answer(a->x, code, text, &a->wrong);
}

/* ---- messages; inside the monitor ---- */

/* One chunk of a stream. */
static int send_chunk(struct openai_answer *a, const struct openai_said *said,
                      const json_t *outrider, struct error *err)
{
    if (!a->has_begun) begin_stream(a);
    a->has_begun = a->choices[said->index].has_begun = true;
    return flush(a, openai_shape_chunk(&a->shape, &a->out, said, outrider, err), err);
}

/* A piece of a text, and of what has log-probabilities what begins in it. */
static int say(struct openai_answer *a, int index, const char *text, size_t len,
               const json_t *outrider, struct error *err)
{
    struct openai_choice *c = &a->choices[index];
    c->n_bytes += len;
    openai_logprobs_release(&c->logprobs, c->n_bytes);
    if (!a->shape.is_stream) return buffer_append(&c->text, text, len, err);
    bool are_ready = a->wants_logprobs && openai_logprobs_are_ready(&c->logprobs);
    const struct openai_said said = {.index = index,
                                     .text = text,
                                     .len = len,
                                     .logprobs = are_ready ? &c->logprobs : NULL,
                                     .finish_reason = *c->finish_reason ? c->finish_reason : NULL,
                                     .is_first = !c->has_begun};
    int rc = send_chunk(a, &said, outrider, err);
    openai_logprobs_drop(&c->logprobs);
    return rc;
}

static int add_tokens(struct openai_answer *a, int index, const struct generate_tokens *tokens,
                      struct error *err)
{
    bool tells = a->tells_outrider && a->shape.is_stream;
    int rc = openai_logprobs_add(&a->choices[index].logprobs, a->shape.kind, a->tok, tokens, err);
    if (rc || (!tokens->text_len && !tells)) return rc;
    json_t *round = tells ? openai_shape_round(tokens) : NULL;
    rc = say(a, index, tokens->text, tokens->text_len, round, err);
    json_decref(round);
    return rc;
}

/* A stream tells them with each chunk. */
static int keep_origins(const struct openai_answer *a, struct openai_choice *c,
                        const struct generate_tokens *tokens, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < tokens->n && a->tells_outrider && !rc; i++) {
        const uint8_t origin = (uint8_t)tokens->origins[i];
        rc = buffer_append(&c->origins, &origin, 1, err);
    }
    return rc;
}

static int on_tokens(struct openai_part *p, const struct generate_tokens *tokens, struct error *err)
{
    struct openai_answer *a = p->answer;
    int index = p->number * a->n + tokens->index;
    size_t before = bytes_of(&a->choices[index]);
    int rc = add_tokens(a, index, tokens, err);
    if (rc || a->shape.is_stream) return rc;
    rc = keep_origins(a, &a->choices[index], tokens, err);
    if (rc) return rc;
    return charge(a, a->n_bytes + bytes_of(&a->choices[index]) - before, err);
}

/* The prompt's text, which leaves as a whole, and its log-probabilities, for one text. */
static int say_echo(struct openai_part *p, int index, struct error *err)
{
    struct openai_answer *a = p->answer;
    const char *text = (const char *)p->echo.data;
    if (!a->shape.is_stream) {
        return buffer_append(&a->choices[index].text, text, p->echo.len, err);
    }
    bool are_ready = a->wants_logprobs && openai_logprobs_are_ready(&p->echo_logprobs);
    const struct openai_said said = {.index = index,
                                     .text = text,
                                     .len = p->echo.len,
                                     .logprobs = are_ready ? &p->echo_logprobs : NULL,
                                     .is_first = !a->choices[index].has_begun};
    return send_chunk(a, &said, NULL, err);
}

static int say_echoes(struct openai_part *p, struct error *err)
{
    const int first = p->number * p->answer->n;
    int rc = 0;
    for (int i = first; i < first + p->answer->n && !rc; i++) {
        p->answer->choices[i].logprobs.offset = p->echo_logprobs.offset;
        if (p->echo.len || p->answer->shape.is_stream) rc = say_echo(p, i, err);
    }
    p->echo.len = 0;
    if (p->answer->shape.is_stream) openai_logprobs_drop(&p->echo_logprobs);
    return rc;
}

/* Scores come in several messages; the text leaves with the first of them. */
static int on_echo(struct openai_part *p, const struct score_reply *scores, struct error *err)
{
    struct openai_answer *a = p->answer;
    size_t before = openai_logprobs_bytes(&p->echo_logprobs), text = (size_t)a->n * p->echo.len;
    int rc = 0;
    if (a->wants_logprobs) {
        TRY(openai_logprobs_add_scores(&p->echo_logprobs, a->shape.kind, a->tok, scores, err));
    }
    size_t grown = openai_logprobs_bytes(&p->echo_logprobs) - before;
    if (!a->shape.is_stream) TRY(charge(a, a->n_bytes + grown + text, err));
    if (p->echo.len || a->wants_logprobs) TRY(say_echoes(p, err));
out:
    return rc;
}

/* The first text of a prompt is the one that read it; the others found it in the cache. */
static void count(struct openai_part *p, const struct generate_summary *s)
{
    struct openai_usage *usage = &p->answer->usage;
    const struct generate_counters *c = &s->counters;
    if (s->index == 0) {
        usage->prompt_tokens += s->prompt_tokens;
        usage->cached_tokens += c->target_reused;
    }
    usage->completion_tokens += s->completion_tokens;
    bool has_own = p->answer->has_prediction;
    uint32_t guessed = has_own ? c->predicted : c->drafted;
    uint32_t accepted = has_own ? c->predicted_accepted : c->accepted;
    usage->accepted += accepted;
    usage->rejected += (int64_t)guessed - accepted;
}

/* Releases what is still held of a text that was not stopped: a part of a character, or a token
 * without text, but nothing that was cut off. Only a stop string cuts something off. Without one,
 * the token that ended the text is held, which OpenAI's completions show, because harnesses count
 * on an entry for each token, and its chats do not. */
static void release_rest(const struct openai_answer *a, struct openai_choice *c,
                         const struct generate_summary *s)
{
    bool is_stopped = strcmp(c->finish_reason, "stop") == 0;
    bool is_cut = *s->stop_match;
    bool shows_end = a->shape.kind == OPENAI_COMPLETION && !is_cut;
    if (!is_stopped || shows_end) openai_logprobs_release(&c->logprobs, UINT64_MAX);
}

/* Makes the value of "outrider" for a text that has ended. */
static json_t *told_of(const struct openai_answer *a, const struct openai_choice *c,
                       const struct generate_summary *s)
{
    if (!a->tells_outrider) return NULL;
    json_t *told = openai_shape_summary(s);
    if (a->shape.is_stream) return told;
    json_object_set_new(told, "origins", openai_shape_origins(c->origins.data, c->origins.len));
    return told;
}

static int on_summary(struct openai_part *p, const struct generate_summary *s, struct error *err)
{
    struct openai_answer *a = p->answer;
    int rc = 0, index = p->number * a->n + s->index;
    struct openai_choice *c = &a->choices[index];
    json_t *told = told_of(a, c, s);
    count(p, s);
    snprintf(c->finish_reason, sizeof c->finish_reason, "%s", s->finish_reason);
    release_rest(a, c, s);
    if (a->shape.is_stream) rc = say(a, index, "", 0, told, err);
    json_decref(c->outrider);
    c->outrider = told;
    return rc;
}

static int on_scores(struct openai_part *p, const struct score_reply *scores, struct error *err)
{
    p->answer->usage.prompt_tokens += scores->n;
    return on_echo(p, scores, err);
}

int openai_answer_take(struct openai_part *p, const struct answer_message *message,
                       struct error *err)
{
    const struct generate_reply *reply = message->reply;
    if (p->answer->is_over) return error_set(err, ERR_CANCELLED, "the answer has ended");
    if (message->scores) return on_scores(p, message->scores, err);
    if (reply->echo) return on_echo(p, reply->echo, err);
    if (reply->tokens) return on_tokens(p, reply->tokens, err);
    return on_summary(p, reply->summary, err);
}

/* Texts that were only scored have no summary. */
static void end_scores(struct openai_part *p)
{
    struct error err;
    struct openai_answer *a = p->answer;
    for (int i = p->number * a->n; i < (p->number + 1) * a->n; i++) {
        snprintf(a->choices[i].finish_reason, OPENAI_REASON_BYTES, "length");
        if (a->shape.is_stream) say(a, i, "", 0, NULL, &err);
    }
}

void openai_answer_end(struct openai_part *p)
{
    struct openai_answer *a = p->answer;
    if (a->scores_only) end_scores(p);
    if (--a->n_left > 0) return;
    a->is_over = true; /* first, so that nobody asks the exchange, which is busy then */
    if (a->shape.is_stream)
        finish_stream(a);
    else
        finish_whole(a);
}
