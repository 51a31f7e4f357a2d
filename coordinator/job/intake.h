/* The way of a request from a network thread, which must not wait, to a thread of the pool, which
 * decodes its message and turns text into ids. Every door uses it. */
#pragma once

#include "coordinator/job/admission.h"
#include "coordinator/job/response_stream.h"

struct intake_task;

/* Answers a request, on a thread of the pool: makes a job whose reply finishes the stream, or
 * finishes it itself. Errors: the stream is finished with them. */
typedef int intake_work_fn(struct intake_task *task, struct error *err);

struct intake_task {
    struct admission *admission;
    void *state; /* of the door */
    struct response_stream *stream;
    struct grant *grant; /* of the key that the request came with; NULL = none */
    intake_work_fn *work;
    bool makes_job;      /* a refusal is counted as the end of one */
    int64_t deadline_us; /* of clock_now_us; INT64_MAX = none */
    struct job_origin origin;

    /* Filled in here. */
    struct buffer message;
    struct arena arena; /* for what the message decodes into; gone after work */
    size_t charged_bytes;
    int64_t arrived_us;
};

/* Takes the message over, copies the first eight fields of `like`, and leaves the rest to work.
 * What the message occupies is charged at once; a request that is refused is finished here. */
void intake_hand_over(const struct intake_task *like, struct buffer *message);

/* Does the work on the network thread itself. It has to take next to no time, such as a
 * cancellation, which must not wait for long texts. */
void intake_answer_here(const struct intake_task *like, struct buffer *message);

/* Within work: hands over a job that is complete, in place of the message, whose bytes are given
 * back first. Takes the job over, also when it is refused. */
int intake_submit_take(struct intake_task *task, struct job *job, struct error *err);
