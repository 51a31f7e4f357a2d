/* Clients that watch stored jobs: a thread sends each of them what its job's answer has more, so
 * that the engine never meets a client that reads slowly. A client's buffer is bounded, and one
 * that does not read for a while is ended; it may come back with the token that it has reached. */
#pragma once

#include "coordinator/job/response_stream.h"
#include "coordinator/store/jobs.h"

struct job_watch; /* locked inside */

struct job_watch_options {
    int64_t
        reader_timeout_us; /* in which a slow client must read (coordinator/job/backpressure.h) */
    int64_t idle_us;       /* after so long without a message the stream is told (idle) */
};

/* keeps jobs. Errors: ERR_NO_MEMORY. */
int job_watch_open(struct job_watch **watch, struct jobs *jobs,
                   const struct job_watch_options *options, struct error *err);
/* Takes no more, and waits until everybody has been sent all that there is of his job and how it
 * ended, at most until deadline_us of clock_now_us. Accepts NULL. */
void job_watch_drain(struct job_watch *watch, int64_t deadline_us);
/* Ends all answers, and takes no more. Accepts NULL. */
void job_watch_end(struct job_watch *watch);
void job_watch_close(struct job_watch *watch);

/* Sends the answer of a job from that message on, and of it from that token of every sequence on,
 * until it has ended, and then ends the answer as the job did.
 * Errors: ERR_UNAVAILABLE shutting down, ERR_NO_MEMORY. */
int job_watch_add(struct job_watch *watch, struct response_stream *stream, const char *id,
                  uint32_t from_token, size_t from_message, struct error *err);
