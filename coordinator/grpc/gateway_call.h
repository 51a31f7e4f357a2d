/* A gRPC call on its way into the coordinator. For the files of coordinator/grpc/. */
#pragma once

#include "coordinator/job/intake.h"
#include "rpc/call.h"

enum gateway_way {
    GATEWAY_JOB,    /* through the pool; a refusal is counted as the end of a job */
    GATEWAY_ANSWER, /* through the pool */
    GATEWAY_HERE    /* on the network thread (intake_answer_here) */
};

/* Called in on_message: takes the message over and leaves the rest to work, whose task has this
 * state. A call that is refused is finished here. */
void gateway_call(struct admission *admission, void *state, struct rpc_call *call,
                  intake_work_fn *work, enum gateway_way way);
