/* Handlers of the methods about stored jobs: Submit, Watch, Get, List, Cancel. */
#pragma once

#include "coordinator/admission.h"
#include "coordinator/jobs.h"
#include "rpc/method.h"

struct gateway_jobs;

/* keeps admission, jobs and the buffer, which the engine thread alone uses. */
int gateway_jobs_open(struct gateway_jobs **gateway, struct admission *admission, struct jobs *jobs,
                      struct buffer *buffer, struct error *err);
void gateway_jobs_close(struct gateway_jobs *gateway);

struct rpc_service gateway_jobs_service(struct gateway_jobs *gateway);
