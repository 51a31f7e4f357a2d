/* A gRPC call as the way out of an answer. */
#pragma once

#include "coordinator/job/outlet.h"
#include "rpc/call.h"

/* Takes a reference of the call; the caller gets one of the outlet. Errors: ERR_NO_MEMORY. */
int grpc_outlet_open(struct outlet **outlet, struct rpc_call *call, struct error *err);
