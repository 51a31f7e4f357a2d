/* The rank's gRPC side: answers Describe and health, and takes steps off the Run stream into a
 * queue for the engine thread. The engine thread runs the handlers itself while it waits, so a step
 * begins on the thread that has read it. It serves one coordinator at a time. */
#pragma once

#include "base/threads/beat.h"
#include "base/threads/queue.h"
#include "base/threads/watchdog.h"
#include "proto/target_wire.h"
#include "rpc/server.h"

struct listener;

/* How long a step may still take when its coordinator is gone. */
enum { LISTENER_ORPHAN_US = 2000000 };

/* The events that the engine thread pops. */
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
    struct queue *queue; /* kept and fed */
    struct beat *beat;   /* kept; marked by the engine thread while it waits; NULL = none */
    /* kept; if the coordinator goes away during a step, the deadline is moved nearer, because a
     * step that only some ranks have received would never end */
    struct watchdog *dog;
    /* a handler, for when a rank's Stay stream has ended (worker/lead_watch.h) */
    void (*on_rank_lost)(void *arg);
    void *arg;
    const uint8_t *member_pass; /* [WIRE_MEMBER_PASS_BYTES] of ranks that hold such streams here */
    int n_members;              /* how many may; 0 = none, until listener_expect_members */
    const struct buffer *conventions;  /* kept; what DescribeConventions answers; NULL = nothing */
    struct certificates *certificates; /* kept; NULL = plain */
    const char *run_names;             /* whose certificates open Run (rpc_call_client_is); kept */
    struct group_key *key;             /* kept; NULL = everybody may call */
};

/* Answers at address, as a group that is still starting until listener_set_serving: Describe says
 * busy and, until listener_set_complete, offers the NCCL id if there is one; streams are
 * refused. */
int listener_open(struct listener **listener, const char *address,
                  const struct target_description *description,
                  const struct listener_options *options, struct error *err);
void listener_close(struct listener *listener, int grace_ms);

/* The engine thread waits for an item in the queue, or for the queue's end, and runs the handlers
 * meanwhile. It calls listener_expect before it sends the reply that ends its work. */
void listener_wait(struct listener *listener);
void listener_expect(struct listener *listener);

const char *listener_address(const struct listener *listener);
/* n ranks will hold Stay streams here. Before they call. */
void listener_expect_members(struct listener *listener, int n);
/* All ranks have joined: the id is not offered any more, and a rank that leaves counts as lost. */
void listener_set_complete(struct listener *listener);
/* This rank is about to leave, so a rank that leaves is no loss. Any thread. */
void listener_set_leaving(struct listener *listener);
/* Sets the description that Describe answers while the group serves, now that the weights are
 * loaded. Called before listener_set_serving. Errors: ERR_NO_MEMORY. */
int listener_describe(struct listener *listener, const struct target_description *description,
                      struct error *err);
void listener_set_serving(struct listener *listener, bool is_serving);

/* The health of the name "live", which is true from the start. Any thread. */
void listener_set_live(struct listener *listener, bool is_live);

/* The rank will end: its health says that it does not serve, Describe that it is busy, no stream is
 * taken any more, and ranks that leave are not lost. The stream that is open is served on. Returns
 * whether there is one. Once, by any thread. */
bool listener_drain(struct listener *listener);
/* After that, waits for the end of the stream. False when the deadline (clock_now_us) comes
 * first. */
bool listener_wait_drained(struct listener *listener, int64_t deadline_us);
