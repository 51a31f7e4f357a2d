/* A message of a stored answer as a struct: the store keeps it encoded, because that is smaller. */
#pragma once

#include "coordinator/store/job_info.h"
#include "proto/generation_wire.h"

/* Decodes into the arena, in place of what is in it; the arena grows until the message fits. A
 * zeroed arena is empty; the caller closes it. Errors: ERR_NO_MEMORY. */
int stored_message_decode(struct generate_reply *reply, struct arena *arena,
                          const struct job_message *message, struct error *err);
