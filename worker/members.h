/* The ranks that may hold a Stay stream on rank 0, whose end ends the group: the other ranks of
 * this group and nobody else. At the start rank 0 draws a pass at random, which the ranks get over
 * MPI, or with its description while the group forms, and which they show as metadata of the call.
 * A group that needs no such streams, because mpirun watches all its ranks, has no members. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/target_wire.h"

enum { MEMBERS_PASS_CHARS = 2 * WIRE_MEMBER_PASS_BYTES + 1 };

#define MEMBERS_HEADER "outrider-member" /* name of the metadata */

struct members {
    char pass[MEMBERS_PASS_CHARS];
    atomic_int n_most; /* ranks that may hold a stream; any thread */
    int n_held;        /* handlers only */
};

/* The pass as the header has it. */
void members_pass_text(const uint8_t pass[WIRE_MEMBER_PASS_BYTES], char text[MEMBERS_PASS_CHARS]);

void members_init(struct members *members, const uint8_t pass[WIRE_MEMBER_PASS_BYTES], int n_most);

/* The caller shows header[len], NULL if it shows none. On success members_leave follows.
 * Errors: ERR_UNSUPPORTED this group has no such streams, ERR_UNAUTHENTICATED it is no rank of the
 * group, ERR_EXHAUSTED every other rank has its stream. */
int members_enter(struct members *members, const char *header, size_t len, struct error *err);
void members_leave(struct members *members);
