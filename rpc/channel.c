/* Connections by address. */
#include "rpc/channel.h"

#include <grpc/grpc_security.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/common.h"

enum { CHANNELS_MAX = 64 };

static void channel_close(struct rpc_channel *channel)
{
    grpc_channel_destroy(channel->grpc);
    free(channel);
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

static int channel_open(struct rpc_channel **channel, const char *address, struct error *err)
{
    struct rpc_channel *c;
    size_t len = strlen(address) + 1;
    int rc = mem_array(&c, 1, sizeof *c + len, err);
    if (rc) return rc;
    memcpy(c->address, address, len);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    c->grpc = grpc_channel_create(address, plain, rpc_channel_args());
    grpc_channel_credentials_release(plain);
    *channel = c;
    return 0;
}

int rpc_channels_get(struct rpc_channels *channels, struct rpc_channel **channel,
                     const char *address, struct error *err)
{
    struct rpc_channel *c = channels->first;
    while (c && strcmp(c->address, address) != 0)
        c = c->next;
    if (!c) {
        /* A restarted peer may have another address, and its old channel is then unused. */
        if (channels->n >= CHANNELS_MAX) rpc_channels_drop_unused(channels);
        int rc = channel_open(&c, address, err);
        if (rc) return rc;
        c->next = channels->first;
        channels->first = c;
        channels->n++;
    }
    *channel = c;
    return 0;
}
