/* Rounds of a head over recorded texts with the target's features (`outrider record`), as the
 * coordinator makes them with a fixed K: none for the first token, then K guesses a round, of which
 * those stay that the text says. The only part of a replay that computes with a model. */
#pragma once

#include "client/replay/run.h"
#include "model/backend/open.h"

struct replay_head_options {
    const char *head, *target; /* folders; the target lends what the head lacks */
    struct backend_options backend;
    int n_draft; /* K, 1 to DRAFT_MAX */
    const struct replay_times *times;
};

struct replay_head_figures {
    int64_t n_texts, n_tokens, n_rounds, n_guessed;
    int64_t tested[DRAFT_MAX], accepted[DRAFT_MAX];
    double busy_us;            /* all passes of the head */
    double round_us, plain_us; /* as in struct replay_figures */
};

/* Adds up all files. Errors: those of opening head and target, ERR_FORMAT a file is no recording of
 * this target, ERR_UNSUPPORTED it lacks features that the head reads, or is too long. */
int replay_head_run(const struct replay_head_options *options, const char *const *files,
                    int n_files, struct replay_head_figures *figures, struct error *err);
