/* Collectives on device memory with NCCL: one rank per GPU, one process or thread per rank. NCCL
 * has no collectives on host memory and no start-up; a base communicator provides them if there is
 * one (MPI, threads).
 *
 * libnccl is loaded when a communicator is opened, so the program also runs without it if no group
 * needs it. Nothing here waits without a limit: connecting, each call and closing have deadlines,
 * and a communicator that failed is aborted, which ends its kernels. Owned by the thread that
 * opened it, whose current CUDA device is that of the rank. C++ includes this within extern "C". */
#pragma once

#include "comm/comm.h"

enum { COMM_NCCL_ID_BYTES = 128, COMM_NCCL_TIMEOUT_MS = 60000 };

/* The ranks of one group find each other by it: it holds the address at which rank 0 listens, and a
 * random number. Until the group is complete, anyone who knows it can take the place of a rank. */
struct comm_nccl_id {
    unsigned char bytes[COMM_NCCL_ID_BYTES];
};

struct comm_nccl_options {
    const char *path; /* of libnccl; NULL: $OUTRIDER_NCCL_LIBRARY, or libnccl.so.2 */
    int timeout_ms;   /* of connecting and of each call; 0: COMM_NCCL_TIMEOUT_MS */
};

/* Rank `rank` of `size`, loaded but not connected, so that its collectives on device memory still
 * fail. base has the same rank and size, or is NULL; on success it is taken over, and comm_close
 * closes it.
 *   tree_sum, exchange   those of base; ERR_UNSUPPORTED without one
 *   abort_group          aborts NCCL, then base; without base it ends the process
 *   close                works without a connection too; waits at most 10 s for NCCL, which all
 *                        ranks leave together, then closes base. CUDA graphs with NCCL's calls must
 *                        be destroyed before, because NCCL waits for them to end
 * Errors: ERR_UNSUPPORTED there is no NCCL, or it is too old (the sentence names the file and what
 * it lacks), ERR_ARGUMENT rank, size or base do not match. */
int comm_nccl_open_take(struct comm **comm, struct comm *base, int rank, int size,
                        const struct comm_nccl_options *options, struct error *err);

/* An id for a new group. Rank 0 makes it and is the first to connect with it. This needs no GPU,
 * but a network interface, which NCCL_SOCKET_IFNAME can choose.
 * Errors: ERR_UNAVAILABLE. */
int comm_nccl_make_id(struct comm *comm, struct comm_nccl_id *id, struct error *err);

/* All ranks call this and wait for each other until the deadline. id is the same on all ranks; if
 * it is NULL, rank 0 makes one and sends it through base.
 * Errors: ERR_TIMEOUT not all ranks came, ERR_UNAVAILABLE with NCCL's own text, ERR_ARGUMENT
 * neither id nor base. */
int comm_nccl_connect(struct comm *comm, const struct comm_nccl_id *id, struct error *err);
