/* Answers to a gRPC call: encodes the messages of generation.proto and sends them on the call. */
#pragma once

#include "coordinator/grpc_sender.h"
#include "coordinator/job.h"
#include "rpc/server.h"

/* Takes a reference to the call. Keeps buffer, in which the engine thread encodes one message after
 * the other, and sender; closing the reply touches neither. Errors: ERR_NO_MEMORY. */
int grpc_reply_open(struct reply **reply, struct rpc_call *call, struct buffer *buffer,
                    struct sender *sender, struct error *err);
