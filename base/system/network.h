/* This host's addresses: which one it has in a network. */
#pragma once

#include <sys/socket.h>

#include "base/error.h"

enum { NETWORK_ADDRESS_BYTES = 64, NETWORK_JOINED_BYTES = 128 };

/* The connections that a server may hold: a third of the files that the process may have open, so
 * that two servers leave enough for the rest. */
int network_connections_most(void);

/* accept4 of the system, which rpc/door.h has another one in place of. */
int network_accept(int listener, struct sockaddr *addr, socklen_t *len, int flags);

/* "HOST:PORT" from a host in numbers and a port's text, with brackets around an IPv6 address. What
 * does not fit is cut, which no port and no address is. */
void network_join(const char *host, const char *port, char out[NETWORK_JOINED_BYTES]);

/* The address that this host has in a network, as a number and without brackets. network is the
 * name of an interface, of which the first IPv4 address counts, or else the first IPv6 address that
 * is not only for the link; or it is A.B.C.D/N, or the same with an IPv6 address.
 * Errors: ERR_ARGUMENT it has another form; ERR_NOT_FOUND this host has no address there, with the
 * addresses that it has. */
int network_find_address(const char *network, char out[NETWORK_ADDRESS_BYTES], struct error *err);
