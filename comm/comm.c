/* The table's front, and the group of one. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

int comm_tree_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    return comm->ops->tree_sum(comm, data, n, err);
}

int comm_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes, struct error *err)
{
    return comm->ops->exchange(comm, mine, all, n_bytes, err);
}

void comm_abort(struct comm *comm, int status)
{
    comm->ops->abort_group(comm, status);
}

void comm_close(struct comm *comm)
{
    if (comm) comm->ops->close(comm);
}

static int single_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    (void)comm, (void)data, (void)n, (void)err;
    return 0;
}

static int single_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                           struct error *err)
{
    (void)comm, (void)err;
    memmove(all, mine, n_bytes);
    return 0;
}

static void single_abort(struct comm *comm, int status)
{
    (void)comm;
    _Exit(status);
}

static void single_close(struct comm *comm)
{
    (void)comm;
}

static const struct comm_ops single_ops = {"single", single_sum, single_exchange, single_abort,
                                           single_close};
static struct comm single = {&single_ops, 0, 1};

struct comm *comm_single(void)
{
    return &single;
}
