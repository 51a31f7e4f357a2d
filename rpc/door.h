/* The connections of a server's door. Each is an open file, and strangers may open as many as they
 * like, so the door holds no more than a third of what the process may have open. When it is full,
 * the connection that has had no call for the longest time makes room for a new one, and if all are
 * in use, the new one is closed. A call counts from when the server has let it in until it has
 * ended.
 *
 * gRPC 1.51 bounds nothing, and where a process may open no more files it stops listening for good.
 * So this file has an accept4 in place of the C library's, which gRPC calls: it knows the listening
 * sockets of doors and leaves all others alone. Unix sockets are not bounded, because the
 * permissions of their folder say who may connect. For files of rpc/ only. Locked inside. */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct rpc_door;

/* address: as bound, with the true port. Before connections are accepted there. Errors:
 * ERR_NO_MEMORY. */
int rpc_door_open(struct rpc_door **door, const char *address, struct error *err);
/* When nothing is accepted any more. Accepts NULL. */
void rpc_door_close(struct rpc_door *door);

/* A call begins on the connection of that peer, as gRPC writes it ("ipv4:127.0.0.1:4321"). Returns
 * what rpc_door_leave takes when the call has ended; 0: the connection is not known. */
uint64_t rpc_door_enter(struct rpc_door *door, const char *peer);
void rpc_door_leave(struct rpc_door *door, uint64_t connection);
