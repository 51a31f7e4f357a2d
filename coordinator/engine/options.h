/* The engine's parts and options, as it is given them at its start. */
#pragma once

#include "base/threads/beat.h"
#include "base/threads/queue.h"
#include "coordinator/draft/appended.h"
#include "coordinator/draft/staged.h"
#include "coordinator/draft/trees_option.h"
#include "coordinator/engine/served_tokens.h"
#include "coordinator/job/admission.h"
#include "coordinator/job/groups.h"
#include "coordinator/job/served_chat.h"
#include "coordinator/signals/reporter.h"

enum { ENGINE_SEQUENCES_DEFAULT = 64 };

struct engine_options {
    struct target *target; /* kept, as all of these */
    struct drafters *drafters;
    const struct tokenizer *tok;
    struct served_tokens *served; /* NULL = served tokens are not counted */
    struct groups *groups;        /* of all engines */
    int seat;                     /* of this one among them */
    struct beat *beat;            /* marked at every turn, as thread `seat` */
    struct queue *jobs, *control; /* Generate and Score, of this engine; Describe, of all */
    struct signals *signals;      /* everything that is counted */
    struct reporter *reporter;    /* told of jobs that have ended */
    struct admission *admission;  /* told of the group's vocabulary, and of jobs that have begun */
    /* Lets answers leave that are complete; has_time: as in sender_flush. */
    void (*flush_answers)(void *arg, bool has_time);
    void *flush_arg;
    /* A group that is about to serve says this beside its description; NULL: nobody asks. */
    void (*take_conventions)(void *arg, const struct target_conventions *conventions);
    void *conventions_arg;
    bool ignores_generation_config;    /* its numbers of sampling are no defaults */
    const char *const *client_weights; /* [n_client_weights] "NAME=W" */
    int n_client_weights;
    int n_sequences;      /* that have a place at a time, at most SEQUENCES_MAX */
    double step_stretch;  /* coordinator/schedule/scheduler.h */
    int64_t calibrate_us; /* for measuring a new pair between requests; 0 = not at all */
    enum staged_mode draft_staged;
    enum append_mode lookup_append;
    int64_t drain_us;          /* for what was accepted, once the queue of jobs is shut */
    int64_t reader_timeout_us; /* a client that does not read at all for so long is ended */
    int n_draft;               /* K of requests that do not say; -1 = by strategy */
    enum strategy strategy;    /* of such requests */
    float threshold;
    struct trees trees;                /* of guesses of the planner */
    const struct tree_rule *tree_rule; /* of requests that name none; NULL = auto */
    struct served_chat *chat;          /* for prompts of a head's proof; NULL = none */
    bool head_unchecked;               /* a head guesses at once, without a proof */
    const char *pack_cache; /* where measured times are kept: NULL or "off", "auto", a folder */
    /* Draft models as the options name them, by number; the first one may be "none", and where
     * there is no further one it is NULL. */
    const char *drafts[PLANNER_MODELS];
    const char *target_name; /* what clients are told; NULL = as the target names itself */
    const char *draft_name;  /* the same; "" = no draft */
    int draft_support, queue_capacity;
};
