/* The way of a call from the network thread, which must not wait, to a thread of the pool, which
 * decodes its message and turns text into ids. For coordinator/gateway*.c. */
#pragma once

#include "coordinator/admission.h"
#include "rpc/call.h"

struct gateway_task;

/* Answers a call, on a thread of the pool: makes a job whose reply finishes the call, or finishes
 * it itself. Errors: the call is finished with them. */
typedef int gateway_work_fn(struct gateway_task *task, struct error *err);

struct gateway_task {
    struct admission *admission;
    void *state; /* of the service */
    struct rpc_call *call;
    gateway_work_fn *work;
    bool makes_job;
    struct buffer message;
    struct arena arena; /* for what the message decodes into; gone after work */
    size_t charged_bytes;
    int64_t arrived_us, deadline_us;
};

/* Called in on_message: takes the message over and leaves the rest to work. What the message
 * occupies is charged at once; a call that is refused is finished here. */
void gateway_hand_over(struct admission *admission, void *state, struct rpc_call *call, size_t len,
                       gateway_work_fn *work);
/* The same for calls that make jobs: a refusal is counted as the end of one. */
void gateway_hand_over_job(struct admission *admission, void *state, struct rpc_call *call,
                           size_t len, gateway_work_fn *work);

/* The same without the way: the network thread itself does a work that takes next to no time, such
 * as a cancellation, which must not wait behind long texts. */
void gateway_answer_here(struct admission *admission, void *state, struct rpc_call *call,
                         gateway_work_fn *work);

/* Within work: hands over a job that is complete, in place of the message, whose bytes are given
 * back first. Takes the job over, also when it is refused. */
int gateway_submit_take(struct gateway_task *task, struct job *job, struct error *err);
