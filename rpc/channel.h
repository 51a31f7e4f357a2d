/* A client's connections, by address: a stream that is opened again finds the channel of the one that
 * broke, which reconnects by itself. Owned by the client's thread. Internal to proto/. */
#pragma once

#include <grpc/grpc.h>

#include "base/error.h"

struct rpc_channel {
    struct rpc_channel *next;
    grpc_channel *grpc;
    int n_streams; /* kept by the streams */
    char address[];
};

/* A zeroed one is empty. */
struct rpc_channels {
    struct rpc_channel *first;
    int n;
};

/* The channel lives as long as it has streams. Errors: ERR_NO_MEMORY. */
int rpc_channels_get(struct rpc_channels *channels, struct rpc_channel **channel,
                     const char *address, struct error *err);
void rpc_channels_drop_unused(struct rpc_channels *channels);
