/* Handlers of the methods about stored jobs: Submit, Watch, Get, List, Cancel. */
#pragma once

#include "coordinator/job/admission.h"
#include "coordinator/store/job_watch.h"
#include "rpc/method.h"

struct gateway_jobs;

/* Keeps all that it is given. Errors: ERR_NO_MEMORY. */
int gateway_jobs_open(struct gateway_jobs **gateway, struct admission *admission, struct jobs *jobs,
                      struct job_watch *watch, struct error *err);
void gateway_jobs_close(struct gateway_jobs *gateway);

struct rpc_service gateway_jobs_service(struct gateway_jobs *gateway);
