/* Answers a client that waits, through its response stream. */
#pragma once

#include "coordinator/job/job.h"
#include "coordinator/job/sender.h"

/* Takes a reference to the stream. Keeps sender; closing the reply does not touch it.
 * Errors: ERR_NO_MEMORY. */
int sent_reply_open(struct reply **reply, struct response_stream *stream, struct sender *sender,
                    struct error *err);
