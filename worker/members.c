/* The ranks that rank 0 knows by their pass. */
#include "worker/members.h"

#include <stdio.h>
#include <string.h>

#include "access/secret.h"

void members_pass_text(const uint8_t pass[WIRE_MEMBER_PASS_BYTES], char text[MEMBERS_PASS_CHARS])
{
    for (int i = 0; i < WIRE_MEMBER_PASS_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", pass[i]);
    }
}

void members_init(struct members *members, const uint8_t pass[WIRE_MEMBER_PASS_BYTES], int n_most)
{
    members_pass_text(pass, members->pass);
    atomic_init(&members->n_most, n_most);
    members->n_held = 0;
}

int members_enter(struct members *members, const char *header, size_t len, struct error *err)
{
    int n_most = atomic_load(&members->n_most);
    if (n_most == 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "no rank of this group holds a Stay stream here: mpirun watches them, or "
                         "this is not rank 0");
    }
    if (!secret_is(header, len, members->pass)) {
        return error_set(err, ERR_UNAUTHENTICATED,
                         "only the other ranks of this group may hold a Stay stream");
    }
    if (members->n_held >= n_most) {
        return error_set(err, ERR_EXHAUSTED,
                         "all %d other ranks of this group hold their Stay streams", n_most);
    }
    members->n_held++;
    return 0;
}

void members_leave(struct members *members)
{
    members->n_held--;
}
