/* How a rank finds its group. */
#include "worker/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "access/group_key.h"
#include "base/limits.h"
#include "base/memory.h"
#include "comm/comm_mpi.h"
#include "comm/comm_nccl.h"
#include "comm/roster.h"
#include "worker/address.h"
#include "worker/join.h"
#include "worker/lead_watch.h"

bool group_has_peers(const struct group_options *options)
{
    return options->n_ranks > 1 || comm_mpi_is_launched();
}

/* True if the ranks meet without MPI. */
static bool is_led(const struct group *group)
{
    return !group->world && group->comm->size > 1;
}

bool group_is_lead(const struct group *group)
{
    return is_led(group) && group->comm->rank == 0;
}

bool group_has_exchange(const struct group *group)
{
    return !is_led(group);
}

struct secrets {
    uint64_t id;
    uint8_t pass[WIRE_MEMBER_PASS_BYTES];
};

static void take_secrets(struct group *group, const struct secrets *secrets)
{
    snprintf(group->id, sizeof group->id, "%016" PRIx64, secrets->id);
    memcpy(group->member_pass, secrets->pass, sizeof secrets->pass);
}

/* A random number of rank 0 names the group, and another one is its members' pass. Without MPI, the
 * other ranks get both when they join. */
static int share_secrets(struct group *group, struct error *err)
{
    struct secrets mine = {0}, *all = NULL;
    int rc = 0;
    if (getrandom(&mine, sizeof mine, 0) != (ssize_t)sizeof mine) {
        return error_set(err, ERR_UNAVAILABLE, "the system gives no random numbers");
    }
    if (is_led(group)) {
        take_secrets(group, &mine);
        return 0;
    }
    TRY(mem_array(&all, (size_t)group->comm->size, sizeof *all, err));
    TRY(comm_exchange(group->comm, &mine, all, sizeof mine, err));
    take_secrets(group, &all[0]);
out:
    free(all);
    return rc;
}

static int check_options(const struct group_options *options, bool has_mpi, struct error *err)
{
    if (options->rank >= options->n_ranks) {
        return error_set(err, ERR_ARGUMENT,
                         "--rank %d of --ranks %d: give --ranks, and ranks count from 0",
                         options->rank, options->n_ranks);
    }
    if (has_mpi && options->is_lws) {
        return error_set(err, ERR_ARGUMENT,
                         "--lws: under mpirun it is mpirun that says the ranks; leave --lws out");
    }
    if (options->has_same_port && options->rank > 0 && !options->lead) {
        return error_set(err, ERR_ARGUMENT,
                         "--same-port: rank 0 has another host than rank %d; give --lead",
                         options->rank);
    }
    if (has_mpi && options->n_ranks > 1) {
        return error_set(err, ERR_ARGUMENT,
                         "--ranks %d: under mpirun it is mpirun that says the ranks; leave --rank "
                         "and --ranks out",
                         options->n_ranks);
    }
    if (options->n_ranks > 1 && options->collectives == GROUP_HOST) {
        return error_set(err, ERR_ARGUMENT,
                         "--collectives host: %d ranks without mpirun can only meet over NCCL",
                         options->n_ranks);
    }
    return 0;
}

/* Opens NCCL on top of the communicator that exists; a group of one rank needs none. */
static int open_nccl(struct group *group, struct error *err)
{
    const struct comm_nccl_options options = {.timeout_ms = group->options.timeout_s * 1000};
    struct comm *base = group->world ? group->comm : NULL, *comm = NULL;
    int rank = base ? base->rank : group->options.rank;
    int size = base ? base->size : group->options.n_ranks;
    if (size == 1) return 0;
    int rc = comm_nccl_open_take(&comm, base, rank, size, &options, err);
    if (!rc) group->comm = comm;
    return rc;
}

int group_open(struct group *group, const struct group_options *options, struct error *err)
{
    int rc = 0;
    bool has_mpi = comm_mpi_is_launched();
    *group = (struct group){.options = *options, .comm = comm_single()};
    TRY(check_options(options, has_mpi, err));
    if (has_mpi) {
        struct comm *part = NULL;
        TRY(comm_mpi_open(&group->world, err));
        TRY(comm_mpi_split(&part, group->world, ROSTER_WORKER, err));
        group->comm = part;
    }
    if (options->n_ranks > 1 || options->collectives == GROUP_NCCL) TRY(open_nccl(group, err));
    TRY(share_secrets(group, err));
out:
    /* Under MPI, closing would wait for ranks that wait for us. */
    if (rc && !group->world) group_close(group);
    return rc;
}

void group_close(struct group *group)
{
    /* MPI ends when all ranks do, and until then the stream says that this rank is there. */
    if (!group->world) lead_watch_close(group->lead_watch);
    comm_close(group->comm);
    comm_close(group->world);
    if (group->world) lead_watch_close(group->lead_watch);
    *group = (struct group){0};
}

int group_address(const struct group *group, const char *option, char *out, struct error *err)
{
    if (group->options.has_same_port) return address_of_rank(option, 0, 1, out, err);
    return address_of_rank(option, group->comm->rank, group->comm->size, out, err);
}

