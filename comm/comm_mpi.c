/* Ranks as MPI processes. The sum uses recursive doubling: at distance 1, 2, 4, ... a rank swaps
 * its partial sum with a rank on the other side of its node, and adds what it got. Then both hold
 * the sum of the same subtree, and because addition commutes, the same bits. Where the other side
 * has fewer ranks, each of them sends its sum to several. Large data are summed in chunks, each
 * through all distances, so that a chunk stays in the cache.
 *
 * With Open MPI 4.1 a group does not survive the loss of a rank: when one dies, the others wait
 * inside MPI until mpirun ends them. So an error returned here is rare, and also means the end of
 * the group. */
#include "comm/comm_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm_tree.h"

enum { CHUNK_FLOATS = 64 * 1024, SUM_TAG = 1 };

/* Owned by the thread that called comm_mpi_open. */
struct mpi_comm {
    struct comm comm;
    MPI_Comm handle;
    float *scratch; /* [CHUNK_FLOATS] what the partner sent; allocated by the first sum */
    bool is_world;
};

static struct mpi_comm *mpi_of(struct comm *comm)
{
    return (struct mpi_comm *)comm;
}

/* MPI's status as an error of ours. */
static int mpi_check(int status, const char *call, struct error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "no text";
    int len = 0;
    if (status == MPI_SUCCESS) return 0;
    MPI_Error_string(status, text, &len);
    return error_set(err, ERR_UNAVAILABLE, "%s failed: %s", call, text);
}

/* Gets the other side's sum into scratch, and sends this one to those who need it. Ranks that get
 * it after the first wait for nothing else, so no two wait for each other. */
static int swap_sums(struct mpi_comm *mpi, const struct comm_tree_turn *turn, const float *data,
                     int n, struct error *err)
{
    int to = turn->n_to > 0 ? turn->first_to : MPI_PROC_NULL, rc = 0;
    int status = MPI_Sendrecv(data, n, MPI_FLOAT, to, SUM_TAG, mpi->scratch, n, MPI_FLOAT,
                              turn->from, SUM_TAG, mpi->handle, MPI_STATUS_IGNORE);
    rc = mpi_check(status, "MPI_Sendrecv", err);
    for (int i = 1; !rc && i < turn->n_to; i++) {
        status =
            MPI_Send(data, n, MPI_FLOAT, turn->first_to + i * turn->step_to, SUM_TAG, mpi->handle);
        rc = mpi_check(status, "MPI_Send", err);
    }
    return rc;
}

static int sum_chunk(struct mpi_comm *mpi, float *data, int n, struct error *err)
{
    for (int distance = 1; distance < mpi->comm.size; distance *= 2) {
        struct comm_tree_turn turn = comm_tree_turn_of(mpi->comm.rank, mpi->comm.size, distance);
        if (turn.from < 0) continue;
        int rc = swap_sums(mpi, &turn, data, n, err);
        if (rc) return rc;
        comm_tree_add(data, mpi->scratch, (size_t)n);
    }
    return 0;
}

static int mpi_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    struct mpi_comm *mpi = mpi_of(comm);
    int rc = 0;
    if (!mpi->scratch) rc = mem_array(&mpi->scratch, CHUNK_FLOATS, sizeof(float), err);
    for (size_t done = 0; !rc && done < n;) {
        size_t count = n - done < CHUNK_FLOATS ? n - done : CHUNK_FLOATS;
        rc = sum_chunk(mpi, data + done, (int)count, err);
        done += count;
    }
    return rc;
}

static int mpi_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                        struct error *err)
{
    if (n_bytes > INT_MAX) {
        return error_set(err, ERR_ARGUMENT, "an exchange of %zu bytes is too large", n_bytes);
    }
    int status = MPI_Allgather(mine, (int)n_bytes, MPI_BYTE, all, (int)n_bytes, MPI_BYTE,
                               mpi_of(comm)->handle);
    return mpi_check(status, "MPI_Allgather", err);
}

/* Ends everything that mpirun started, not only the part that this rank belongs to. */
static void mpi_abort(struct comm *comm, int status)
{
    (void)comm;
    MPI_Abort(MPI_COMM_WORLD, status);
    _Exit(status);
}

static void mpi_close(struct comm *comm)
{
    struct mpi_comm *mpi = mpi_of(comm);
    if (mpi->is_world) {
        MPI_Finalize();
    } else {
        MPI_Comm_free(&mpi->handle);
    }
    free(mpi->scratch);
    free(mpi);
}

static const struct comm_ops mpi_ops = {"mpi", mpi_sum, mpi_exchange, mpi_abort, mpi_close};

static int wrap_handle(struct comm **comm, MPI_Comm handle, bool is_world, struct error *err)
{
    struct mpi_comm *mpi = NULL;
    int rc = mem_array(&mpi, 1, sizeof *mpi, err);
    if (rc) return rc;
    *mpi = (struct mpi_comm){.comm = {.ops = &mpi_ops}, .handle = handle, .is_world = is_world};
    MPI_Comm_rank(handle, &mpi->comm.rank);
    MPI_Comm_size(handle, &mpi->comm.size);
    *comm = &mpi->comm;
    return 0;
}

int comm_mpi_open(struct comm **world, struct error *err)
{
    int rc = 0, is_started = 0, provided = MPI_THREAD_SINGLE;
    *world = NULL;
    MPI_Initialized(&is_started);
    if (is_started) return error_set(err, ERR_UNAVAILABLE, "MPI can start only once in a process");
    rc = mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init", err);
    if (rc) return rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_FUNNELED) {
        rc = error_set(err, ERR_UNAVAILABLE, "this MPI does not allow other threads beside it");
    } else {
        rc = wrap_handle(world, MPI_COMM_WORLD, true, err);
    }
    if (rc) MPI_Finalize();
    return rc;
}

bool comm_mpi_is_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
}

int comm_mpi_app(struct comm *world)
{
    int *number = NULL, is_set = 0;
    MPI_Comm_get_attr(mpi_of(world)->handle, MPI_APPNUM, &number, &is_set);
    return is_set && number ? *number : 0;
}

int comm_mpi_split(struct comm **part, struct comm *world, int color, struct error *err)
{
    MPI_Comm handle = MPI_COMM_NULL;
    *part = NULL;
    int status = MPI_Comm_split(mpi_of(world)->handle, color, world->rank, &handle);
    int rc = mpi_check(status, "MPI_Comm_split", err);
    if (rc) return rc;
    MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
    rc = wrap_handle(part, handle, false, err);
    if (rc) MPI_Comm_free(&handle);
    return rc;
}
