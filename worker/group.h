/* How a rank finds its group: alone, or under mpirun with only workers, or under one mpirun together
 * with the coordinator. */
#pragma once

#include <stdint.h>

#include "comm/comm.h"

enum { GROUP_ID_BYTES = 64 };

struct group {
    struct comm *world;      /* everything mpirun started; NULL without mpirun */
    struct comm *comm;       /* the ranks of the target */
    char id[GROUP_ID_BYTES]; /* the same on all ranks, new at every start */
};

/* Joins. Errors: ERR_UNAVAILABLE MPI cannot start. */
int group_open(struct group *group, struct error *err);
void group_close(struct group *group);

/* All ranks must hold the same model, tokenizer and arithmetic; digest says so in one number.
 * Errors: ERR_ARGUMENT names the rank that differs. */
int group_agree(struct group *group, uint64_t digest, struct error *err);

/* The address of this rank made from the group's: the port plus the rank, or ".RANK" behind a unix
 * socket's path; port 0 stays 0. out holds 256 bytes. Errors: ERR_ARGUMENT no such form. */
int group_address(const struct group *group, const char *listen, char *out, struct error *err);

/* Under one mpirun with the coordinator: tells it the address. bound is the address as bound; a
 * wildcard host is replaced by this host's name. */
int group_announce(struct group *group, const char *bound, struct error *err);
