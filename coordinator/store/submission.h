/* A request that goes on without its client: it becomes a job whose answer is kept in the store
 * (coordinator/store/jobs.h). What all doors do for it. */
#pragma once

#include "coordinator/job/intake.h"
#include "coordinator/store/jobs.h"

/* Within the work of an intake: queues the request, or finds the job that its key belongs to, which
 * *existed says. key: of idempotency, "" = none. The task's refusal counts as the end of a job
 * until there is one. Errors: those of job_hold_grant, admission_fill_generate, jobs_submit and
 * intake_submit_take. */
int submission_make(struct intake_task *task, struct jobs *jobs,
                    const struct generate_request *request, const char *key, struct job_info *info,
                    bool *existed, struct error *err);
