/* Ranks without MPI live and die together, as mpirun would see to: every rank keeps a stream open on
 * rank 0 for as long as it lives. When it ends on this side, rank 0 is gone and this process ends;
 * rank 0 sees the other side of it (worker/listener.h) and ends when a rank is gone. */
#pragma once

#include "base/error.h"

struct lead_watch;

enum { LEAD_WATCH_EXIT = 71 }; /* what a process ends with that has lost its group */

/* A stream on rank 0 at `lead` and a thread that waits for its end. Errors: ERR_NO_MEMORY,
 * ERR_UNAVAILABLE no stream or thread can be started; that rank 0 is not there shows later, as its
 * loss. */
int lead_watch_open(struct lead_watch **watch, const char *lead, struct error *err);
/* Leaves in good order. Accepts NULL. */
void lead_watch_close(struct lead_watch *watch);
