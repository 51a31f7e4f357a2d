/* Handlers of the gRPC service Generation. They run on the server's network thread, which
 * hands each message to the pool (coordinator/job/intake.h). There it is decoded and admitted as
 * a job (coordinator/job/admission.h); the engine thread answers (coordinator/job/sent_reply.h). */
#pragma once

#include "coordinator/job/admission.h"

struct gateway;
struct job_watch;
struct jobs;
struct keys;
struct sender;

struct gateway_options {
    const char *address;
    struct certificates *certificates; /* kept, as the next one; NULL = plain */
    struct keys *keys;                 /* NULL: everybody may call */
    struct admission *admission;       /* kept, as the next one */
    struct jobs *jobs;
    struct job_watch *watch;
    struct sender *sender;
};

int gateway_open(struct gateway **gateway, const struct gateway_options *options,
                 struct error *err);
/* Jobs that are left can only be freed after this. */
void gateway_close(struct gateway *gateway, int grace_ms);

const char *gateway_address(const struct gateway *gateway);

/* Tells health checks that a request sent now would be generated, or would not. Any thread. */
void gateway_set_serving(struct gateway *gateway, bool is_serving);
/* Sets the health "live": the process makes progress. */
void gateway_set_live(struct gateway *gateway, bool is_live);
