/* Ranks as MPI processes. One thread enters MPI, the one that called comm_mpi_open, and only inside
 * these calls, because a rank that waits in MPI keeps a core busy. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"

/* Initializes MPI (funneled) and returns the communicator of everything that this mpirun started.
 * Closing it finalizes MPI; communicators that were split from it are closed before.
 * Errors: ERR_UNAVAILABLE MPI cannot start. */
int comm_mpi_open(struct comm **world, struct error *err);

/* True when mpirun started this process, by the environment of Open MPI or PMIx. */
bool comm_mpi_is_launched(void);

/* The number of this process's program if mpirun started several (MPI_APPNUM), otherwise 0. */
int comm_mpi_app(struct comm *world);

/* Splits world by color; ranks keep their order. */
int comm_mpi_split(struct comm **part, struct comm *world, int color, struct error *err);
