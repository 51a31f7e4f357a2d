/* Tells from which machines an address that a server listens at can be reached. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* The path of a unix socket, "unix:/path", which is plain in any case: the permissions of its
 * folder say who may connect. NULL: the address is another one. */
const char *reach_unix_path(const char *address);

/* True if only processes of this machine can connect: a unix socket, "localhost:PORT", or a
 * loopback address as a number. False for whatever else the address may be. */
bool reach_is_local(const char *address);

/* True if the host of "HOST" or "HOST:PORT" is a name that somebody's DNS answers for: no number,
 * and not localhost or below it. */
bool reach_is_domain(const char *authority);

/* A server that is about to listen. */
struct reach_door {
    const char *option, *address; /* "--listen", "0.0.0.0:7070" */
    bool is_guarded;              /* it asks its callers who they are, or is told not to care */
    const char *ways;             /* what would guard it: "give --keys, or ..." */
};

/* Every server asks this about each of its doors before it listens.
 * Errors: ERR_ARGUMENT other machines can reach the door, and nothing guards it; or the address is
 * none. */
int reach_check(const struct reach_door *door, struct error *err);
