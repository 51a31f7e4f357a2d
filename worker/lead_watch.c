/* A rank's stream to rank 0, and the thread that ends the process when it breaks. */
#include "worker/lead_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/process.h"
#include "rpc/client.h"
#include "worker/address.h"
#include "worker/members.h"

struct lead_watch {
    char lead[ADDRESS_BYTES];
    struct rpc_client *client; /* used by the thread, except to open and close */
    struct rpc_stream *stream;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_leaving;
};

/* All ranks of a group are told to end at the same time, but rank 0 may be faster. */
enum { TOLD_WITHIN_MS = 300, LOOK_MS = 10 };

static bool is_leaving_soon(struct lead_watch *watch)
{
    for (int ms = 0; ms < TOLD_WITHIN_MS && !atomic_load(&watch->is_leaving); ms += LOOK_MS) {
        clock_sleep_us(LOOK_MS * 1000);
    }
    return atomic_load(&watch->is_leaving);
}

/* Rank 0 never sends a message, so the stream only returns when it ends. */
static void *wait_for_end(void *arg)
{
    struct lead_watch *watch = arg;
    struct error err = {0};
    const uint8_t *data;
    size_t len;
    int rc = 0;
    while (!rc) {
        rc = rpc_stream_receive(watch->stream, &data, &len, INT64_MAX, &err);
    }
    if (rc == ERR_CANCELLED) return NULL; /* lead_watch_close */
    if (is_leaving_soon(watch)) return NULL;
    log_line(LOG_LEVEL_ERROR, "lead_lost", "address=%s text=\"%s\"", watch->lead, err.text);
    process_end_now(LEAD_WATCH_EXIT);
    return NULL;
}

int lead_watch_open(struct lead_watch **out, const char *lead, const uint8_t *pass,
                    const struct lead_access *access, struct error *err)
{
    char shown[MEMBERS_PASS_CHARS];
    const struct rpc_client_options client = {.certificates = access->certificates,
                                              .api_key = access->key,
                                              .header_name = MEMBERS_HEADER,
                                              .header_value = shown};
    int rc = 0;
    struct lead_watch *watch = NULL;
    *out = NULL;
    TRY(mem_array(&watch, 1, sizeof *watch, err));
    snprintf(watch->lead, sizeof watch->lead, "%s", lead);
    members_pass_text(pass, shown);
    TRY(rpc_client_open(&watch->client, &client, err));
    TRY(rpc_stream_open(&watch->stream, watch->client, lead, "/outrider.target.v1.Target/Stay",
                        false, INT64_MAX, err));
    if (pthread_create(&watch->thread, NULL, wait_for_end, watch)) {
        rc = error_set(err, ERR_UNAVAILABLE, "no thread can be started");
        goto out;
    }
    watch->has_thread = true;
    *out = watch;
    watch = NULL;
out:
    lead_watch_close(watch);
    return rc;
}

void lead_watch_leave(struct lead_watch *watch)
{
    if (watch) atomic_store(&watch->is_leaving, true);
}

void lead_watch_close(struct lead_watch *watch)
{
    if (!watch) return;
    lead_watch_leave(watch);
    if (watch->has_thread) {
        rpc_stream_cancel(watch->stream);
        pthread_join(watch->thread, NULL);
    }
    rpc_stream_close(watch->stream);
    rpc_client_close(watch->client);
    free(watch);
}
