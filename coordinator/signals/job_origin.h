/* Where a job comes from, as its door knows it: for the log, so that a line can be found from the
 * client's side. Each field is bounded and holds nothing but what is checked here. Plain data; zero
 * it before use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { JOB_REQUEST_BYTES = 129, JOB_TRACE_BYTES = 33, JOB_STORED_BYTES = 64 };

struct job_origin {
    char request_id[JOB_REQUEST_BYTES]; /* of the header x-request-id; "" = none */
    char trace_id[JOB_TRACE_BYTES];     /* of the header traceparent; "" = none */
    char stored_id[JOB_STORED_BYTES];   /* of a submitted job; "" = it was not submitted */
};

/* Both leave out blanks around the value. */

/* Takes over an x-request-id: at most 128 bytes of it, with '_' in place of what is not printable
 * ASCII, and of quotes and backslashes. */
void job_origin_set_request(struct job_origin *origin, const char *text, size_t len);

/* Takes over the trace's id of a traceparent (W3C Trace Context, level 1): version, 32 hex digits
 * of the trace, 16 of the parent, flags. False, and nothing is taken: it is not one. */
bool job_origin_set_trace(struct job_origin *origin, const char *text, size_t len);
