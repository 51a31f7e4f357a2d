#include "worker/lead_watch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "rpc/client.h"

enum { LEAD_BYTES = 256 };

struct bond {
    char lead[LEAD_BYTES];
    struct rpc_client *client; /* the thread's, but for opening and closing */
    struct rpc_stream *stream;
    pthread_t thread;
    bool has_thread;
};

/* Rank 0 never sends anything: what comes is the end. */
static void *wait_for_end(void *arg)
{
    struct bond *bond = arg;
    struct error err = {0};
    const uint8_t *data;
    size_t len;
    int rc = 0;
    while (!rc) {
        rc = rpc_stream_receive(bond->stream, &data, &len, INT64_MAX, &err);
    }
    if (rc == ERR_CANCELLED) return NULL; /* bond_close */
    log_line(LOG_LEVEL_ERROR, "lead_lost", "address=%s text=\"%s\"", bond->lead, err.text);
    process_end_now(BOND_EXIT);
    return NULL;
}

int bond_open(struct bond **out, const char *lead, struct error *err)
{
    int rc = 0;
    struct bond *bond = NULL;
    *out = NULL;
    TRY(mem_array(&bond, 1, sizeof *bond, err));
    snprintf(bond->lead, sizeof bond->lead, "%s", lead);
    TRY(rpc_client_open(&bond->client, err));
    TRY(rpc_stream_open(&bond->stream, bond->client, lead, "/outrider.target.v1.Target/Stay", false,
                        INT64_MAX, err));
    if (pthread_create(&bond->thread, NULL, wait_for_end, bond)) {
        rc = error_set(err, ERR_UNAVAILABLE, "no thread can be started");
        goto out;
    }
    bond->has_thread = true;
    *out = bond;
    bond = NULL;
out:
    bond_close(bond);
    return rc;
}

void bond_close(struct bond *bond)
{
    if (!bond) return;
    if (bond->has_thread) {
        rpc_stream_cancel(bond->stream);
        pthread_join(bond->thread, NULL);
    }
    rpc_stream_close(bond->stream);
    rpc_client_close(bond->client);
    free(bond);
}
