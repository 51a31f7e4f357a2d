/* Roles and addresses of the processes of one mpirun. */
#include "comm/roster.h"

#include <string.h>

int roster_share(struct comm *world, enum roster_role role, int rank, const char *address,
                 struct roster_entry *entries, struct error *err)
{
    struct roster_entry mine = {.role = (int)role, .rank = rank};
    size_t len = strlen(address);
    if (len >= sizeof mine.address) {
        return error_set(err, ERR_ARGUMENT, "the address %s is longer than %d bytes", address,
                         ROSTER_ADDRESS_BYTES - 1);
    }
    memcpy(mine.address, address, len + 1);
    return comm_exchange(world, &mine, entries, sizeof mine, err);
}
