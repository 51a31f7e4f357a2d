/* Collectives among the ranks of a group. Four implementations stand behind one table: one process
 * alone, ranks as threads of one process (tests), MPI (comm_mpi.c), and NCCL for ranks with a GPU each
 * (comm_nccl.c), which has a second table for device memory.
 * All ranks call the same functions in the same order, from one thread each. C++ includes this within
 * extern "C". */
#pragma once

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

/* On device memory; pointers are the device's, stream is a cudaStream_t. See comm_device_*. */
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
};

/* Adds data[n] of all ranks in place; every rank gets the same bits. The order is promised: a
 * binary tree over the ranks, ((0+1)+(2+3))+((4+5)+(6+7)), in fp32 (docs/design.md section 4).
 * size must be a power of two. Errors: ERR_UNAVAILABLE a rank is gone. */
int comm_tree_sum(struct comm *comm, float *data, size_t n, struct error *err);

/* Every rank gives n_bytes at mine and gets size * n_bytes at all, in rank order. Also serves as a
 * barrier. For start-up: comparing fingerprints, telling addresses. */
int comm_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                  struct error *err);

/* Takes the whole group down at once with exit status `status`; for a rank that cannot go on.
 * Does not return for MPI. With threads: every rank's current and later calls fail with
 * ERR_UNAVAILABLE. */
void comm_abort(struct comm *comm, int status);

/* Accepts NULL. */
void comm_close(struct comm *comm);

/* Device memory. Each call puts work on the stream and returns; it may be captured into a CUDA graph,
 * after the same call has run outside of one, since connections are made at the first use, and not in
 * the capture mode "global", since NCCL launches from a thread of its own. A rank
 * that is lost may show as an error here or in comm_device_failed, or not at all: what waits for the
 * stream needs a deadline and calls comm_device_failed meanwhile. After a failure every call fails.
 * Errors: ERR_UNSUPPORTED comm->device is NULL, ERR_UNAVAILABLE a rank is gone, ERR_TIMEOUT it does
 * not answer, ERR_ARGUMENT no such partner, ERR_INTERNAL the ranks' calls do not fit together. */

/* Every rank gives mine[n] and gets all[size][n], in rank order. mine may be all + rank * n. */
int comm_device_gather(struct comm *comm, const float *mine, float *all, size_t n, void *stream,
                       struct error *err);
/* This rank and `partner` swap n floats; they must not overlap. With partner = rank ^ 1, ^ 2, ^ 4 and
 * an addition after each this is comm_tree_sum. */
int comm_device_swap(struct comm *comm, int partner, const float *mine, float *theirs, size_t n,
                     void *stream, struct error *err);
/* Adds data[n] of all ranks in place, in an order that depends on the number of ranks, on n and on
 * the machine: not comm_tree_sum's bits. Whoever uses it says that its sums are not rank-invariant. */
int comm_device_sum(struct comm *comm, float *data, size_t n, void *stream, struct error *err);
/* 0: as far as is known, all ranks are there; does not wait then. For the end of a step, and while one
 * waits for the stream. */
int comm_device_failed(struct comm *comm, struct error *err);

/* A group of one; cannot fail and needs no closing. */
struct comm *comm_single(void);

/* `size` communicators for ranks that are threads of this process; comms[size] is filled. Each is
 * closed by its own thread; the last close frees what they share. */
int comm_threads_open(struct comm **comms, int size, struct error *err);
