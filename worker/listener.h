/* The rank's gRPC side: answers Describe and health, takes steps off the Run stream into a queue for
 * the engine thread, which runs the handlers itself while it waits: a step begins on the thread that has read
 * it. One coordinator at a time. */
#pragma once

#include "base/queue.h"
#include "base/watchdog.h"
#include "proto/target_wire.h"
#include "rpc/server.h"

struct listener;

/* How long a step may still take whose coordinator is gone. */
enum { LISTENER_ORPHAN_US = 2000000 };

/* What the engine thread pops. */
enum listened_kind { LISTENED_BEGIN, LISTENED_STEP };

struct listened {
    enum listened_kind kind; /* BEGIN: a new stream, forget everything */
    struct rpc_call *call;   /* referenced; STEP only */
    int64_t received_us;
    uint8_t *data;
    size_t len;
};

void listened_free(struct listened *item);

struct listener_options {
    struct queue *queue;  /* kept and fed */
    struct watchdog *dog; /* kept; hastened when the coordinator goes away in mid-step: a step
                                    that not all ranks have got would never end */
    void (*on_rank_lost)(void *arg); /* handler: a rank's Stay stream ended (worker/lead_watch.h) */
    void *arg;
};

/* Answers at address, as a group that is still starting until listener_set_serving: Describe says
 * busy and, until listener_set_complete, offers the NCCL id if there is one; streams are refused. */
int listener_open(struct listener **listener, const char *address,
                  const struct target_description *description,
                  const struct listener_options *options, struct error *err);
void listener_close(struct listener *listener, int grace_ms);

/* The engine thread: waits for something in the queue, or for its end, and runs the handlers meanwhile.
 * expect: before the reply that ends its work. */
void listener_wait(struct listener *listener);
void listener_expect(struct listener *listener);

const char *listener_address(const struct listener *listener);
/* All ranks have come: the id is of no use any more, and a rank that leaves is lost. */
void listener_set_complete(struct listener *listener);
void listener_set_serving(struct listener *listener, bool is_serving);
