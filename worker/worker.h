/* One rank of the target: opens everything, then runs steps until it is told to stop. */
#pragma once

#include "base/error.h"
#include "base/system/placement.h"
#include "model/backend/open.h"
#include "worker/group.h"

struct worker;

/* For an end without a drain, or after it. mpirun kills one second after SIGTERM, too soon for
 * MPI_Finalize. */
enum { WORKER_STOP_GRACE_MS = 500 };

struct worker_options {
    const char *model; /* folder or synthetic:... */
    const char *head;  /* folder of a head whose fc is applied to features; NULL = none */
    struct group_options group;
    struct backend_options backend; /* the group sets its rank */
    struct placement_wish pin_wish; /* only pin, n_cpus and cpus count */
    int n_slots;
    int kv_tokens;     /* positions of KV, of all sequences; 0: the default */
    double gpu_memory; /* share of the GPU's memory that KV fills up; 0: kv_tokens counts */
    int max_step_tokens, max_step_rows;
    int step_timeout_s;
    bool is_strict;      /* keys of config.json that nobody knows are an error */
    int drain_timeout_s; /* for a coordinator to let go of a rank that is to stop */
    const char *metrics; /* HOST:PORT of /metrics and probes, as for --listen; NULL = nowhere */
};

/* Joins the group, loads this rank's shard, and serves. Errors: those of all parts. */
int worker_open(struct worker **worker, const struct worker_options *options, struct error *err);

/* Runs steps until worker_stop, in the calling thread, which is the one that opened the worker
 * (MPI).
 * Errors: ERR_UNAVAILABLE the group is broken, and the process must exit with a status other than
 * 0. */
int worker_run(struct worker *worker, struct error *err);

/* Ends worker_run. While a coordinator has a stream, first tells it that this rank does not serve
 * any more, and waits until it has let go or drain_timeout_s is over; steps run meanwhile. From any
 * other thread, once. */
void worker_stop(struct worker *worker);

void worker_close(struct worker *worker);
