/* The figures of this process under the names that all Prometheus clients use: process_cpu_seconds
 * _total, process_resident_memory_bytes, process_open_fds and so on. */
#pragma once

#include "base/metrics/metrics.h"

struct metrics_process; /* any thread */

/* Errors: ERR_NO_MEMORY. */
int metrics_process_open(struct metrics_process **process, struct error *err);
void metrics_process_close(struct metrics_process *process);

/* Reads the figures from /proc and appends them; those that cannot be read are 0. Takes some ten
 * microseconds and one for each open file. Errors: ERR_NO_MEMORY. */
int metrics_process_write(struct metrics_process *process, struct buffer *out, struct error *err);
