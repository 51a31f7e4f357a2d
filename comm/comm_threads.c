/* Ranks as threads of one process. A collective has three steps: every rank publishes its buffers
 * and enters; every rank does its part of the work directly in the others' buffers; every rank
 * leaves. Rank r sums stripe r of all ranks' data by the tree, so no two ranks touch the same
 * element.
 *
 * Entering waits for the slowest rank, and fails when the group is aborted or a rank has closed.
 * Once all ranks have entered, the collective succeeds for all of them: leaving waits only for the
 * work of ranks that are inside, so no buffer is freed while another rank still writes to it. */
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm_tree.h"

enum { MAX_THREADS = 64 };

/* A rank's contribution to the collective that it is in. */
struct offer {
    const void *mine; /* exchange */
    size_t n;         /* floats or bytes */
    bool is_sum;
};

/* Locked inside. A rank writes its row and offer before it enters; others read them until it
 * leaves. */
struct group {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int size, n_open;
    int n_entered, n_left;
    unsigned n_entries, n_exits; /* how often all have entered, and left */
    bool is_aborted;
    int abort_rank, abort_status;
    float **rows; /* [size] tree_sum's data */
    struct offer *offers;
};

struct threads_comm {
    struct comm comm;
    struct group *group;
};

static struct group *group_of(struct comm *comm)
{
    return ((struct threads_comm *)comm)->group;
}

/* Called with the lock held. */
static int check_whole(const struct group *group, struct error *err)
{
    if (group->is_aborted) {
        return error_set(err, ERR_UNAVAILABLE, "rank %d took the group down with status %d",
                         group->abort_rank, group->abort_status);
    }
    if (group->n_open < group->size) {
        return error_set(err, ERR_UNAVAILABLE, "%d of the group's %d ranks have left it",
                         group->size - group->n_open, group->size);
    }
    return 0;
}

/* Waits until all ranks have entered. A rank that fails takes back its entry. */
static int group_enter(struct group *group, struct error *err)
{
    pthread_mutex_lock(&group->lock);
    int rc = check_whole(group, err);
    unsigned before = group->n_entries;
    if (!rc && ++group->n_entered == group->size) {
        group->n_entered = 0;
        group->n_entries++;
        pthread_cond_broadcast(&group->moved);
    }
    while (!rc && group->n_entries == before) {
        pthread_cond_wait(&group->moved, &group->lock);
        if (group->n_entries != before) break;
        rc = check_whole(group, err);
        if (rc) group->n_entered--;
    }
    pthread_mutex_unlock(&group->lock);
    return rc;
}

static void group_leave(struct group *group)
{
    pthread_mutex_lock(&group->lock);
    unsigned before = group->n_exits;
    if (++group->n_left == group->size) {
        group->n_left = 0;
        group->n_exits++;
        pthread_cond_broadcast(&group->moved);
    }
    while (group->n_exits == before)
        pthread_cond_wait(&group->moved, &group->lock);
    pthread_mutex_unlock(&group->lock);
}

/* All ranks see the same offers, so all come to the same result. */
static int check_offers(const struct group *group, struct error *err)
{
    const struct offer *first = &group->offers[0];
    for (int i = 1; i < group->size; i++) {
        const struct offer *offer = &group->offers[i];
        if (offer->is_sum != first->is_sum || offer->n != first->n) {
            return error_set(err, ERR_INTERNAL,
                             "rank 0 calls %s of %zu and rank %d calls %s of %zu",
                             first->is_sum ? "tree_sum" : "exchange", first->n, i,
                             offer->is_sum ? "tree_sum" : "exchange", offer->n);
        }
    }
    return 0;
}

static int threads_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    struct group *group = group_of(comm);
    size_t rank = (size_t)comm->rank, size = (size_t)comm->size;
    group->rows[comm->rank] = data;
    group->offers[comm->rank] = (struct offer){.n = n, .is_sum = true};
    int rc = group_enter(group, err);
    if (rc) return rc;
    rc = check_offers(group, err);
    size_t stripe = n / size + 1;
    size_t begin = rank * stripe < n ? rank * stripe : n;
    size_t end = begin + stripe < n ? begin + stripe : n;
    if (!rc) comm_tree_local(group->rows, comm->size, begin, end);
    group_leave(group);
    return rc;
}

static int threads_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                            struct error *err)
{
    struct group *group = group_of(comm);
    group->offers[comm->rank] = (struct offer){.mine = mine, .n = n_bytes};
    int rc = group_enter(group, err);
    if (rc) return rc;
    rc = check_offers(group, err);
    for (int i = 0; !rc && i < comm->size && n_bytes; i++) {
        memcpy((char *)all + (size_t)i * n_bytes, group->offers[i].mine, n_bytes);
    }
    group_leave(group);
    return rc;
}

static void threads_abort(struct comm *comm, int status)
{
    struct group *group = group_of(comm);
    pthread_mutex_lock(&group->lock);
    if (!group->is_aborted) {
        group->is_aborted = true;
        group->abort_rank = comm->rank;
        group->abort_status = status;
    }
    pthread_cond_broadcast(&group->moved);
    pthread_mutex_unlock(&group->lock);
}

static void group_free(struct group *group)
{
    if (!group) return;
    pthread_cond_destroy(&group->moved);
    pthread_mutex_destroy(&group->lock);
    free(group->rows);
    free(group->offers);
    free(group);
}

static void threads_close(struct comm *comm)
{
    struct group *group = group_of(comm);
    pthread_mutex_lock(&group->lock);
    assert(group->n_open > 0);
    bool is_last = --group->n_open == 0;
    pthread_cond_broadcast(&group->moved);
    pthread_mutex_unlock(&group->lock);
    if (is_last) group_free(group);
    free(comm);
}

static const struct comm_ops threads_ops = {"threads", threads_sum, threads_exchange, threads_abort,
                                            threads_close};

static int group_open(struct group **group, int size, struct error *err)
{
    int rc = 0;
    struct group *g = NULL;
    TRY(mem_array(&g, 1, sizeof *g, err));
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
    g->size = g->n_open = size;
    TRY(mem_array(&g->rows, (size_t)size, sizeof(float *), err));
    TRY(mem_array(&g->offers, (size_t)size, sizeof *g->offers, err));
    *group = g;
out:
    if (rc) group_free(g);
    return rc;
}

int comm_threads_open(struct comm **comms, int size, struct error *err)
{
    int rc = 0;
    struct group *group = NULL;
    if (size < 1 || size > MAX_THREADS) {
        return error_set(err, ERR_ARGUMENT, "a group of %d ranks is refused: it must be 1 to %d",
                         size, MAX_THREADS);
    }
    for (int i = 0; i < size; i++)
        comms[i] = NULL;
    TRY(group_open(&group, size, err));
    for (int i = 0; i < size; i++) {
        struct threads_comm *part = NULL;
        TRY(mem_array(&part, 1, sizeof *part, err));
        *part = (struct threads_comm){{.ops = &threads_ops, .rank = i, .size = size}, group};
        comms[i] = &part->comm;
    }
out:
    if (rc) {
        for (int i = 0; i < size; i++)
            free(comms[i]), comms[i] = NULL;
        group_free(group);
    }
    return rc;
}
