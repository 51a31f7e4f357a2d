/* Collectives on device memory with NCCL: one rank per GPU, one process or thread per rank. What NCCL
 * lacks, host memory and start-up, a base communicator does where there is one (MPI, threads).
 *
 * libnccl is loaded when a communicator is opened, so a program that knows NCCL runs without it.
 * Nothing here waits for ever: connecting, each call and closing have a deadline, and a communicator
 * that failed is aborted, which ends its kernels. Owned by the thread that opened it, whose current
 * CUDA device is the rank's. C++ includes this within extern "C". */
#pragma once

#include "comm/comm.h"

enum { COMM_NCCL_ID_BYTES = 128, COMM_NCCL_TIMEOUT_MS = 60000 };

/* By which the ranks of one group find each other: where rank 0 listens, and a random number. Whoever
 * knows it can take a rank's place until the group is whole. */
struct comm_nccl_id {
    unsigned char bytes[COMM_NCCL_ID_BYTES];
};

struct comm_nccl_options {
    const char
        *path; /* of libnccl; NULL: OUTRIDER_NCCL_LIBRARY of the environment, or libnccl.so.2 */
    int timeout_ms; /* of connecting and of each call; 0: COMM_NCCL_TIMEOUT_MS */
};

/* Rank `rank` of `size`, loaded but not yet connected: the device's calls fail. base has the same
 * rank and size, or is NULL; on success it is taken over: comm_close closes it.
 *   tree_sum, exchange   base's; without base ERR_UNSUPPORTED
 *   abort_group          aborts NCCL, then base's; without base it ends the process
 *   close                also of an unconnected one; at most 10 s for NCCL, which all ranks leave
 *                        together; then base's. CUDA graphs with its calls are destroyed before:
 *                        NCCL waits for their end
 * Errors: ERR_UNSUPPORTED no NCCL here, or too old a one (the sentence says which file lacks what),
 * ERR_ARGUMENT rank, size or base do not fit. */
int comm_nccl_open_take(struct comm **comm, struct comm *base, int rank, int size,
                        const struct comm_nccl_options *options, struct error *err);

/* A new group's id; rank 0 makes it and is the first to connect with it. Needs no GPU, but a network
 * interface (NCCL_SOCKET_IFNAME chooses one). Errors: ERR_UNAVAILABLE. */
int comm_nccl_make_id(struct comm *comm, struct comm_nccl_id *id, struct error *err);

/* All ranks call it, and wait for each other until the deadline. id is the same on all ranks; NULL:
 * rank 0 makes one and tells it over base.
 * Errors: ERR_TIMEOUT not all ranks came, ERR_UNAVAILABLE NCCL's own words, ERR_ARGUMENT no id and
 * no base. */
int comm_nccl_connect(struct comm *comm, const struct comm_nccl_id *id, struct error *err);
