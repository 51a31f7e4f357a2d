/* ctest: labels=quick,threads libs=comm_nccl timeout=60 */
/* Ranks on devices, over tests/support/fake_nccl.c in place of libnccl: the fixed bits from swaps
 * and from a gather, ranks as threads and as processes, and what is refused before anything
 * starts. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "comm/comm_tree.h"
#include "tests/support/device_ranks.h"

#define FAKE_LACKS_ABORT BINARY_DIR "/tests/fake_nccl_lacks_abort.so"

enum { N_FLOATS = 20000 };

/* Values over a wide range of exponents, so that another order of additions gives other bits. */
static float value_of(int rank, size_t i)
{
    struct rng_address at = {.seed = 12, .position = (uint32_t)i, .round = (uint32_t)rank};
    double mantissa = rng_uniform(&at, RNG_WEIGHT, 0) - 0.5;
    int exponent = (int)(rng_uniform(&at, RNG_WEIGHT, 1) * 24) - 12;
    return (float)ldexp(mantissa, exponent);
}

static float *values_of(int rank, size_t n)
{
    float *data = malloc((n + 1) * sizeof *data);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < n; i++)
        data[i] = value_of(rank, i);
    return data;
}

/* ---- what works ---- */

/* As the CUDA backend does it: recursive doubling, with its own addition after each swap. */
static void sum_by_swaps(struct comm *comm, float *data, float *theirs, size_t n)
{
    struct error err;
    for (int distance = 1; distance < comm->size; distance *= 2) {
        CHECK_OK(comm_device_swap(comm, comm->rank ^ distance, data, theirs, n, NULL, &err));
        comm_tree_add(data, theirs, n);
    }
}

static void compare_sums(struct comm *comm)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4097, N_FLOATS};
    struct error err;
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t n = counts[c];
        float *expected = values_of(comm->rank, n), *data = values_of(comm->rank, n);
        float *theirs = values_of(comm->rank, n);
        CHECK_OK(comm_tree_sum(comm, expected, n, &err)); /* the threads' */
        sum_by_swaps(comm, data, theirs, n);
        ck_assert_mem_eq(data, expected, n * sizeof *data);
        free(expected), free(data), free(theirs);
    }
    CHECK_OK(comm_device_failed(comm, &err));
}

START_TEST(nccl_tree_sum_of_swaps_has_the_bits_of_comm_tree_sum)
{
    for (int size = 2; size <= MAX_RANKS; size *= 2)
        run_ranks(size, 0, compare_sums);
    check_counts(2 + 4 + 8, 2 + 4 + 8, 0);
}
END_TEST

static void compare_gather(struct comm *comm)
{
    struct error err;
    float *rows[MAX_RANKS], *expected = values_of(comm->rank, N_FLOATS);
    float *mine = values_of(comm->rank, N_FLOATS);
    float *all = malloc((size_t)comm->size * N_FLOATS * sizeof *all);
    ck_assert_ptr_nonnull(all);
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_device_gather(comm, mine, all, N_FLOATS, NULL, &err));
    for (int rank = 0; rank < comm->size; rank++) {
        rows[rank] = all + (size_t)rank * N_FLOATS;
        float *theirs = values_of(rank, N_FLOATS);
        ck_assert_mem_eq(rows[rank], theirs, N_FLOATS * sizeof *theirs);
        free(theirs);
    }
    CHECK_OK(comm_tree_sum(comm, expected, N_FLOATS, &err));
    comm_tree_local(rows, comm->size, 0, N_FLOATS);
    ck_assert_mem_eq(all, expected, N_FLOATS * sizeof *all);
    free(mine), free(all), free(expected);
}

START_TEST(nccl_gather_is_in_rank_order_and_a_tree_over_it_has_the_promised_bits)
{
    for (int size = 2; size <= MAX_RANKS; size++)
        run_ranks(size, 0, compare_gather);
}
END_TEST

static void gather_in_place(struct comm *comm)
{
    struct error err;
    float all[MAX_RANKS * 3] = {0};
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    for (int round = 0; round < 50; round++) {
        float *mine = all + 3 * comm->rank;
        for (int i = 0; i < 3; i++)
            mine[i] = (float)(100 * round + 10 * comm->rank + i);
        CHECK_OK(comm_device_gather(comm, mine, all, 3, NULL, &err));
        for (int i = 0; i < 3 * comm->size; i++)
            ck_assert(all[i] == (float)(100 * round + 10 * (i / 3) + i % 3));
    }
}

