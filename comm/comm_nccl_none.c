/* Takes the place of comm/comm_nccl.c in a build that has not found nccl.h: every function fails
 * and says so. */
#include "comm/comm_nccl.h"

static int none(struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED,
                     "this build has no NCCL: install its headers (nccl.h, cuda_runtime.h) and "
                     "build again, or start the ranks with mpirun");
}

int comm_nccl_open_take(struct comm **comm, struct comm *base, int rank, int size,
                        const struct comm_nccl_options *options, struct error *err)
{
    (void)base, (void)rank, (void)size, (void)options;
    *comm = NULL;
    return none(err);
}

int comm_nccl_make_id(struct comm *comm, struct comm_nccl_id *id, struct error *err)
{
    (void)comm, (void)id;
    return none(err);
}

int comm_nccl_connect(struct comm *comm, const struct comm_nccl_id *id, struct error *err)
{
    (void)comm, (void)id;
    return none(err);
}
