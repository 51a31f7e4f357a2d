/* A rank's threads and CPUs. */
#include "worker/threads.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* What only this machine can reach is called from this machine. */
static bool is_local(const char *listen)
{
    return strncmp(listen, "unix:", 5) == 0 || strncmp(listen, "127.", 4) == 0 ||
           strncmp(listen, "localhost:", 10) == 0 || strncmp(listen, "[::1]:", 6) == 0;
}

/* In an mpirun with a coordinator the others listen where it can call them. */
static bool has_coordinator(const struct group *group)
{
    if (group->world && group->world->size > group->comm->size) return true;
    return is_local(group->options.listen);
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

int place_choose(struct place *place, struct worker_options *options, const struct group *group,
                 struct error *err)
{
    struct backend_options *backend = &options->backend;
    struct placement_wish wish = options->place;
    int rc = 0;
    *place = (struct place){.placement = {.n_threads = 1}};
    wish.n_threads = backend->auto_threads ? 0 : backend->n_threads;
    wish.n_sharing = 1;
    topology_read(&place->topology);
    TRY(meet(&wish, &place->topology, group, err));
    /* CPUs that mpirun gave to this rank alone are used whole. */
    wish.has_coordinator = has_coordinator(group) && !(wish.is_safe && wish.n_sharing == 1);
    if (strcmp(backend->device, "cpu") != 0) goto out; /* one thread feeds a GPU */
    TRY(placement_choose(&place->placement, &place->topology, &wish, err));
    backend->n_threads = place->placement.n_threads;
    backend->cpus = place->placement.is_pinned ? place->placement.cpus : NULL;
out:
    return rc;
}

int place_enter(const struct place *place, struct error *err)
{
    return place->placement.is_pinned ? placement_enter(place->placement.cpus[0], err) : 0;
}

void place_leave(const struct place *place)
{
    if (place->placement.is_pinned) placement_leave(&place->topology);
}
