/* Answers a client that waits: encodes the messages of generation.proto and sends them through an
 * outlet. */
#pragma once

#include "coordinator/job.h"
#include "coordinator/sender.h"

/* Takes a reference to the outlet. Keeps buffer, in which the engine thread encodes one message
 * after the other, and sender; closing the reply touches neither. Errors: ERR_NO_MEMORY. */
int sent_reply_open(struct reply **reply, struct outlet *outlet, struct buffer *buffer,
                    struct sender *sender, struct error *err);
