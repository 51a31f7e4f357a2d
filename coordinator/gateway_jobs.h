/* Handlers of the methods about stored jobs: Submit, Watch, Get, List, Cancel. */
#pragma once

#include "coordinator/admission.h"
#include "coordinator/jobs.h"
#include "rpc/method.h"

struct gateway_jobs;

/* keeps admission, jobs and the buffer, which the engine thread alone uses. Who watches a job may
 * read nothing for reader_timeout_us. */
int gateway_jobs_open(struct gateway_jobs **gateway, struct admission *admission, struct jobs *jobs,
                      struct buffer *buffer, int64_t reader_timeout_us, struct error *err);
void gateway_jobs_close(struct gateway_jobs *gateway);

struct rpc_service gateway_jobs_service(struct gateway_jobs *gateway);
