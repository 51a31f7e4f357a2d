/* A queue, and threads that pop from it. */
#include "base/threads/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/threads/queue.h"

struct pool {
    struct queue *queue;
    pthread_t *threads; /* [n_threads] */
    int n_threads;
};

struct item {
    pool_fn *run;
    void *task;
};

static void *run_tasks(void *arg)
{
    struct pool *pool = arg;
    struct error err;
    void *popped;
    while (queue_pop(pool->queue, &popped, INT64_MAX, &err) == 0) {
        struct item item = *(struct item *)popped;
        free(popped);
        item.run(item.task);
    }
    return NULL;
}

int pool_open(struct pool **pool, int n_threads, int capacity, struct error *err)
{
    int rc = 0;
    struct pool *p = NULL;
    *pool = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    TRY(mem_array(&p->threads, (size_t)n_threads, sizeof *p->threads, err));
    TRY(queue_open(&p->queue, capacity, err));
    while (p->n_threads < n_threads) {
        if (pthread_create(&p->threads[p->n_threads], NULL, run_tasks, p)) {
            rc = error_set(err, ERR_NO_MEMORY, "cannot start thread %d of %d that run tasks",
                           p->n_threads + 1, n_threads);
            goto out;
        }
        p->n_threads++;
    }
    *pool = p;
    p = NULL;
out:
    pool_close(p);
    return rc;
}

void pool_end(struct pool *pool)
{
    if (!pool) return;
    if (pool->queue) queue_shut(pool->queue);
    for (int i = 0; i < pool->n_threads; i++) {
        pthread_join(pool->threads[i], NULL);
    }
    pool->n_threads = 0;
}

void pool_close(struct pool *pool)
{
    if (!pool) return;
    pool_end(pool);
    queue_close(pool->queue);
    free(pool->threads);
    free(pool);
}

int pool_push(struct pool *pool, pool_fn *run, void *task, struct error *err)
{
    struct item *item;
    int rc = mem_array(&item, 1, sizeof *item, err);
    if (rc) return rc;
    *item = (struct item){run, task};
    rc = queue_push(pool->queue, item, err);
    if (rc) free(item);
    return rc;
}
