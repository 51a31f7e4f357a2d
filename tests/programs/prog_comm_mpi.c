/* ctest: libs=comm_mpi */
/* One rank of tests/cluster/test_comm_mpi.sh. Exits with 0 when all checks held.
 *   sum           tree sum against the local tree over all ranks' data, 1 to 100000 floats
 *   split COLOR   this program's number is COLOR; its part sums and exchanges on its own
 *   loop          sums until killed; rank 0 says when it has begun
 *   abort         rank 1 takes the group down with status 42 while the others sum */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "comm/comm_mpi.h"

enum { MOST_FLOATS = 100000 };

static float value_of(int rank, size_t i)
{
    struct rng_address at = {.seed = 5, .position = (uint32_t)i, .round = (uint32_t)rank};
    int exponent = (int)(rng_uniform(&at, RNG_WEIGHT, 1) * 24) - 12;
    return (float)ldexp(rng_uniform(&at, RNG_WEIGHT, 0) - 0.5, exponent);
}

/* The promised sum as a recursion over all ranks' data, written apart from the code under test. */
static float tree_of(const float *all, size_t n, int first, int n_ranks, size_t i)
{
    int left = 1; /* the largest power of two below n_ranks */
    if (n_ranks == 1) return all[(size_t)first * n + i];
    while (2 * left < n_ranks) {
        left *= 2;
    }
    return tree_of(all, n, first, left, i) + tree_of(all, n, first + left, n_ranks - left, i);
}

static int fail(const struct comm *comm, const char *what)
{
    fprintf(stderr, "rank %d of %d: %s\n", comm->rank, comm->size, what);
    return 1;
}

static int check_sum(struct comm *comm, size_t n)
{
    struct error err;
    int rc = 0;
    float *data = malloc(n * sizeof *data);
    float *all = malloc(n * sizeof *all * (size_t)comm->size);
    if (!data || !all) {
        rc = fail(comm, "no memory");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        data[i] = value_of(comm->rank, i);
    if (comm_exchange(comm, data, all, n * sizeof *data, &err)) rc = fail(comm, err.text);
    if (!rc && comm_tree_sum(comm, data, n, &err)) rc = fail(comm, err.text);
    for (size_t i = 0; !rc && i < n; i++) {
        float expected = tree_of(all, n, 0, comm->size, i);
        if (memcmp(&expected, &data[i], sizeof expected)) rc = fail(comm, "a sum has other bits");
        if (all[n * (size_t)(comm->size - 1) + i] != value_of(comm->size - 1, i)) {
            rc = fail(comm, "the exchange is not in rank order");
        }
    }
out:
    free(data);
    free(all);
    return rc;
}

static int run_sum(struct comm *comm)
{
    static const size_t counts[] = {1, 2, 3, 17, 1000, 4096, 65536, 65537, MOST_FLOATS};
    int rc = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        rc |= check_sum(comm, counts[i]);
    return rc;
}

static int run_split(struct comm *world, int color)
{
    struct error err;
    struct comm *part = NULL;
    int32_t mine[2], all[2 * 16];
    if (comm_mpi_app(world) != color) return fail(world, "the program number is wrong");
    if (comm_mpi_split(&part, world, color, &err)) return fail(world, err.text);
    mine[0] = world->rank;
    mine[1] = part->rank;
    int rc = world->size > 16 || comm_exchange(world, mine, all, sizeof mine, &err);
    for (int i = 0; !rc && i < world->size; i++) {
        if (all[2 * i] != i) rc = fail(world, "the exchange is not in rank order");
    }
    if (!rc) rc = run_sum(part);
    comm_close(part);
    return rc;
}

/* Ends when it is killed or a call fails. */
static int run_loop(struct comm *comm, int abort_rank)
{
    struct error err;
    float data[2048] = {0};
    int rc = 0;
    for (int round = 0; !rc; round++) {
        rc = comm_tree_sum(comm, data, 2048, &err);
        if (round == 100) printf("pid %d of rank %d\n", (int)getpid(), comm->rank);
        if (round == 100) fflush(stdout);
        if (round == 200 && comm->rank == abort_rank) comm_abort(comm, 42);
    }
    return fail(comm, err.text);
}

static int run(struct comm *world, int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "sum") == 0) return run_sum(world);
    if (strcmp(mode, "split") == 0 && argc > 2) return run_split(world, atoi(argv[2]));
    if (strcmp(mode, "loop") == 0) return run_loop(world, -1);
    if (strcmp(mode, "abort") == 0) return run_loop(world, 1);
    return fail(world, "usage: prog_comm_mpi sum | split COLOR | loop | abort");
}

int main(int argc, char **argv)
{
    struct error err;
    struct comm *world = NULL;
    if (comm_mpi_open(&world, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int rc = run(world, argc, argv);
    comm_close(world);
    return rc ? 1 : 0;
}
