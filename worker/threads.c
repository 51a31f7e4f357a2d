/* A rank's threads and CPUs. */
#include "worker/threads.h"

#include <stdlib.h>
#include <string.h>

#include "access/reach.h"
#include "base/memory.h"

/* True if this mpirun also started a coordinator, or if only this machine can call the rank,
 * because the coordinator must run here then. */
static bool has_coordinator(const struct group *group)
{
    if (group->world && group->world->size > group->comm->size) return true;
    return reach_is_local(group->options.listen);
}

static int meet(struct placement_wish *wish, const struct topology *topology,
                const struct group *group, struct error *err)
{
    const struct placement_fact mine = placement_fact(topology);
    struct placement_fact *all = NULL;
    int rc = 0, n = group->comm->size;
    if (!group->world || n == 1) return 0;
    TRY(mem_array(&all, (size_t)n, sizeof *all, err));
    TRY(comm_exchange(group->comm, &mine, all, sizeof mine, err));
    placement_meet(wish, all, n, group->comm->rank);
out:
    free(all);
    return rc;
}

int threads_choose(struct threads *threads, struct backend_options *backend,
                   const struct placement_wish *pin, const struct group *group, struct error *err)
{
    struct placement_wish wish = *pin;
    int rc = 0;
    *threads = (struct threads){.placement = {.n_threads = 1}};
    wish.n_threads = backend->auto_threads ? 0 : backend->n_threads;
    wish.n_sharing = 1;
    topology_read(&threads->topology);
    TRY(meet(&wish, &threads->topology, group, err));
    /* A rank uses all of the CPUs that mpirun gave to it alone. */
    wish.has_coordinator = has_coordinator(group) && !(wish.is_safe && wish.n_sharing == 1);
    if (strcmp(backend->device, "cpu") != 0) goto out; /* one thread feeds a GPU */
    TRY(placement_choose(&threads->placement, &threads->topology, &wish, err));
    backend->n_threads = threads->placement.n_threads;
    backend->cpus = threads->placement.is_pinned ? threads->placement.cpus : NULL;
out:
    return rc;
}

int threads_open_backend(const struct threads *threads, struct backend **backend,
                         const struct backend_options *options, struct error *err)
{
    int rc = placement_confine(&threads->placement, err);
    if (rc) return rc;
    rc = backend_open(backend, options, err);
    if (threads->placement.is_confined) placement_leave(&threads->topology);
    return rc;
}

int threads_enter(const struct threads *threads, struct error *err)
{
    const struct placement *placement = &threads->placement;
    return placement->is_pinned ? placement_enter(placement->cpus[0], err)
                                : placement_confine(placement, err);
}

void threads_leave(const struct threads *threads)
{
    const struct placement *placement = &threads->placement;
    if (placement->is_pinned || placement->is_confined) placement_leave(&threads->topology);
}
