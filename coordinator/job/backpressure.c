#include "coordinator/job/backpressure.h"

/* Bytes that are left when a slow client has caught up. */
enum { REST_BYTES = 64 << 10 };

int64_t backpressure_look(struct backpressure *pressure, struct backpressure_progress progress,
                          int64_t now_us)
{
    size_t most = pressure->slow_us ? REST_BYTES : BACKPRESSURE_BYTES;
    if (progress.n_waiting <= most) {
        pressure->slow_us = 0;
        return 0;
    }
    if (!pressure->slow_us || progress.n_read != pressure->n_read) pressure->read_us = now_us;
    if (!pressure->slow_us) pressure->slow_us = now_us;
    pressure->n_read = progress.n_read;
    return now_us - pressure->read_us;
}
