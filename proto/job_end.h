/* How a job ends, and where it is until then: what is counted and what clients are told. */
#pragma once

#include <stdbool.h>

/* The engine writes it into the reply before it calls done or fail. */
enum job_end {
    JOB_END_STOP, /* end of sequence, stop string, stop token */
    JOB_END_LENGTH,
    JOB_END_ANSWERED, /* a text was scored, a description sent */
    JOB_END_CANCELLED,
    JOB_END_DEADLINE,
    JOB_END_REFUSED,     /* the request made no sense, or can never fit */
    JOB_END_FAILED,      /* its own part of a step failed */
    JOB_END_UNAVAILABLE, /* the group was lost */
    JOB_END_SLOW_READER,
    JOB_END_SHUTDOWN,
    JOB_ENDS
};

/* "stop", "length", ... */
extern const char *const job_end_names[JOB_ENDS];

/* True if the request itself may well succeed when it is sent again, because it was the service
 * that failed. */
bool job_end_is_of_service(enum job_end end);

enum job_state { JOB_STATE_ANY, JOB_STATE_WAITING, JOB_STATE_RUNNING, JOB_STATE_ENDED, JOB_STATES };

/* "any", "waiting", "running", "ended" */
extern const char *const job_state_names[JOB_STATES];
