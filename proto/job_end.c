/* Names of how a job ends and where it is. */
#include "proto/job_end.h"

const char *const job_end_names[JOB_ENDS] = {
    [JOB_END_STOP] = "stop",
    [JOB_END_LENGTH] = "length",
    [JOB_END_ANSWERED] = "answered",
    [JOB_END_CANCELLED] = "cancelled",
    [JOB_END_DEADLINE] = "deadline",
    [JOB_END_REFUSED] = "refused",
    [JOB_END_FAILED] = "failed",
    [JOB_END_UNAVAILABLE] = "unavailable",
    [JOB_END_SLOW_READER] = "slow reader",
    [JOB_END_SHUTDOWN] = "shutdown",
};

bool job_end_is_of_service(enum job_end end)
{
    return end == JOB_END_FAILED || end == JOB_END_UNAVAILABLE || end == JOB_END_SHUTDOWN;
}

const char *const job_state_names[JOB_STATES] = {
    [JOB_STATE_ANY] = "any",
    [JOB_STATE_WAITING] = "waiting",
    [JOB_STATE_RUNNING] = "running",
    [JOB_STATE_ENDED] = "ended",
};
