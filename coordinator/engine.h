/* The engine: takes jobs off the queue, keeps the target connected, runs rounds over its sequences.
 * One thread, which owns everything here. */
#pragma once

#include "base/queue.h"
#include "coordinator/round.h"
#include "coordinator/served_tokens.h"

enum { ENGINE_SEQUENCES = 1 }; /* sequences at once; the engine loops over all of them */

struct engine;

struct engine_options {
    struct target *target;   /* kept, as all of these */
    struct drafter *drafter; /* NULL = none */
    const struct tokenizer *tok;
    struct served_tokens *served; /* NULL = served tokens are not counted */
    struct queue *jobs, *control; /* Generate and Score; Describe */
    /* Called when it may have changed whether a job sent now would be served. */
    void (*set_serving)(void *arg, bool is_serving);
    void *serving_arg;
    enum ahead_mode draft_ahead;
    int n_draft;            /* K of requests that do not say; -1 = by strategy */
    enum strategy strategy; /* of such requests */
    float threshold;
    const char *target_name; /* what clients are told; NULL = as the target names itself */
    const char *draft_name;  /* the same; "" = no draft */
    int draft_support, queue_capacity;
    const char *const *addresses;
    int n_addresses;
};

int engine_open(struct engine **engine, const struct engine_options *options, struct error *err);
void engine_close(struct engine *engine);

/* Runs until the queue of jobs is shut. Errors: ERR_ARGUMENT the first group that answered does not
 * fit (target_connect). */
int engine_run(struct engine *engine, struct error *err);