/* Under MPI, every rank compares all descriptions, so that all ranks fail with the same reason. */
static int agree(const struct group *group, const struct target_description *mine,
                 struct error *err)
{
    struct target_description *all = NULL;
    int rc = 0;
    TRY(mem_array(&all, (size_t)group->comm->size, sizeof *all, err));
    TRY(comm_exchange(group->comm, mine, all, sizeof *mine, err));
    for (int r = 1; r < group->comm->size && !rc; r++) {
        const char *what = target_description_differs(&all[r], &all[0]);
        if (!what) continue;
        rc = error_set(err, ERR_ARGUMENT,
                       "rank %d has another %s than rank 0; start all ranks with the same files "
                       "and flags",
                       r, what);
    }
out:
    free(all);
    return rc;
}

int group_offer(struct group *group, struct target_description *mine, struct error *err)
{
    struct comm_nccl_id id;
    _Static_assert(sizeof id == sizeof mine->nccl_id, "the wire carries NCCL's id");
    if (!group_is_lead(group)) return 0;
    int rc = comm_nccl_make_id(group->comm, &id, err);
    if (rc) return rc;
    memcpy(mine->nccl_id, &id, sizeof id);
    memcpy(mine->member_pass, group->member_pass, sizeof mine->member_pass);
    mine->has_nccl_id = true;
    return 0;
}

static struct lead_access lead_access(const struct group *group)
{
    const struct group_key *key = group->options.key;
    return (struct lead_access){.certificates = group->options.certificates,
                                .key = key ? group_key_text(key) : NULL};
}

/* Without MPI, all ranks but rank 0 first ask rank 0 for the id. */
static int join_led(struct group *group, struct target_description *mine, struct error *err)
{
    int rc = 0;
    const struct group_options *options = &group->options;
    const struct lead_access access = lead_access(group);
    char lead[ADDRESS_BYTES];
    struct comm_nccl_id id;
    struct target_description theirs = *mine;
    if (!group_is_lead(group)) {
        TRY(address_of_lead(options->lead, options->listen, group->comm->size, lead, err));
        TRY(join_ask(&theirs, mine, lead, &access, options->timeout_s, err));
        memcpy(group->member_pass, theirs.member_pass, sizeof group->member_pass);
        TRY(lead_watch_open(&group->lead_watch, lead, group->member_pass, &access, err));
    }
    memcpy(&id, theirs.nccl_id, sizeof id);
    TRY(comm_nccl_connect(group->comm, &id, err));
    memcpy(group->id, theirs.group, sizeof group->id);
    memcpy(mine->group, theirs.group, sizeof mine->group);
out:
    return rc;
}

int group_join(struct group *group, struct target_description *mine, struct error *err)
{
    if (is_led(group)) return join_led(group, mine, err);
    int rc = agree(group, mine, err);
    if (!rc && group->comm->device) rc = comm_nccl_connect(group->comm, NULL, err);
    return rc;
}

/* Where a rank runs and listens. */
struct place {
    char host[ADDRESS_BYTES / 2], address[ADDRESS_BYTES];
};

static bool are_apart(const struct place *all, int n)
{
    bool is_wild = false, has_hosts = false;
    for (int r = 0; r < n; r++) {
        is_wild = is_wild || address_is_wildcard(all[r].address);
        has_hosts = has_hosts || strcmp(all[r].host, all[0].host) != 0;
    }
    return has_hosts && !is_wild;
}

int group_n_members(const struct group *group)
{
    bool has_members = is_led(group) || group->is_apart;
    return has_members && group->comm->rank == 0 ? group->comm->size - 1 : 0;
}

int group_place(struct group *group, const char *bound, struct error *err)
{
    struct place mine = {0}, *all = NULL;
    int rc = 0;
    if (!group->world || group->comm->size == 1) return 0;
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.address, sizeof mine.address, "%s", bound);
    TRY(mem_array(&all, (size_t)group->comm->size, sizeof *all, err));
    TRY(comm_exchange(group->comm, &mine, all, sizeof mine, err));
    group->is_apart = are_apart(all, group->comm->size);
    _Static_assert(sizeof group->lead == sizeof all[0].address, "an address fits");
    snprintf(group->lead, sizeof group->lead, "%s", all[0].address);
out:
    free(all);
    return rc;
}

/* The exchange says that rank 0 knows of its members. */
int group_watch(struct group *group, struct error *err)
{
    const struct lead_access access = lead_access(group);
    uint8_t mine = 1, all[RANKS_MAX];
    int rc = 0;
    if (!group->is_apart) return 0;
    TRY(comm_exchange(group->comm, &mine, all, sizeof mine, err));
    if (group->comm->rank > 0) {
        TRY(lead_watch_open(&group->lead_watch, group->lead, group->member_pass, &access, err));
    }
out:
    return rc;
}

void group_leave(struct group *group)
{
    lead_watch_leave(group->lead_watch);
}

int group_announce(struct group *group, const char *bound, struct error *err)
{
    char address[ADDRESS_BYTES];
    struct roster_entry *entries = NULL;
    int rc = 0;
    if (!group->world || group->world->size == group->comm->size) return 0;
    address_make_reachable(bound, address);
    TRY(mem_array(&entries, (size_t)group->world->size, sizeof *entries, err));
    TRY(roster_share(group->world, ROSTER_WORKER, group->comm->rank, address, entries, err));
out:
    free(entries);
    return rc;
}
