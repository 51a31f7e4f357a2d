/* A request on its way through the coordinator. */
#include "coordinator/job.h"

#include <stdlib.h>

void job_free(struct job *job)
{
    if (!job) return;
    if (job->call) rpc_call_unref(job->call);
    token_ids_free(&job->prompt);
    arena_close(&job->arena);
    free(job);
}
