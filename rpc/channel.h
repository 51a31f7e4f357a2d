/* A client's connections, by address. A stream that is opened again finds the channel of the one
 * that broke, which reconnects by itself. Owned by the client's thread. For files of rpc/ only. */
#pragma once

#include <grpc/grpc.h>

#include "base/error.h"

struct rpc_channel {
    struct rpc_channel *next;
    grpc_channel *grpc;
    int n_streams; /* kept by the streams */
    char address[];
};

/* A zeroed list is empty. */
struct rpc_channels {
    struct rpc_channel *first;
    int n;
};

/* Finds or makes the channel of an address; it stays as long as it has streams.
 * Errors: ERR_NO_MEMORY. */
int rpc_channels_get(struct rpc_channels *channels, struct rpc_channel **channel,
                     const char *address, struct error *err);
void rpc_channels_drop_unused(struct rpc_channels *channels);
