/* Tools of a round: the target, drafters, planner, scheduler and others. */
#pragma once

#include "coordinator/draft/appended.h"
#include "coordinator/schedule/scheduler.h"
#include "coordinator/signals/acceptance_watch.h"
#include "coordinator/signals/signals.h"

/* All lent. */
struct round_tools {
    struct target *target;
    struct drafters *drafters;
    const struct appended *appended;
    struct block_pool *target_pool;
    struct planner *planner;
    struct scheduler *scheduler;
    const struct tokenizer *tok;
    struct signals *signals;
    struct acceptance_watch *watches; /* [N_DRAFTERS] of draft models; NULL: nobody watches */
    /* As in struct engine_options: called before the draft works, and once a step is on its way. */
    void (*flush_answers)(void *arg, bool has_time);
    void *flush_arg;
};
