/* Reading on several threads. Digests are sums, so their order does not matter. */
#include "model/backend/cuda/readers.h"

#include <stdlib.h>

#include "base/least.h"
#include "base/memory.h"
#include "base/system/topology.h"
#include "base/threads/team.h"

enum {
    READERS_MAX = 8,
    SPIN_US = 100 /* until the next chunk comes; it is copied meanwhile */
};

struct readers {
    struct team *team;
    const struct readers_job *job;
    uint64_t digests[READERS_MAX][MATRIX_PARTS_MAX]; /* of each member */
};

int readers_open(struct readers **readers, struct error *err)
{
    struct topology *topology = NULL;
    struct readers *r = NULL;
    int rc = 0, n = 0;
    *readers = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    TRY(mem_array(&topology, 1, sizeof *topology, err));
    topology_read(topology);
    n = topology->quota_cpus ? least(topology->quota_cpus, topology->n_cpus) : topology->n_cpus;
    TRY(team_open(&r->team, least(n, READERS_MAX), SPIN_US, err));
    *readers = r;
    r = NULL;
out:
    free(topology);
    readers_close(r);
    return rc;
}

void readers_close(struct readers *readers)
{
    if (!readers) return;
    team_close(readers->team);
    free(readers);
}

static void read_share(void *arg, int member, int n_members)
{
    struct readers *readers = arg;
    const struct readers_job *job = readers->job;
    int begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        job->read(job->arg, job->first + i, job->out + (size_t)i * job->stride,
                  readers->digests[member]);
    }
}

void readers_run(struct readers *readers, const struct readers_job *job, uint64_t *digests,
                 int n_parts)
{
    int n = team_size(readers->team);
    readers->job = job;
    for (int member = 0; member < n; member++) {
        for (int part = 0; part < MATRIX_PARTS_MAX; part++) {
            readers->digests[member][part] = 0;
        }
    }
    team_run(readers->team, read_share, readers);
    for (int member = 0; digests && member < n; member++) {
        for (int part = 0; part < n_parts; part++) {
            digests[part] += readers->digests[member][part];
        }
    }
}
