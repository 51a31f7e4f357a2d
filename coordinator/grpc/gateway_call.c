/* The call becomes a response stream, and its message a task. */
#include "coordinator/grpc/gateway_call.h"

#include "coordinator/grpc/grpc_stream.h"

/* Notes the client's headers that describe a request, for the log. */
static void read_origin(const struct rpc_call *call, struct job_origin *origin)
{
    const char *value;
    size_t len;
    if (rpc_call_header(call, "x-request-id", &value, &len)) {
        job_origin_set_request(origin, value, len);
    }
    if (rpc_call_header(call, "traceparent", &value, &len)) {
        job_origin_set_trace(origin, value, len);
    }
}

void gateway_call(struct admission *admission, void *state, struct rpc_call *call,
                  intake_work_fn *work, enum gateway_way way)
{
    struct error err;
    struct response_stream *stream;
    struct buffer message = {0};
    int rc = grpc_stream_open(&stream, call, &err);
    if (rc) {
        if (way == GATEWAY_JOB) admission_count_refusal(admission, rc);
        rpc_call_finish(call, rc, err.text);
        return;
    }
    struct intake_task task = {.admission = admission,
                               .state = state,
                               .stream = stream,
                               .grant = rpc_call_caller(call),
                               .work = work,
                               .makes_job = way == GATEWAY_JOB,
                               .deadline_us = rpc_call_deadline_us(call)};
    if (way == GATEWAY_JOB) read_origin(call, &task.origin);
    rpc_call_take_message(call, &message);
    if (way == GATEWAY_HERE) {
        intake_answer_here(&task, &message);
    } else {
        intake_hand_over(&task, &message);
    }
    response_stream_unref(stream);
}
