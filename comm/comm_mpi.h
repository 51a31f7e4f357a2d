/* Ranks as MPI processes. MPI is entered by one thread, the one that called comm_mpi_open, and only
 * inside these calls: a rank that waits in MPI burns a core. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"

/* Initializes MPI (funneled) and returns the communicator of everything this mpirun started.
 * Closing it finalizes MPI; the communicators split from it are closed first.
 * Errors: ERR_UNAVAILABLE MPI cannot start. */
int comm_mpi_open(struct comm **world, struct error *err);

/* True when this process was started by mpirun (environment of Open MPI or PMIx). */
bool comm_mpi_is_launched(void);

/* The number of this process's program in an mpirun with several (MPI_APPNUM), 0 otherwise. */
int comm_mpi_app(struct comm *world);

/* Splits world by color; ranks keep their order. */
int comm_mpi_split(struct comm **part, struct comm *world, int color, struct error *err);
