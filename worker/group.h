/* How a rank finds its group. A rank runs alone, under mpirun with workers only, under one mpirun
 * together with the coordinator, or without MPI, as one of several ranks with a GPU each that rank
 * 0 leads (worker/join.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "proto/target_wire.h"

enum { GROUP_ID_BYTES = 64, GROUP_ADDRESS_BYTES = 256 };

/* The library that adds up the ranks' sums. AUTO is NCCL without MPI, and under mpirun with
 * --device cuda, where each rank has the GPU of its number; otherwise it is MPI. */
enum group_collectives { GROUP_AUTO, GROUP_HOST, GROUP_NCCL };

struct lead_watch;

struct group_options {
    int rank, n_ranks;  /* without MPI; rank 0 of 1 is alone */
    bool is_lws;        /* a LeaderWorkerSet says these two, and lead (worker/lws.h) */
    bool has_same_port; /* every rank has a host of its own and takes PORT itself */
    const char *listen; /* HOST:PORT (rank r takes PORT + r) or unix:PATH */
    const char *lead;   /* where rank 0 can be called; NULL: follows from listen */
    enum group_collectives collectives;
    int timeout_s;                     /* for all ranks to join */
    struct certificates *certificates; /* of the door, and to call rank 0; NULL = plain; kept */
    struct group_key *key;             /* likewise; NULL = none */
    const char *run_names;             /* whose certificates may take the group; kept */
};

struct group {
    struct group_options options;
    struct comm *world;            /* everything mpirun started; NULL without mpirun */
    struct comm *comm;             /* the ranks of the target */
    struct lead_watch *lead_watch; /* to rank 0; see group_n_members */
    char id[GROUP_ID_BYTES];       /* the same on all ranks, new at every start, and public */
    /* as new, and for the ranks alone (worker/members.h); without MPI that of rank 0 alone, until
     * group_join */
    uint8_t member_pass[WIRE_MEMBER_PASS_BYTES];
    bool is_apart;                  /* under MPI, on several hosts */
    char lead[GROUP_ADDRESS_BYTES]; /* where rank 0 listens, if is_apart */
};

/* Afterwards the group knows its rank and size, but may not be connected. keeps the options'
 * strings.
 * Errors: ERR_UNAVAILABLE MPI cannot start, ERR_UNSUPPORTED NCCL cannot be loaded, ERR_ARGUMENT. */
int group_open(struct group *group, const struct group_options *options, struct error *err);
void group_close(struct group *group);

/* Without MPI the other ranks ask rank 0, the lead: it listens before it joins, and its description
 * offers what they need. group_offer adds that to `mine`; on other ranks, and in other groups, it
 * does nothing. */
bool group_is_lead(const struct group *group);
int group_offer(struct group *group, struct target_description *mine, struct error *err);

/* True if a rank with these options meets others before it serves. */
bool group_has_peers(const struct group_options *options);

/* True if comm_exchange works: ranks without MPI can only add numbers on their devices. */
bool group_has_exchange(const struct group *group);

/* Where this rank has a door that the option puts at HOST:PORT or unix:PATH for the group
 * (worker/address.h). Errors: those of address_of_rank. */
int group_address(const struct group *group, const char *option, char *out, struct error *err);

/* Waits for all ranks and connects them. What they must share (target_description_differs) must be
 * equal; `mine` is this rank's description and gets the group's id.
 * Errors: ERR_ARGUMENT names what differs, and under MPI the rank, ERR_TIMEOUT and ERR_UNAVAILABLE
 * not all ranks came. */
int group_join(struct group *group, struct target_description *mine, struct error *err);

/* Under mpirun, where ranks run on several hosts and each listens at an address of its own (no
 * wildcard): every rank keeps a stream to rank 0 (worker/lead_watch.h), because mpirun learns late
 * that a host is cut off. All ranks call group_place when they listen at `bound`, and group_watch
 * when their listeners know how many streams to expect. */
int group_place(struct group *group, const char *bound, struct error *err);
int group_watch(struct group *group, struct error *err);
/* How many ranks hold a stream to this one: on rank 0 all others, without MPI and, after
 * group_place, on several hosts; otherwise 0. */
int group_n_members(const struct group *group);
/* This rank is about to leave, so another rank that leaves is no loss. Any thread. */
void group_leave(struct group *group);

/* Under one mpirun with the coordinator: tells it this rank's address. bound is the address as
 * bound; a wildcard host is replaced by the name of this host. */
int group_announce(struct group *group, const char *bound, struct error *err);
