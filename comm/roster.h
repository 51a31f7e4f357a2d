/* Roles and addresses when one mpirun starts everything: each process tells its own once, at
 * start. */
#pragma once

#include "comm/comm.h"

enum roster_role { ROSTER_WORKER = 1, ROSTER_COORDINATOR = 2 };
enum { ROSTER_ADDRESS_BYTES = 248 };

struct roster_entry {
    int role;
    int rank; /* a worker's rank in its group */
    char address[ROSTER_ADDRESS_BYTES];
};

/* Every process of world gives its entry and gets all of them: entries[world->size], in the order
 * of world.
 * Errors: ERR_ARGUMENT the address is too long; those of comm_exchange. */
int roster_share(struct comm *world, enum roster_role role, int rank, const char *address,
                 struct roster_entry *entries, struct error *err);
