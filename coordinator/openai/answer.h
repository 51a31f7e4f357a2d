/* The answer to one HTTP request: the texts of one or several jobs, as one JSON object or as
 * server-sent events, in OpenAI's form. Each job has a response stream of its own
 * (coordinator/job/response_stream.h); the answer is complete when all have ended, and ends with
 * the first that fails. Locked inside. */
#pragma once

#include "base/budget.h"
#include "coordinator/job/response_stream.h"
#include "coordinator/job/served_model.h"
#include "coordinator/openai/request/request.h"
#include "http/exchange.h"
#include "model/tokenizer/tokenizer.h"

enum { OPENAI_ID_BYTES = 64, OPENAI_NAME_BYTES = 129 };

/* How the request is called; copied. */
struct openai_names {
    char id[OPENAI_ID_BYTES];     /* that clients are told */
    char name[OPENAI_NAME_BYTES]; /* for logs: X-Request-Id, or the id */
    char key[OPENAI_NAME_BYTES];  /* Idempotency-Key; "" = none */
};

struct openai_answer;

/* Keeps a reference of x, and tok; the caller gets a reference of the answer, which the streams'
 * references are, too. Errors: ERR_NO_MEMORY. */
int openai_answer_open(struct openai_answer **answer, struct http_exchange *x,
                       const struct openai_names *names, const struct tokenizer *tok,
                       struct error *err);

/* Returns the stream where the request as a whole is refused. */
struct response_stream *openai_answer_whole(struct openai_answer *answer);
struct openai_answer *openai_answer_of(struct response_stream *whole);
const char *openai_answer_name(const struct openai_answer *answer);
/* Returns the key of idempotency from the header; "" = none. */
const char *openai_answer_key(const struct openai_answer *answer);
struct http_exchange *openai_answer_exchange(const struct openai_answer *answer);
/* Returns what a refusal will say beside its text. */
struct openai_error *openai_answer_error(struct openai_answer *answer);

/* The request has been read, and is not kept; n_jobs will follow. Keeps budget, which a large
 * answer is charged to. Errors: ERR_NO_MEMORY. */
int openai_answer_expect(struct openai_answer *answer, const struct openai_request *request,
                         int n_jobs, const struct served_model_info *model, struct budget *budget,
                         struct error *err);
/* A prompt's text. Of its tokens, special ones are in this text from special_begin to before
 * special_end. */
struct openai_echo {
    const char *text;
    size_t len;
    int special_begin, special_end;
};

/* Keeps a copy of what echo shows of a job's prompt. Errors: ERR_NO_MEMORY. */
int openai_answer_set_echo(struct openai_answer *answer, int job, const struct openai_echo *echo,
                           struct error *err);
/* Where job number `job` answers. */
struct response_stream *openai_answer_stream(struct openai_answer *answer, int job);
