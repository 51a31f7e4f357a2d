/* A client that reads its answer more slowly than it is made. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes that may wait for a client before its text pauses. */
enum { BACKPRESSURE_BYTES = 256 << 10 };

/* Bytes of an answer that wait for the client, and that it has read since the answer began. */
struct backpressure_progress {
    size_t n_waiting;
    uint64_t n_read;
};

/* Zero it. */
struct backpressure {
    int64_t slow_us; /* since when too much waits for it; 0 = it keeps up */
    int64_t read_us; /* while it is slow: when it last read something ... */
    uint64_t n_read; /* ... and all that it had read then */
};

/* Notes how far the client is at now_us (of clock_now_us). It is slow once more than
 * BACKPRESSURE_BYTES wait, until at most a quarter of that does. Returns for how long it has read
 * nothing, in us; 0 while it keeps up. */
int64_t backpressure_look(struct backpressure *pressure, struct backpressure_progress progress,
                          int64_t now_us);
