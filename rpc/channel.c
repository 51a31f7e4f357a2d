/* Connections by address. */
#include "rpc/channel.h"

#include <stdlib.h>
#include <string.h>

#include "access/reach.h"
#include "base/memory.h"
#include "rpc/common.h"

enum { CHANNELS_MAX = 1024 };

static void watch(struct rpc_channel *channel)
{
    grpc_connectivity_state now = grpc_channel_check_connectivity_state(channel->grpc, 0);
    grpc_channel_watch_connectivity_state(channel->grpc, now, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                          channel->events, &channel->watch);
}

/* The state has changed; that of a channel which is closed does, too. */
static void note_state(struct rpc_client_tag *tag)
{
    struct rpc_channel *channel = (struct rpc_channel *)tag;
    if (channel->grpc)
        watch(channel);
    else
        free(channel);
}

static void channel_close(struct rpc_channel *channel)
{
    grpc_channel *grpc = channel->grpc;
    channel->grpc = NULL;
    grpc_channel_destroy(grpc);
}

void rpc_channels_drop_unused(struct rpc_channels *channels)
{
    struct rpc_channel **link = &channels->first;
    while (*link) {
        struct rpc_channel *channel = *link;
        if (channel->n_streams) {
            link = &channel->next;
        } else {
            *link = channel->next;
            channel_close(channel);
            channels->n--;
        }
    }
}

static int channel_open(const struct rpc_channels *channels, struct rpc_channel **channel,
                        const char *address, struct error *err)
{
    int rc = 0;
    struct rpc_channel *c = NULL;
    size_t len = strlen(address) + 1;
    grpc_channel_credentials *credentials;
    TRY(mem_array(&c, 1, sizeof *c + len, err));
    memcpy(c->address, address, len);
    if (!reach_unix_path(address)) c->tls.certificates = channels->certificates;
    TRY(rpc_tls_open_channel(&c->tls, &credentials, err));
    grpc_arg args[RPC_ARGS_MAX];
    const grpc_channel_args options =
        rpc_channel_args(args, c->tls.certificates ? channels->server_name : NULL,
                         !channels->is_patient && !reach_is_local(address));
    c->grpc = grpc_channel_create(address, credentials, &options);
    grpc_channel_credentials_release(credentials);
    if (grpc_channel_check_connectivity_state(c->grpc, 0) != GRPC_CHANNEL_IDLE) {
        grpc_channel_destroy(c->grpc); /* has failed from the beginning; a watch would never end */
        rc = error_set(err, ERR_UNAVAILABLE,
                       "%s is not available: gRPC takes HOST:PORT, or unix:PATH with at most 107 "
                       "bytes",
                       address);
        goto out;
    }
    c->watch.handle = note_state;
    c->events = channels->events;
    watch(c);
    *channel = c;
    c = NULL;
out:
    free(c);
    return rc;
}

static bool is_outdated(const struct rpc_channel *channel)
{
    struct certificates *certificates = channel->tls.certificates;
    return certificates && certificates_version(certificates) != channel->tls.version;
}

static struct rpc_channel **find(struct rpc_channels *channels, const char *address)
{
    struct rpc_channel **link = &channels->first;
    while (*link && strcmp((*link)->address, address) != 0)
        link = &(*link)->next;
    return link;
}

void rpc_channels_hasten(struct rpc_channels *channels, const char *address)
{
    struct rpc_channel *channel = *find(channels, address);
    if (channel) grpc_channel_reset_connect_backoff(channel->grpc);
}

/* Closes the channel if it has no streams and nobody should use it any more. */
static void drop_outdated(struct rpc_channels *channels, struct rpc_channel **link)
{
    struct rpc_channel *channel = *link;
    if (!channel || channel->n_streams || !is_outdated(channel)) return;
    *link = channel->next;
    channel_close(channel);
    channels->n--;
}

int rpc_channels_get(struct rpc_channels *channels, struct rpc_channel **channel,
                     const char *address, struct error *err)
{
    drop_outdated(channels, find(channels, address));
    struct rpc_channel *c = *find(channels, address);
    if (!c) {
        /* A restarted peer may have another address, and its old channel is then unused. */
        if (channels->n >= CHANNELS_MAX) rpc_channels_drop_unused(channels);
        int rc = channel_open(channels, &c, address, err);
        if (rc) return rc;
        c->next = channels->first;
        channels->first = c;
        channels->n++;
    }
    *channel = c;
    return 0;
}
