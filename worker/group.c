/* How a rank finds its group. */
#include "worker/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/options.h"
#include "comm/comm_mpi.h"
#include "comm/roster.h"

enum { ADDRESS_BYTES = 256, PORT_MAX = 65535 };

/* Rank 0's random number names the group. */
static int share_id(struct group *group, struct error *err)
{
    uint64_t mine = 0, *all = NULL;
    int rc = 0;
    if (getrandom(&mine, sizeof mine, 0) != (ssize_t)sizeof mine) mine = (uint64_t)getpid();
    TRY(mem_array(&all, (size_t)group->comm->size, sizeof *all, err));
    TRY(comm_exchange(group->comm, &mine, all, sizeof mine, err));
    snprintf(group->id, sizeof group->id, "%016" PRIx64, all[0]);
out:
    free(all);
    return rc;
}

int group_open(struct group *group, struct error *err)
{
    int rc = 0;
    *group = (struct group){.comm = comm_single()};
    if (comm_mpi_is_launched()) {
        struct comm *part = NULL;
        TRY(comm_mpi_open(&group->world, err));
        TRY(comm_mpi_split(&part, group->world, ROSTER_WORKER, err));
        group->comm = part;
    }
    TRY(share_id(group, err));
out:
    if (rc) group_close(group);
    return rc;
}

void group_close(struct group *group)
{
    comm_close(group->comm);
    comm_close(group->world);
    *group = (struct group){0};
}

int group_agree(struct group *group, uint64_t digest, struct error *err)
{
    uint64_t *all = NULL;
    int rc = 0;
    TRY(mem_array(&all, (size_t)group->comm->size, sizeof *all, err));
    TRY(comm_exchange(group->comm, &digest, all, sizeof digest, err));
    for (int r = 1; r < group->comm->size; r++) {
        if (all[r] != all[0]) {
            rc = error_set(
                err, ERR_ARGUMENT,
                "rank %d holds another model, tokenizer, arithmetic or option than rank 0; "
                "start all ranks with the same files and flags",
                r);
            break;
        }
    }
out:
    free(all);
    return rc;
}

int group_address(const struct group *group, const char *listen, char *out, struct error *err)
{
    int rank = group->comm->rank, port = 0;
    int n;
    if (strncmp(listen, "unix:", 5) == 0) {
        n = group->comm->size > 1 ? snprintf(out, ADDRESS_BYTES, "%s.%d", listen, rank)
                                  : snprintf(out, ADDRESS_BYTES, "%s", listen);
    } else {
        const char *colon = strrchr(listen, ':');
        if (!colon || options_int(&port, "--listen", colon + 1, 0, PORT_MAX - 64, err)) {
            return error_set(err, ERR_ARGUMENT,
                             "--listen %s: expected HOST:PORT or unix:PATH (port 0 to %d)", listen,
                             PORT_MAX - 64);
        }
        n = snprintf(out, ADDRESS_BYTES, "%.*s:%d", (int)(colon - listen), listen,
                     port ? port + rank : 0);
    }
    if (n >= ADDRESS_BYTES) {
        return error_set(err, ERR_ARGUMENT, "--listen %s is too long", listen);
    }
    return 0;
}

/* "0.0.0.0:7071" cannot be called from another host. */
static void reachable(const char *bound, char *out)
{
    const char *colon = strrchr(bound, ':');
    char host[ADDRESS_BYTES / 2];
    int is_wildcard = strncmp(bound, "0.0.0.0:", 8) == 0 || strncmp(bound, "[::]:", 5) == 0;
    if (is_wildcard && colon && gethostname(host, sizeof host) == 0) {
        host[sizeof host - 1] = '\0';
        snprintf(out, ADDRESS_BYTES, "%.100s%.20s", host, colon);
    } else {
        snprintf(out, ADDRESS_BYTES, "%s", bound);
    }
}

int group_announce(struct group *group, const char *bound, struct error *err)
{
    char address[ADDRESS_BYTES];
    struct roster_entry *entries = NULL;
    int rc = 0;
    if (!group->world || group->world->size == group->comm->size) return 0;
    reachable(bound, address);
    TRY(mem_array(&entries, (size_t)group->world->size, sizeof *entries, err));
    TRY(roster_share(group->world, ROSTER_WORKER, group->comm->rank, address, entries, err));
out:
    free(entries);
    return rc;
}
