/* A rank's state over HTTP, for probes and for Prometheus: /live and /ready while it starts, serves
 * and drains, and /metrics once it serves. */
#pragma once

#include "base/threads/beat.h"
#include "worker/rank_signals.h"

struct probes; /* locked inside */

/* Answers at address, HOST:PORT: live while beat says so, and not ready. beat is kept.
 * Errors: those of http_server_open. */
int probes_open(struct probes **probes, const char *address, struct beat *beat, struct error *err);
/* Before what it keeps. Accepts NULL. */
void probes_close(struct probes *probes);

/* The functions below accept NULL, too, for a rank without --metrics. */

/* The rank serves: it is ready from now on, and /metrics has its signals, which are kept. */
void probes_set_serving(struct probes *probes, struct rank_signals *signals);
/* It takes no coordinator any more. */
void probes_set_draining(struct probes *probes);

/* With the port that was taken; "" for NULL. */
const char *probes_address(const struct probes *probes);
