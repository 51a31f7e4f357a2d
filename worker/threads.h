/* How many threads a rank computes with, and on which CPUs: what options leave open is chosen from the
 * machine and from the other ranks on it. */
#pragma once

#include "base/placement.h"
#include "worker/worker.h"

struct place {
    struct topology topology;
    struct placement placement;
};

/* All ranks of an mpirun call it together. Sets n_threads and cpus of options->backend; the latter
 * points into place. Errors: placement_choose's; ERR_UNAVAILABLE a rank is gone. */
int place_choose(struct place *place, struct worker_options *options, const struct group *group,
                 struct error *err);

/* The engine thread's own CPU. Network threads are started outside of it, so that they do not wait for a
 * core that computes. */
int place_enter(const struct place *place, struct error *err);
void place_leave(const struct place *place);
