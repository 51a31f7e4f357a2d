/* Admission: what every door does with a request that it has decoded. The text becomes ids, and the
 * job goes into a bounded queue or is refused at once. Any thread; immutable after it is filled. */
#pragma once

#include "base/queue.h"
#include "coordinator/job.h"

struct admission {
    const struct tokenizer *tok; /* kept, as the queues */
    struct queue *jobs;          /* JOB_GENERATE and JOB_SCORE */
    struct queue *control;       /* JOB_DESCRIBE, which is answered between two rounds */
    int max_prompt_bytes;
};

/* Fills job->prompt from the request that is in the job: the ids given, or the ids of its text.
 * Errors: ERR_ARGUMENT an id is outside of the vocabulary, or the text is too long; those of
 * tokenizer_encode. */
int admission_fill_prompt(const struct admission *admission, struct job *job, struct error *err);

/* Refuses what a request may say but the engine does not serve yet: it is never ignored.
 * Errors: ERR_UNSUPPORTED the field and its value. */
int admission_check_served(const struct generate_request *req, struct error *err);

/* Hands the job over to the engine thread. Errors: ERR_EXHAUSTED too many requests are waiting,
 * ERR_UNAVAILABLE the coordinator is shutting down; the job stays the caller's then. */
int admission_submit_take(const struct admission *admission, struct job *job, struct error *err);
