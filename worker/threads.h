/* How many threads a rank computes with, and on which CPUs. What the options leave open is chosen
 * from the machine and from the other ranks on it. */
#pragma once

#include "base/system/placement.h"
#include "model/backend/open.h"
#include "worker/group.h"

struct threads {
    struct topology topology;
    struct placement placement;
};

/* All ranks of an mpirun call it together. Of `pin`, only the members pin, n_cpus and cpus count.
 * Sets n_threads and cpus of backend; cpus points into threads.
 * Errors: those of placement_choose; ERR_UNAVAILABLE a rank is gone. */
int threads_choose(struct threads *threads, struct backend_options *backend,
                   const struct placement_wish *pin, const struct group *group, struct error *err);

/* Opens the backend; its threads run where the placement says.
 * Errors: those of backend_open; ERR_IO. */
int threads_open_backend(const struct threads *threads, struct backend **backend,
                         const struct backend_options *options, struct error *err);

/* Puts the calling thread, the engine thread, on its own CPU (or those that the rank is confined
 * to), and takes it off again. A thread inherits the CPU of the one that starts it, so network
 * threads are started while the engine thread is off: otherwise they would wait for a core that
 * computes. */
int threads_enter(const struct threads *threads, struct error *err);
void threads_leave(const struct threads *threads);
