/* How a rank finds its group: alone; under mpirun with only workers; under one mpirun together with the
 * coordinator; or without MPI, ranks with a GPU each that rank 0 leads (worker/join.h). */
#pragma once

#include <stdint.h>

#include "comm/comm.h"
#include "proto/target_wire.h"

enum { GROUP_ID_BYTES = 64 };

/* What adds up the ranks' sums. AUTO: NCCL without MPI and, under
 * mpirun, with --device cuda (each rank has the GPU of its number); MPI otherwise. */
enum group_collectives { GROUP_AUTO, GROUP_HOST, GROUP_NCCL };

struct lead_watch;

struct group_options {
    int rank, n_ranks;  /* without MPI; 0 of 1: alone */
    const char *listen; /* HOST:PORT (rank r takes PORT + r) or unix:PATH */
    const char *lead;   /* where rank 0 can be called; NULL: as listen says */
    enum group_collectives collectives;
    int timeout_s; /* for all ranks to come */
};

struct group {
    struct group_options options;
    struct comm *world;            /* everything mpirun started; NULL without mpirun */
    struct comm *comm;             /* the ranks of the target */
    struct lead_watch *lead_watch; /* to rank 0, of a rank without MPI */
    char id[GROUP_ID_BYTES];       /* the same on all ranks, new at every start */
};

/* Knows its rank and size then, but may not be connected. keeps the options' strings.
 * Errors: ERR_UNAVAILABLE MPI cannot start, ERR_UNSUPPORTED NCCL cannot be loaded, ERR_ARGUMENT. */
int group_open(struct group *group, const struct group_options *options, struct error *err);
void group_close(struct group *group);

/* Without MPI, rank 0 is the one that the others ask: it listens before it joins, and its description
 * offers what they need. Fills that in; of other ranks and groups nothing is wanted. */
bool group_is_lead(const struct group *group);
int group_offer(struct group *group, struct target_description *mine, struct error *err);

/* Waits for all ranks and connects them. They must hold the same model, tokenizer and arithmetic;
 * digest says so in one number, mine in words; mine gets the group's id.
 * Errors: ERR_ARGUMENT names the rank or the field that differs, ERR_TIMEOUT and ERR_UNAVAILABLE not
 * all came. */
int group_join(struct group *group, struct target_description *mine, struct error *err);

/* Under one mpirun with the coordinator: tells it the address. bound is the address as bound; a
 * wildcard host is replaced by this host's name. */
int group_announce(struct group *group, const char *bound, struct error *err);
