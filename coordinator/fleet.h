/* The engines of a coordinator, one for each target group: finds groups, gives each to an engine
 * that has none, and opens a further engine where all have one. */
#pragma once

#include "coordinator/draft/drafters.h"
#include "coordinator/engine/engine.h"

struct certificates; /* access/certificates.h */
struct fleet;

/* The threads that make turns: the engines by their seats, and the search for groups. */
enum { FLEET_SEARCH = GROUPS_MAX, FLEET_THREADS };
extern const char *const fleet_thread_names[FLEET_THREADS];

struct fleet_options {
    struct groups *groups;                /* kept, as all of these */
    const struct target_list *list;       /* where groups are looked for; copied */
    struct certificates *certificates;    /* TLS to the workers; NULL = plain */
    const char *server_name;              /* that theirs must have in place of their addresses' */
    const char *group_key;                /* shown to them; NULL = none */
    struct engine_options engine;         /* of each; without target, drafters, jobs and seat */
    struct drafter *const *models;        /* [n_models] draft models of the first engine */
    const struct drafter_options *drafts; /* [n_models] of those of further ones */
    int n_models;
    struct lookup_options lookup;
    uint64_t tokenizer_fingerprint;
    int step_timeout_s;
    int n_groups; /* that are used at a time at most */
    int cpu;      /* that the first engine's thread is pinned to; -1 = none */
    int queue_capacity;
};

/* Opens and starts the first engine. Errors: those of its parts. */
int fleet_open(struct fleet **fleet, const struct fleet_options *options, struct error *err);
/* Waits until all engines have ended, if fleet_run has not: they call the options' functions until
 * then. Accepts NULL, as fleet_close. */
void fleet_end(struct fleet *fleet);
void fleet_close(struct fleet *fleet);

/* Serves until fleet_stop, and waits for what was accepted. Errors: ERR_ARGUMENT the first group
 * that answered does not fit, or --target can never lead to one; ERR_NO_MEMORY. */
int fleet_run(struct fleet *fleet, struct error *err);

/* No engine takes further jobs. Any thread. */
void fleet_stop(struct fleet *fleet);
