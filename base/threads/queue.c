/* Bounded queue: one mutex, one condition variable, a ring buffer. Without contention an operation
 * takes well under a microsecond. */
#include "base/threads/queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    void **items; /* [capacity] ring */
    int capacity, first, n_items;
    bool is_shut, is_woken;
};

int queue_open(struct queue **queue, int capacity, struct error *err)
{
    int rc = 0;
    struct queue *q = NULL;
    *queue = NULL;
    TRY(mem_array(&q, 1, sizeof *q, err));
    TRY(mem_array(&q->items, (size_t)capacity, sizeof *q->items, err));
    q->capacity = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->filled, &attr);
    pthread_condattr_destroy(&attr);
    *queue = q;
    return 0;
out:
    free(q);
    return rc;
}

void queue_close(struct queue *queue)
{
    if (!queue) return;
    pthread_cond_destroy(&queue->filled);
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    free(queue);
}

int queue_push(struct queue *queue, void *item, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&queue->lock);
    if (queue->is_shut) {
        rc = error_set(err, ERR_CLOSED, "the queue is shut");
    } else if (queue->n_items == queue->capacity) {
        rc = error_set(err, ERR_EXHAUSTED, "the queue is full with %d items", queue->capacity);
    } else {
        queue->items[(queue->first + queue->n_items++) % queue->capacity] = item;
        pthread_cond_signal(&queue->filled);
    }
    pthread_mutex_unlock(&queue->lock);
    return rc;
}

/* Called with the lock held. False when the deadline has passed. */
static bool wait_filled(struct queue *queue, int64_t deadline_us)
{
    if (deadline_us == 0) return false;
    if (deadline_us == INT64_MAX) {
        pthread_cond_wait(&queue->filled, &queue->lock);
        return true;
    }
    struct timespec until = {.tv_sec = deadline_us / 1000000,
                             .tv_nsec = deadline_us % 1000000 * 1000};
    return pthread_cond_timedwait(&queue->filled, &queue->lock, &until) == 0;
}

int queue_pop(struct queue *queue, void **item, int64_t deadline_us, struct error *err)
{
    int rc = 0;
    *item = NULL;
    pthread_mutex_lock(&queue->lock);
    while (queue->n_items == 0 && !queue->is_shut && !queue->is_woken) {
        if (!wait_filled(queue, deadline_us)) break;
    }
    if (queue->n_items > 0) {
        *item = queue->items[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->n_items--;
    } else if (queue->is_shut) {
        rc = error_set(err, ERR_CLOSED, "the queue is shut");
    } else {
        queue->is_woken = false;
        rc = error_set(err, ERR_TIMEOUT, "nothing came before the deadline");
    }
    pthread_mutex_unlock(&queue->lock);
    return rc;
}

void queue_wake(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_woken = true;
    pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

static void **slot(struct queue *queue, int index)
{
    return &queue->items[(queue->first + index) % queue->capacity];
}

void *queue_peek(struct queue *queue, int index)
{
    pthread_mutex_lock(&queue->lock);
    void *item = index < queue->n_items ? *slot(queue, index) : NULL;
    pthread_mutex_unlock(&queue->lock);
    return item;
}

void *queue_take(struct queue *queue, int index)
{
    void *item = NULL;
    pthread_mutex_lock(&queue->lock);
    if (index < queue->n_items) {
        item = *slot(queue, index);
        queue->n_items--;
        for (int i = index; i < queue->n_items; i++) {
            *slot(queue, i) = *slot(queue, i + 1);
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}

void queue_shut(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_shut = true;
    pthread_cond_broadcast(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

int queue_length(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    int n = queue->n_items;
    pthread_mutex_unlock(&queue->lock);
    return n;
}

bool queue_is_shut(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool is_shut = queue->is_shut;
    pthread_mutex_unlock(&queue->lock);
    return is_shut;
}
