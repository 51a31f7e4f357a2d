/* Where the answers of a round leave from. Handing a message to gRPC costs several microseconds,
 * and a round of many lanes has one for each, so the engine thread only lists them. At the end of
 * the round they go to a thread of their own, or, where there are few, leave from the engine
 * thread, which is faster for a single stream. What belongs to one call leaves in order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_call; /* rpc/call.h */

struct sender;

int sender_open(struct sender **sender, struct error *err);
/* Sends what is listed, and ends the thread. Accepts NULL. */
void sender_close(struct sender *sender);

/* The rest is for the engine thread. Lists a message, which is copied. Errors: ERR_NO_MEMORY. What
 * rpc_call_send finds wrong later is seen by rpc_call_is_cancelled and rpc_call_queued_bytes. */
int sender_send(struct sender *sender, struct rpc_call *call, const uint8_t *data, size_t len,
                struct error *err);
/* Lists the end of the call: rpc_call_finish, or rpc_call_abort where is_abort is set. Where there
 * is no memory for it, it leaves at once. */
void sender_finish(struct sender *sender, struct rpc_call *call, int code, const char *text,
                   bool is_abort);

/* Lets what is listed leave. */
void sender_flush(struct sender *sender);
