/* A gRPC call as a response stream. */
#pragma once

#include "coordinator/job/response_stream.h"
#include "rpc/call.h"

/* Takes a reference of the call; the caller gets one of the stream. Errors: ERR_NO_MEMORY. */
int grpc_stream_open(struct response_stream **stream, struct rpc_call *call, struct error *err);
