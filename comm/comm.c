/* Calls through the table, and the group of one rank. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Builtins instead of <stdatomic.h>, which C++ does not have. */
static void set_waiting(struct comm *comm, bool is_waiting)
{
    __atomic_store_n(&comm->is_waiting, is_waiting, __ATOMIC_RELAXED);
}

bool comm_is_waiting(const struct comm *comm)
{
    return __atomic_load_n(&comm->is_waiting, __ATOMIC_RELAXED);
}

int comm_tree_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    set_waiting(comm, true);
    int rc = comm->ops->tree_sum(comm, data, n, err);
    set_waiting(comm, false);
    return rc;
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

static int check_device(const struct comm *comm, struct error *err)
{
    if (comm->device) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "ranks of kind \"%s\" have no collectives on device memory; NCCL has",
                     comm->ops->name);
}

int comm_device_gather(struct comm *comm, const float *mine, float *all, size_t n, void *stream,
                       struct error *err)
{
    int rc = check_device(comm, err);
    return rc ? rc : comm->device->gather(comm, mine, all, n, stream, err);
}

int comm_device_swap(struct comm *comm, int partner, const float *mine, float *theirs, size_t n,
                     void *stream, struct error *err)
{
    int rc = check_device(comm, err);
    return rc ? rc : comm->device->swap(comm, partner, mine, theirs, n, stream, err);
}

int comm_device_sum(struct comm *comm, float *data, size_t n, void *stream, struct error *err)
{
    int rc = check_device(comm, err);
    return rc ? rc : comm->device->sum(comm, data, n, stream, err);
}

int comm_device_failed(struct comm *comm, struct error *err)
{
    int rc = check_device(comm, err);
    return rc ? rc : comm->device->failed(comm, err);
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
static struct comm single = {.ops = &single_ops, .size = 1};

struct comm *comm_single(void)
{
    return &single;
}
