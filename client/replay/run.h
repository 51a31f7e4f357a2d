/* Rounds over recorded texts, as the coordinator makes them: the planner
 * (speculation/planner/planner.h) chooses between no guesses and what the drafters offer, and
 * learns from what stays. */
#pragma once

#include "client/recorded_texts.h"
#include "client/replay/drafters.h"
#include "speculation/planner/planner.h"

/* Times of a round without guesses' own time: a step of n rows, and all that is around it. */
struct replay_times {
    double step_us[DRAFT_MAX + 2], rest_us[DRAFT_MAX + 2]; /* [rows]; [0] is not used */
};

struct replay_figures {
    int64_t n_texts, n_tokens, n_rounds;
    int64_t n_offered[N_REPLAY_FINDERS]; /* rounds with something found, by drafter */
    int64_t n_chosen[N_REPLAY_FINDERS];  /* rounds whose guesses were its */
    int64_t tested[N_REPLAY_FINDERS][DRAFT_MAX], accepted[N_REPLAY_FINDERS][DRAFT_MAX];
    double round_us; /* all rounds by the times, and the measured time of the drafters */
    double plain_us; /* the same tokens without guesses */
};

/* The texts are the target's greedy answers: a guess stays where it is what the text says. The
 * store learns each text when it is finished. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED. */
int replay_run(const struct recorded_texts *texts, struct replay_drafter *drafters, int n_drafters,
               const struct replay_times *times, struct replay_figures *figures, struct error *err);
