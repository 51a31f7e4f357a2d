/* A client's connections, by address. A stream that is opened again finds the channel of the one
 * that broke, which reconnects by itself. Owned by the client's thread. For files of rpc/ only. */
#pragma once

#include <grpc/grpc.h>
#include <stdbool.h>

#include "base/error.h"
#include "rpc/tls.h"

/* The tag that gRPC returns with an event of the client's queue. */
struct rpc_client_tag {
    void (*handle)(struct rpc_client_tag *tag);
};

/* A channel is watched as long as it is open. With GRPC_POLL_STRATEGY=poll that is what makes a
 * thread that waits in the client's queue go on with a connection that is being made, or notice the
 * end of one, while no call is under way. */
struct rpc_channel {
    struct rpc_client_tag watch; /* first */
    struct rpc_channel *next;
    grpc_channel *grpc; /* NULL once it is closed; the watch's last event frees the memory */
    grpc_completion_queue *events;
    struct rpc_tls tls;
    int n_streams; /* kept by the streams */
    char address[];
};

/* A list is empty, and plain, while it has only zeros but for the queue. */
struct rpc_channels {
    struct rpc_channel *first;
    int n;
    grpc_completion_queue *events;     /* the client's */
    struct certificates *certificates; /* NULL: all are plain; unix sockets are in any case */
    const char *server_name;           /* in place of the address's; NULL = none */
    bool is_patient;                   /* as in struct rpc_client_options */
};

/* Finds or makes the channel of an address; it stays as long as it has streams. One that has none
 * and was made with certificates that have been renewed since is made again.
 * Errors: ERR_NO_MEMORY; ERR_UNAVAILABLE gRPC cannot use the address. */
int rpc_channels_get(struct rpc_channels *channels, struct rpc_channel **channel,
                     const char *address, struct error *err);
void rpc_channels_drop_unused(struct rpc_channels *channels);

/* Ends the pause of the address's channel, if there is one, before it connects again. */
void rpc_channels_hasten(struct rpc_channels *channels, const char *address);
