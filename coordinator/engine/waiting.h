/* The jobs that wait for a place, in the order in which they are served. Jobs that lost their
 * place (push_front) come first, by arrival, but for those set aside. All others share by weight:
 * among the classes of proto/generation_wire.h, and inside a class among the clients, by deficit
 * round robin (Shreedhar and Varghese 1995) over tokens. A client's own jobs are first come first
 * served. Nobody starves: in each turn a client gets at least a quantum of tokens. Deterministic.
 * Owned by the engine thread; all memory is taken at open, and nothing stays of a client that has
 * no job here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/generation_wire.h"

enum {
    WAITING_QUANTUM_TOKENS = 512, /* that a client of weight 1 gets in a turn */
    WAITING_WEIGHT_MAX = 1000,
    WAITING_WEIGHTS_MAX = 256, /* clients with a weight of their own */
    WAITING_COST_MAX = 1 << 24 /* a job counts at most as many tokens */
};

struct waiting;

struct waiting_options {
    int capacity;                   /* of jobs that were pushed */
    int n_returned;                 /* at most so many come back by push_front on top of that */
    int class_weights[JOB_CLASSES]; /* 0 = default: high 4, normal 2, low 1 */
};

/* A job as the queue sees it. `item` is the caller's and is not touched; it is here once. */
struct waiting_job {
    void *item;
    enum job_class job_class;
    const char *client; /* "" = the share of everybody without a name; lent while it is here */
    int64_t n_tokens;   /* prompt and longest answer; at least 1 is counted */
    uint64_t arrival;   /* orders those that come back; ascending with the time */
    int weight;         /* of the client from now on; 0: what waiting_set_weight said, or 1 */
};

int waiting_open(struct waiting **waiting, const struct waiting_options *options,
                 struct error *err);
/* The items stay the caller's. Accepts NULL. */
void waiting_close(struct waiting *waiting);

/* Sets a client's weight in relation to others of its class; default 1. The name is copied.
 * Errors: ERR_ARGUMENT the weight is not 1 to WAITING_WEIGHT_MAX; ERR_EXHAUSTED too many clients
 * have one; ERR_NO_MEMORY. */
int waiting_set_weight(struct waiting *waiting, const char *client, int weight, struct error *err);

/* Errors: ERR_EXHAUSTED the queue is full. */
int waiting_push(struct waiting *waiting, const struct waiting_job *job, struct error *err);

/* A job that had a place and lost it: it comes before all that never had one, and its tokens are
 * not charged again. Errors: ERR_EXHAUSTED more than n_returned of them are here. */
int waiting_push_front(struct waiting *waiting, const struct waiting_job *job, struct error *err);

/* Returns the next job; NULL: there is none. The same job until it is popped or removed, or one
 * comes back. */
void *waiting_peek(struct waiting *waiting);
/* Takes it out and charges its share. NULL: nobody. */
void *waiting_pop(struct waiting *waiting);

/* A job that came back is passed over as long as it is set aside, though it is still here. Items
 * that were pushed, or are not here, are left alone. */
void waiting_set_aside(struct waiting *waiting, const void *item, bool is_aside);

/* Takes a job out, wherever it is, without a charge: O(1). False: it is not here. */
bool waiting_remove(struct waiting *waiting, const void *item);

int waiting_count(const struct waiting *waiting);          /* those set aside included */
int waiting_count_returned(const struct waiting *waiting); /* the same, of those that came back */
int waiting_count_aside(const struct waiting *waiting);
int waiting_class_count(const struct waiting *waiting, enum job_class job_class);

/* All jobs, in the order of their pushes: *at = 0 first; returns NULL after the last. The job that
 * was returned last may be removed, no other. */
void *waiting_next(const struct waiting *waiting, int *at);
