/* Collectives among the ranks of a group. Three implementations stand behind one table: one process
 * alone, ranks as threads of one process (tests), MPI (comm_mpi.c); NCCL comes later.
 * All ranks call the same functions in the same order, from one thread each. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct comm;

struct comm_ops {
    const char *name; /* "single", "threads", "mpi" */
    int (*tree_sum)(struct comm *comm, float *data, size_t n, struct error *err);
    int (*exchange)(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                    struct error *err);
    void (*abort_group)(struct comm *comm, int status);
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
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

/* A group of one; cannot fail and needs no closing. */
struct comm *comm_single(void);

/* `size` communicators for ranks that are threads of this process; comms[size] is filled. Each is
 * closed by its own thread; the last close frees what they share. */
int comm_threads_open(struct comm **comms, int size, struct error *err);
