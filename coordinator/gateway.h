/* The gRPC door: validates requests, turns text into ids, and puts jobs on a bounded queue. Its
 * handlers run on the server's network thread; the engine thread answers
 * (coordinator/grpc_reply.h). */
#pragma once

#include "base/queue.h"
#include "coordinator/job.h"

struct gateway;

struct gateway_options {
    const char *address;
    const struct tokenizer *tok; /* kept */
    struct queue *jobs;          /* kept: Generate and Score */
    struct queue *control;       /* kept: Describe */
    int max_prompt_bytes;
};

int gateway_open(struct gateway **gateway, const struct gateway_options *options,
                 struct error *err);
/* Jobs that are left can only be freed after this. */
void gateway_close(struct gateway *gateway, int grace_ms);

const char *gateway_address(const struct gateway *gateway);

/* What health checks are told: serving means that a request sent now would be generated. Any
 * thread. */
void gateway_set_serving(struct gateway *gateway, bool is_serving);
