/* A few threads that run tasks which may take a while, off the threads that must not wait. Tasks
 * begin in the order in which they were pushed; as several run at a time, a short one may end
 * before a longer one that was pushed earlier. Locked inside. */
#pragma once

#include "base/error.h"

struct pool;

/* A task owns itself: it frees what it was given. */
typedef void pool_fn(void *task);

/* n_threads that share a queue of up to `capacity` tasks. Errors: ERR_NO_MEMORY. */
int pool_open(struct pool **pool, int n_threads, int capacity, struct error *err);
/* Takes no more tasks, runs those that wait, and ends the threads; pool_push still answers.
 * Accepts NULL. */
void pool_end(struct pool *pool);
/* As pool_end, and frees the pool: nobody may push any more. Accepts NULL. */
void pool_close(struct pool *pool);

/* Never waits. Errors: ERR_EXHAUSTED the queue is full, ERR_CLOSED, ERR_NO_MEMORY; the task stays
 * the caller's then. */
int pool_push(struct pool *pool, pool_fn *run, void *task, struct error *err);
