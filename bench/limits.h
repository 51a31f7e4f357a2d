/* Measures the bounds of a computation on the CPU: it must read its weights (or its KV) once, and
 * it must multiply. Neither can be faster than this machine reads and multiplies in the same
 * minutes with as many threads: the best loop of bench/bench_read.h over memory that is as cold as
 * the computation's own, and the loop over registers of bench/peaks.h. The limit is the longer of
 * the two times; the share is this time over the one that was measured. A share of reading can be a
 * little above 1, because a kernel's prefetch may suit the machine better than that of any loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/bench_util.h"
#include "bench/peaks.h"
#include "model/checkpoint/config/config.h"

/* ---- computed from measured rates ---- */

/* One unit of work: what it must read at least, and multiply. Zero gigabytes: all of it is in the
 * cache. */
struct bench_cost {
    double gb, gflop;
};

enum bench_bound { BOUND_READING, BOUND_MULTIPLYING };

/* "reading", "multiplying" */
const char *bench_bound_name(enum bench_bound bound);

/* The least time of a unit at these rates, and which of the two it is. */
double bench_limit_seconds(struct bench_cost cost, double gb_per_s, double gflop_per_s,
                           enum bench_bound *bound);

struct bench_share {
    enum bench_bound bound; /* that applied in most rounds */
    struct sample_quartiles ratio;
};

/* Rates of n rounds: units, gigabytes and gigaflop per second, round i of each at the same time.
 * gb_per_s may be NULL if cost.gb is 0. */
struct bench_share bench_share(struct bench_cost cost, const double *units_per_s,
                               const double *gb_per_s, const double *gflop_per_s, int n);

/* The cost of a step that feeds n_tokens and wants the logits of n_rows of them: two operations for
 * each weight. Attention is not counted, though its time is. */
struct bench_cost bench_step_cost(const struct model_config *cfg, size_t weight_bytes, int n_tokens,
                                  int n_rows);

/* ---- measured ---- */

/* A team that reads and multiplies. Memory is divided into portions. Everyone who uses the memory
 * takes the next portion, so that whatever is read was used longest ago. */
struct bench_limits {
    struct team *team;
    const struct bench_peak *peak;
    const uint8_t *data;
    size_t portion_bytes;
    int n_portions, next;
    int read; /* the loop of bench_read.h */
    uint8_t *own;
    size_t own_bytes;
};

/* Errors: bench_peak_find's, team_open's. */
int bench_limits_open(struct bench_limits *l, int n_threads, const char *kernels,
                      enum weight_form form, struct error *err);
void bench_limits_close(struct bench_limits *l);

/* The memory to read: n_portions of portion_bytes, a multiple of 256. Keeps data. */
void bench_limits_lend(struct bench_limits *l, const void *data, size_t portion_bytes,
                       int n_portions);
/* Memory of its own to read in place of `bytes` bytes of weights that it cannot see: as much, so
 * that as large a part of it stays in the cache, but not more than bench_cold_bytes(2 GiB).
 * Errors: ERR_NO_MEMORY. */
int bench_limits_fill(struct bench_limits *l, size_t bytes, struct error *err);

/* Chooses the best reading loop and prints a line on each limit. */
void bench_limits_show(struct bench_limits *l, int64_t slice_us);

/* The number of the next portion, and moves on. */
int bench_limits_next(struct bench_limits *l);

/* Arms (timed_arm_fn): gigabytes read, gigaflop multiplied. */
double bench_limits_read(void *limits);
double bench_limits_multiply(void *limits);

/* Bytes of the last-level caches that this process can use; 0: not known. */
size_t bench_cache_bytes(void);
/* Memory that is mostly cold when its turn comes again: twice the last-level cache, but at least
 * `least` and at most a quarter of the machine's memory. */
size_t bench_cold_bytes(size_t least);