START_TEST(nccl_gathers_in_place_follow_each_other)
{
    run_ranks(4, 0, gather_in_place);
}
END_TEST

static void plain_sum(struct comm *comm)
{
    struct error err;
    float *tree = values_of(comm->rank, 1000), *plain = values_of(comm->rank, 1000);
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_tree_sum(comm, tree, 1000, &err));
    CHECK_OK(comm_device_sum(comm, plain, 1000, NULL, &err));
    int n_different = 0;
    for (int i = 0; i < 1000; i++) {
        float scale = 1e-3F;
        for (int rank = 0; rank < comm->size; rank++)
            scale += fabsf(value_of(rank, (size_t)i));
        ck_assert(fabsf(plain[i] - tree[i]) <= 1e-6F * scale);
        n_different += plain[i] != tree[i];
    }
    ck_assert_int_gt(n_different, 100); /* the data tell one order from another */
    free(tree), free(plain);
}

START_TEST(nccl_plain_sum_is_near_the_tree_and_not_its_bits)
{
    run_ranks(8, 0, plain_sum);
}
END_TEST

static void exchange_ranks(struct comm *comm)
{
    struct error err;
    int32_t all[MAX_RANKS], mine = 7 * comm->rank;
    ck_assert_str_eq(comm->ops->name, "nccl");
    CHECK_OK(comm_exchange(comm, &mine, all, sizeof mine, &err));
    for (int i = 0; i < comm->size; i++)
        ck_assert_int_eq(all[i], 7 * i);
}

START_TEST(nccl_exchange_is_the_base_s)
{
    run_ranks(4, 0, exchange_ranks);
    check_counts(0, 0, 0); /* never connected, so there is nothing to abort */
}
END_TEST

/* One rank as a process, with an id that it got in another way. */
static int process_rank(const struct comm_nccl_id *id, int rank)
{
    struct error err;
    struct comm *comm;
    const struct comm_nccl_options options = {.path = FAKE};
    float mine = (float)(rank + 1), all[2] = {0};
    if (comm_nccl_open_take(&comm, NULL, rank, 2, &options, &err) ||
        comm_nccl_connect(comm, id, &err) || comm_device_gather(comm, &mine, all, 1, NULL, &err)) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 1;
    }
    comm_close(comm);
    return all[0] == 1 && all[1] == 2 && count_of("Destroy") == 1 ? 0 : 2;
}

START_TEST(nccl_processes_connect_with_an_id_and_no_base)
{
    struct error err;
    struct comm *comm;
    struct comm_nccl_id id;
    const struct comm_nccl_options options = {.path = FAKE};
    CHECK_OK(comm_nccl_open_take(&comm, NULL, 0, 2, &options, &err));
    CHECK_OK(comm_nccl_make_id(comm, &id, &err));
    comm_close(comm);
    for (int rank = 0; rank < 2; rank++) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) _exit(process_rank(&id, rank));
    }
    for (int i = 0; i < 2; i++) {
        int status = -1;
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
}
END_TEST

/* ---- what is refused ---- */

START_TEST(nccl_without_a_library_is_refused_by_name)
{
    struct error err;
    struct comm *comm;
    struct comm_nccl_options options = {.path = "/nowhere/libnccl.so"};
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 0, 1, &options, &err), ERR_UNSUPPORTED,
              "cannot load NCCL (/nowhere/libnccl.so");
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 0, 1, &options, &err), ERR_UNSUPPORTED,
              "OUTRIDER_NCCL_LIBRARY");
    ck_assert_ptr_null(comm);
    setenv("OUTRIDER_NCCL_LIBRARY", "/elsewhere/libnccl.so", 1);
    options.path = NULL;
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 0, 1, &options, &err), ERR_UNSUPPORTED,
              "/elsewhere/libnccl.so");
    setenv("OUTRIDER_NCCL_LIBRARY", FAKE, 1);
    CHECK_OK(comm_nccl_open_take(&comm, NULL, 0, 1, &options, &err));
    comm_close(comm);
}
END_TEST

