/* Bounded queue of pointers between threads. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct queue;

/* capacity >= 1 items. */
int queue_open(struct queue **queue, int capacity, struct error *err);
/* No thread may be waiting in the queue any more. Accepts NULL. */
void queue_close(struct queue *queue);

/* Never waits. Errors: ERR_EXHAUSTED full, ERR_CLOSED shut. */
int queue_push(struct queue *queue, void *item, struct error *err);

/* Waits until there is an item, deadline_us (clock_now_us) passes, or the queue is shut; items that
 * were pushed before that still come out. INT64_MAX waits without a deadline, 0 does not wait.
 * Errors: ERR_TIMEOUT, ERR_CLOSED; *item is NULL then. */
int queue_pop(struct queue *queue, void **item, int64_t deadline_us, struct error *err);

/* The pop that waits, or else the next one that would, returns as if its deadline had passed: there
 * is something else to do. */
void queue_wake(struct queue *queue);

/* For the one thread that pops. queue_peek returns the item that `index` others precede, or NULL
 * past the end; queue_take also removes it, out of order. Items that are pushed meanwhile come
 * after them. */
void *queue_peek(struct queue *queue, int index);
void *queue_take(struct queue *queue, int index);

/* Wakes every waiting thread; later pushes fail with ERR_CLOSED. */
void queue_shut(struct queue *queue);

int queue_length(struct queue *queue);
bool queue_is_shut(struct queue *queue);
