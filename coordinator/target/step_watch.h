/* How long the coordinator waits for a step: when a step is overdue, and when a rank that does not
 * answer is taken to hang (proto/step_limit.h). Time in which the coordinator itself did not look
 * does not count, because the whole machine may have been paused. Pure arithmetic; owned by the
 * engine thread. */
#pragma once

#include <stdbool.h>

#include "proto/step_limit.h"

enum {
    STEP_OVERDUE_US = 2000000, /* beyond what the step was expected to take */
    STEP_SEEN_US = 200000,     /* that count between two looks at most */
    STEP_BYTES_PER_US = 1      /* of long answers, at least, even over a slow link */
};

struct step_watch {
    struct step_limit limit;
    struct step_work work;
    int64_t expected_us;          /* -1 = not known */
    int64_t overdue_us, limit_us; /* INT64_MAX = never */
    int64_t waited_us, seen_us;
};

/* Nothing is known of the steps of a group. most_us: --step-timeout. */
void step_watch_init(struct step_watch *watch, int64_t most_us);

/* The step is sent, at now_us. d: the group. */
void step_watch_begin(struct step_watch *watch, const struct step *step,
                      const struct target_description *d, int64_t now_us);
/* Its answer is not there yet. */
void step_watch_look(struct step_watch *watch, int64_t now_us);
/* The step takes longer than expected by so much that a group which does not hang has something
 * else to do; false while nothing is known of such steps. */
bool step_watch_is_overdue(const struct step_watch *watch);
/* A rank that has not answered yet is taken to hang. */
bool step_watch_is_over(const struct step_watch *watch);
/* All ranks have answered; took_us: since the beginning. */
void step_watch_end(struct step_watch *watch, int64_t took_us);
