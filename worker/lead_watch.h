/* Ranks without MPI, or on several hosts, end together, as mpirun makes those of one host do: every
 * rank keeps a stream to rank 0 open as long as it runs. When the stream ends on this side, rank 0
 * is gone and this process ends. Rank 0 watches the other side of it (worker/listener.h) and ends
 * when a rank is gone. */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct lead_watch;

enum { LEAD_WATCH_EXIT = 71 }; /* exit status of a process that has lost its group */

struct certificates; /* access/certificates.h */

/* How rank 0 is called. */
struct lead_access {
    struct certificates *certificates; /* TLS, but for unix sockets; NULL = plain */
    const char *key;                   /* of the group; NULL = none */
};

/* Opens a stream to rank 0 at `lead` and starts a thread that waits for its end.
 * pass[WIRE_MEMBER_PASS_BYTES] says that this is a rank of the group (worker/members.h). If rank 0
 * is not there, that shows later, as its loss.
 * Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE no stream or thread can be started. */
int lead_watch_open(struct lead_watch **watch, const char *lead, const uint8_t *pass,
                    const struct lead_access *access, struct error *err);
/* From now on the end of the stream is no loss. Any thread; accepts NULL. */
void lead_watch_leave(struct lead_watch *watch);
/* Closes the stream, which is no loss for either side. Accepts NULL. */
void lead_watch_close(struct lead_watch *watch);
