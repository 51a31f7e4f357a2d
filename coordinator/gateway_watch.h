/* Those who watch stored jobs: a thread that sends each of them what its job's answer has more,
 * so that the engine never meets a client that reads slowly. A client's buffer is bounded, and one
 * that does not read for a while is ended; it may come back with the token that it has reached. */
#pragma once

#include "coordinator/jobs.h"
#include "rpc/call.h"

struct gateway_watch; /* locked inside */

/* keeps jobs. A slow client may read nothing for reader_timeout_us (coordinator/reader.h).
 * Errors: ERR_NO_MEMORY. */
int gateway_watch_open(struct gateway_watch **watch, struct jobs *jobs, int64_t reader_timeout_us,
                       struct error *err);
/* Ends all calls, and takes no more. */
void gateway_watch_end(struct gateway_watch *watch);
void gateway_watch_close(struct gateway_watch *watch);

/* Sends the answer of a job from that token of every sequence on, until it has ended, and then ends
 * the call as the job did. Errors: ERR_UNAVAILABLE shutting down, ERR_NO_MEMORY. */
int gateway_watch_add(struct gateway_watch *watch, struct rpc_call *call, const char *id,
                      uint32_t from_token, struct error *err);