START_TEST(nccl_that_lacks_a_symbol_or_is_old_is_refused)
{
    struct error err;
    struct comm *comm;
    const struct comm_nccl_options lacks = {.path = FAKE_LACKS_ABORT}, old = {.path = FAKE};
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 0, 1, &lacks, &err), ERR_UNSUPPORTED,
              "fake_nccl_lacks_abort.so lacks ncclCommAbort");
    setenv("FAKE_NCCL_FAULT", "old", 1);
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 0, 1, &old, &err), ERR_UNSUPPORTED,
              "is NCCL version code 21003; 2.14");
}
END_TEST

START_TEST(nccl_ranks_that_do_not_fit_are_refused)
{
    struct error err;
    struct comm *comm;
    const struct comm_nccl_options options = {.path = FAKE};
    CHECK_ERR(comm_nccl_open_take(&comm, NULL, 2, 2, &options, &err), ERR_ARGUMENT,
              "there is no rank 2 of 2");
    CHECK_ERR(comm_nccl_open_take(&comm, comm_single(), 1, 2, &options, &err), ERR_ARGUMENT,
              "rank 1 of 2 for NCCL is rank 0 of 1");
}
END_TEST

START_TEST(nccl_without_base_has_no_host_collectives)
{
    struct error err;
    struct comm *comm;
    float data[2] = {1, 2};
    const struct comm_nccl_options options = {.path = FAKE};
    CHECK_OK(comm_nccl_open_take(&comm, NULL, 1, 2, &options, &err));
    CHECK_ERR(comm_tree_sum(comm, data, 2, &err), ERR_UNSUPPORTED, "2 ranks without MPI");
    CHECK_ERR(comm_exchange(comm, data, data, 4, &err), ERR_UNSUPPORTED, "mpirun");
    CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_ARGUMENT, "without a base need an id");
    CHECK_ERR(comm_device_sum(comm, data, 2, NULL, &err), ERR_UNAVAILABLE,
              "rank 1 of 2 is not connected");
    comm_close(comm);
    CHECK_ERR(comm_device_failed(comm_single(), &err), ERR_UNSUPPORTED, "\"single\"");
}
END_TEST

static void swap_with_nobody(struct comm *comm)
{
    struct error err;
    float data[2] = {1, 2}, theirs[2];
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_ERR(comm_device_swap(comm, comm->rank, data, theirs, 2, NULL, &err), ERR_ARGUMENT,
              "cannot swap with rank");
    CHECK_ERR(comm_device_swap(comm, 2, data, theirs, 2, NULL, &err), ERR_ARGUMENT,
              "of 2 cannot swap with rank 2");
    CHECK_OK(comm_device_swap(comm, !comm->rank, data, theirs, 2, NULL, &err));
    ck_assert(theirs[1] == 2);
}

START_TEST(nccl_swap_without_a_partner_is_refused_and_harms_nobody)
{
    run_ranks(2, 0, swap_with_nobody);
    check_counts(2, 2, 0);
}
END_TEST

static void add_good(TCase *cases)
{
    tcase_add_test(cases, nccl_tree_sum_of_swaps_has_the_bits_of_comm_tree_sum);
    tcase_add_test(cases, nccl_gather_is_in_rank_order_and_a_tree_over_it_has_the_promised_bits);
    tcase_add_test(cases, nccl_gathers_in_place_follow_each_other);
    tcase_add_test(cases, nccl_plain_sum_is_near_the_tree_and_not_its_bits);
    tcase_add_test(cases, nccl_exchange_is_the_base_s);
    tcase_add_test(cases, nccl_processes_connect_with_an_id_and_no_base);
    tcase_add_test(cases, nccl_swap_without_a_partner_is_refused_and_harms_nobody);
}

static void add_refused(TCase *cases)
{
    tcase_add_test(cases, nccl_without_a_library_is_refused_by_name);
    tcase_add_test(cases, nccl_that_lacks_a_symbol_or_is_old_is_refused);
    tcase_add_test(cases, nccl_ranks_that_do_not_fit_are_refused);
    tcase_add_test(cases, nccl_without_base_has_no_host_collectives);
}

int main(void)
{
    Suite *suite = suite_create("comm_nccl");
    TCase *good = tcase_create("good"), *refused = tcase_create("refused");
    add_good(good);
    add_refused(refused);
    suite_add_tcase(suite, good);
    suite_add_tcase(suite, refused);
    return check_main(suite);
}
