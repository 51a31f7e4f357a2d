/* Collectives among the ranks of a group. One table has four implementations: a single process,
 * ranks as threads of one process (for tests), MPI (comm/comm_mpi.c), and NCCL for ranks with a GPU
 * each (comm/comm_nccl.c), which has a second table for device memory. All ranks call the same
 * functions in the same order, each from one thread. C++ includes this within extern "C". */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct comm;

struct comm_ops {
    const char *name; /* "single", "threads", "mpi", "nccl" */
    int (*tree_sum)(struct comm *comm, float *data, size_t n, struct error *err);
    int (*exchange)(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                    struct error *err);
    void (*abort_group)(struct comm *comm, int status);
    void (*close)(struct comm *comm);
};

/* On device memory. Pointers are those of the device, stream is a cudaStream_t; see
 * comm_device_*. */
struct comm_device_ops {
    int (*gather)(struct comm *comm, const float *mine, float *all, size_t n, void *stream,
                  struct error *err);
    int (*swap)(struct comm *comm, int partner, const float *mine, float *theirs, size_t n,
                void *stream, struct error *err);
    int (*sum)(struct comm *comm, float *data, size_t n, void *stream, struct error *err);
    int (*failed)(struct comm *comm, struct error *err);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    const struct comm_device_ops *device; /* NULL: host memory only */
    bool is_waiting;                      /* see comm_is_waiting */
};

/* Adds data[n] of all ranks in place; every rank gets the same bits. The order is fixed: a binary
 * tree over the ranks, ((0+1)+(2+3))+((4+5)+(6+7)), in fp32 (docs/design.md, section 4); what has
 * no neighbour goes up as it is, so three are (0+1)+2.
 * Errors: ERR_UNAVAILABLE a rank is gone. */
int comm_tree_sum(struct comm *comm, float *data, size_t n, struct error *err);

/* Every rank gives n_bytes at mine and gets size * n_bytes at all, in the order of ranks. Also
 * serves as a barrier. For start-up, where ranks compare what they hold and tell their
 * addresses. */
int comm_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                  struct error *err);

/* True if the rank is in comm_tree_sum, where it may wait for the others, for messages about a rank
 * that hangs. Any thread. It knows nothing of sums on a device (comm_device_ops). */
bool comm_is_waiting(const struct comm *comm);

/* Ends the whole group at once with exit status `status`, for a rank that cannot go on. Does not
 * return under MPI. With threads, the current and later calls of every rank fail with
 * ERR_UNAVAILABLE. */
void comm_abort(struct comm *comm, int status);

/* Accepts NULL. */
void comm_close(struct comm *comm);

/* Device memory. Each call puts work on the stream and returns. It may be captured into a CUDA
 * graph if the same call has run outside of a graph before, because the first use makes
 * connections, and if the capture mode is not "global", because NCCL launches from a thread of its
 * own. A rank that is lost may show as an error here, or in comm_device_failed, or not at all;
 * therefore code that waits for the stream needs a deadline and calls comm_device_failed meanwhile.
 * After a failure every call fails.
 * Errors: ERR_UNSUPPORTED comm->device is NULL, ERR_UNAVAILABLE a rank is gone, ERR_TIMEOUT a rank
 * does not answer, ERR_ARGUMENT no such partner, ERR_INTERNAL the ranks' calls do not match. */

/* Every rank gives mine[n] and gets all[size][n], in the order of ranks. mine may be this rank's
 * own part of all. */
int comm_device_gather(struct comm *comm, const float *mine, float *all, size_t n, void *stream,
                       struct error *err);
/* This rank and `partner` swap n floats; the two arrays must not overlap. With partner = rank ^ 1,
 * ^ 2, ^ 4 and an addition after each, this computes comm_tree_sum of 2, 4 or 8 ranks. */
int comm_device_swap(struct comm *comm, int partner, const float *mine, float *theirs, size_t n,
                     void *stream, struct error *err);
/* Adds data[n] of all ranks in place, in an order that depends on the number of ranks, on n and on
 * the machine, so the bits are not those of comm_tree_sum. A caller must report that its sums
 * depend on the number of ranks. */
int comm_device_sum(struct comm *comm, float *data, size_t n, void *stream, struct error *err);
/* Returns 0 if no rank is known to be lost; does not wait. For the end of a step, and for a thread
 * that waits for the stream. */
int comm_device_failed(struct comm *comm, struct error *err);

/* A group of one rank. Cannot fail and need not be closed. */
struct comm *comm_single(void);

/* Makes `size` communicators, into comms[size], for ranks that are threads of this process. Each is
 * closed by its own thread; the last close frees what they share. */
int comm_threads_open(struct comm **comms, int size, struct error *err);
