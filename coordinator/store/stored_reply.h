/* The reply of a job that nobody waits for: what the engine sends goes into the store. */
#pragma once

#include "coordinator/job/job.h"
#include "coordinator/store/jobs.h"

/* keeps jobs. The job has the number that jobs_submit gave. Errors: ERR_NO_MEMORY. */
int stored_reply_open(struct reply **reply, struct jobs *jobs, uint64_t number, struct error *err);
