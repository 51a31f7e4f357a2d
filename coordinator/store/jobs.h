/* The jobs that clients have submitted, each with its answer so far: a list of encoded messages, as
 * Generate would stream them. Doors submit, read and cancel; the engine's answers come in through
 * coordinator/store/stored_reply.h. Everything is in memory: ended jobs are kept until the options'
 * limits are reached, oldest first out, and a job that has not ended is never dropped. Locked
 * inside; any thread. */
#pragma once

#include "base/text/buffer.h"
#include "coordinator/store/job_info.h"

struct jobs;

int jobs_open(struct jobs **jobs, const struct jobs_options *options, struct error *err);
void jobs_close(struct jobs *jobs);

/* Says whether the engine serves new jobs. If not, jobs_submit refuses them with the reason `why`,
 * which is copied. A new store accepts jobs. */
void jobs_set_serving(struct jobs *jobs, bool is_serving, const char *why);

/* *existed: the key is that of an earlier job, which *info tells of. Otherwise there is a new job,
 * and the caller says with jobs_admit whether the engine has it. The key of a job that ended
 * through the service's fault (job_end_is_of_service) is free again.
 * Errors: ERR_ARGUMENT the key belongs to another request, ERR_EXHAUSTED no ended job can make
 * room, ERR_UNAVAILABLE a job with this key is being admitted at this moment, or no new job would
 * be served, ERR_NO_MEMORY. */
int jobs_submit(struct jobs *jobs, const struct job_submission *submission, struct job_info *info,
                bool *existed, struct error *err);
/* Looks only: *existed is false when the key is free. Errors: as above. */
int jobs_find_key(struct jobs *jobs, const struct job_submission *submission, struct job_info *info,
                  bool *existed, struct error *err);
/* is_admitted false: the job is forgotten, so that its key may be tried again. */
void jobs_admit(struct jobs *jobs, uint64_t number, bool is_admitted);

/* The jobs of others are as if they were not there. Where nobody has to say who he is, the owner is
 * "" of all jobs and callers.
 * Errors: ERR_NOT_FOUND, with what may have happened to the job. */
int jobs_find(struct jobs *jobs, const char *owner, const char *id, struct job_info *info,
              struct error *err);

/* Up to n of the owner's jobs before the number `before` (UINT64_MAX: from the newest on), newest
 * first, of one state or any. *is_last: no older one is left. Returns how many. */
int jobs_list(struct jobs *jobs, const char *owner, uint64_t before, enum job_state state,
              struct job_info *infos, int n, bool *is_last);

/* Marks the job; the engine ends it soon. Does nothing when it has ended. Errors: ERR_NOT_FOUND. */
int jobs_cancel(struct jobs *jobs, const char *owner, const char *id, struct job_info *info,
                struct error *err);
bool jobs_is_cancelled(struct jobs *jobs, uint64_t number);

/* How many jobs are kept and what they occupy. Waits for nobody. */
void jobs_size(const struct jobs *jobs, int *n_jobs, size_t *n_bytes);

/* ---- the answer ---- */

void jobs_start(struct jobs *jobs, uint64_t number);
/* Copies the message; first_token is filled in by the store.
 * Errors: ERR_EXHAUSTED the limit is reached and no ended job is left to drop, ERR_NO_MEMORY. */
int jobs_append(struct jobs *jobs, uint64_t number, const struct job_message *message,
                struct error *err);
/* code 0: the answer is whole. */
void jobs_end(struct jobs *jobs, uint64_t number, enum job_end end, int code, const char *text);

/* Copies message `position` of an answer into buf; *is_there is false when it has not come yet, or,
 * as info then tells, will not. Errors: ERR_NOT_FOUND, ERR_NO_MEMORY. */
int jobs_read(struct jobs *jobs, const char *id, size_t position, struct buffer *buf,
              struct job_message *message, bool *is_there, struct job_info *info,
              struct error *err);

/* Waits until something has changed since `seen` or the deadline has passed; returns what to wait
 * for next time. */
uint64_t jobs_wait(struct jobs *jobs, uint64_t seen, int64_t deadline_us);
/* Lets jobs_wait return. */
void jobs_wake(struct jobs *jobs);
