/* The report on a job that has ended: figures for the metrics and a line of the log. It holds ids,
 * and nothing of the prompt or the answer. Plain data. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/signals/job_origin.h"
#include "proto/job_end.h"

enum { JOB_CLIENT_BYTES = 129 };

/* The work that was done for a job, over all its sequences. */
struct job_work {
    int n_tokens;  /* that were committed */
    int n_reused;  /* tokens of the prompt that the target had read already, for the first one */
    int n_rounds;  /* shares of rounds */
    int n_drafted; /* guesses */
    int n_accepted, n_rejections;
};

struct job_report {
    char request_id[JOB_REQUEST_BYTES], client[JOB_CLIENT_BYTES];
    struct job_origin origin;
    bool is_score; /* it was for scores, not for texts */
    enum job_end end;
    struct error failure; /* code 0: the answer was complete */
    int n_prompt;
    struct job_work work;
    /* Since the job came; -1 = it did not get there. */
    int64_t queue_us, first_token_us, total_us;
};
