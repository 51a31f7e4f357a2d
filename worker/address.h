/* Addresses of ranks, worked out from the options --listen and --lead. An address is HOST:PORT or
 * unix:PATH. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum { ADDRESS_BYTES = 256 }; /* of every `out` below */

/* Where a rank listens: at the group's port plus the rank, or if there are several ranks, at the
 * group's socket path with ".RANK" appended. Port 0 stays 0.
 * Errors: ERR_ARGUMENT listen has another form or is too long. */
int address_of_rank(const char *listen, int rank, int n_ranks, char *out, struct error *err);

/* Where rank 0 can be called: at `lead`, or if that is NULL, where `listen` puts rank 0.
 * Errors: ERR_ARGUMENT too long, or listen does not say the port. */
int address_of_lead(const char *lead, const char *listen, int n_ranks, char *out,
                    struct error *err);

/* True if the address names no host: 0.0.0.0:PORT or [::]:PORT. */
bool address_is_wildcard(const char *address);

/* Where --listen says 0.0.0.0 or [::], the address that this host has in `network` takes its place;
 * with NULL, listen stays as it is.
 * Errors: ERR_ARGUMENT listen names an address already; those of network_find_address. */
int address_in_network(const char *listen, const char *network, char *out, struct error *err);

/* The bound address as another host can call it: this host's name replaces "0.0.0.0" and "[::]". */
void address_make_reachable(const char *bound, char *out);
