/* ctest: labels=quick,threads libs=comm timeout=60 */
/* The group of one rank and the group of threads: the fixed bits, the order of ranks, and no rank
 * that waits without end when another one aborts, leaves or disagrees. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "base/rng.h"
#include "comm/comm.h"
#include "comm/comm_tree.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { MAX_RANKS = 16 };

/* Values over a wide range of exponents, so that another order of additions gives other bits. */
static float value_of(int rank, size_t i)
{
    struct rng_address at = {.seed = 11, .position = (uint32_t)i, .round = (uint32_t)rank};
    double mantissa = rng_uniform(&at, RNG_WEIGHT, 0) - 0.5;
    int exponent = (int)(rng_uniform(&at, RNG_WEIGHT, 1) * 24) - 12;
    return (float)ldexp(mantissa, exponent);
}

/* The fixed order as a recursion, written independently of the code under test. */
static float tree_of(int first, int n_ranks, size_t i)
{
    int left = 1; /* the largest power of two below n_ranks */
    if (n_ranks == 1) return value_of(first, i);
    while (2 * left < n_ranks) {
        left *= 2;
    }
    return tree_of(first, left, i) + tree_of(first + left, n_ranks - left, i);
}

typedef void rank_fn(struct comm *comm);

struct rank_run {
    struct comm *comm;
    rank_fn *fn;
    pthread_t thread;
};

static void *rank_main(void *arg)
{
    struct rank_run *run = arg;
    run->fn(run->comm);
    comm_close(run->comm);
    return NULL;
}

static void run_ranks(int size, rank_fn *fn)
{
    struct error err;
    struct comm *comms[MAX_RANKS];
    struct rank_run runs[MAX_RANKS];
    CHECK_OK(comm_threads_open(comms, size, &err));
    for (int i = 0; i < size; i++) {
        ck_assert_int_eq(comms[i]->rank, i);
        ck_assert_int_eq(comms[i]->size, size);
        runs[i] = (struct rank_run){.comm = comms[i], .fn = fn};
        ck_assert_int_eq(pthread_create(&runs[i].thread, NULL, rank_main, &runs[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(runs[i].thread, NULL);
}

static void sum_all_sizes(struct comm *comm)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 4097, 20000};
    struct error err;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        size_t n = counts[c];
        float *data = malloc((n + 1) * sizeof *data);
        ck_assert_ptr_nonnull(data);
        for (size_t i = 0; i < n; i++)
            data[i] = value_of(comm->rank, i);
        data[n] = 12345.0F;
        CHECK_OK(comm_tree_sum(comm, data, n, &err));
        for (size_t i = 0; i < n; i++) {
            float expected = tree_of(0, comm->size, i);
            if (memcmp(&data[i], &expected, sizeof expected) == 0) continue;
            ck_abort_msg("rank %d of %d, element %zu of %zu: %a instead of %a", comm->rank,
                         comm->size, i, n, (double)data[i], (double)expected);
        }
        ck_assert(data[n] == 12345.0F);
        free(data);
    }
}

START_TEST(threads_tree_sum_has_the_promised_bits_on_every_rank)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        run_ranks(size, sum_all_sizes);
}
END_TEST

START_TEST(the_test_data_tells_the_tree_from_a_chain)
{
    int n_different = 0;
    for (size_t i = 0; i < 1000; i++) {
        float chain = value_of(0, i);
        for (int rank = 1; rank < 8; rank++)
            chain += value_of(rank, i);
        n_different += chain != tree_of(0, 8, i);
    }
    ck_assert_int_gt(n_different, 300);
}
END_TEST

static void exchange_many(struct comm *comm)
{
    struct error err;
    for (int round = 0; round < 300; round++) {
        int32_t mine[3] = {comm->rank, round, comm->rank * round};
        int32_t all[3 * MAX_RANKS];
        CHECK_OK(comm_exchange(comm, mine, all, sizeof mine, &err));
        for (int i = 0; i < comm->size; i++) {
            ck_assert(all[3 * i] == i && all[3 * i + 1] == round && all[3 * i + 2] == i * round);
        }
    }
    CHECK_OK(comm_exchange(comm, NULL, NULL, 0, &err));
}

START_TEST(threads_exchange_keeps_rank_order)
{
    for (int size = 1; size <= 8; size++)
        run_ranks(size, exchange_many);
}
END_TEST

static void sum_many(struct comm *comm)
{
    struct error err;
    float data[33];
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < 33; i++)
            data[i] = (float)(comm->rank + round);
        CHECK_OK(comm_tree_sum(comm, data, 33, &err));
        float expected = (float)(comm->size * (comm->size - 1) / 2 + comm->size * round);
        ck_assert(data[0] == expected && data[32] == expected);
    }
}

START_TEST(threads_sums_follow_each_other_without_mixing)
{
    run_ranks(4, sum_many);
}
END_TEST

static struct comm *_Atomic waiting; /* rank 0's */

static void wait_for_rank_1(struct comm *comm)
{
    struct error err;
    float data[2] = {1, 2};
    if (comm->rank == 0) {
        ck_assert(!comm_is_waiting(comm));
        waiting = comm;
    } else {
        for (int ms = 0; (!waiting || !comm_is_waiting(waiting)) && ms < 20000; ms++)
            sleep_ms(1);
        ck_assert(waiting && comm_is_waiting(waiting));
    }
    CHECK_OK(comm_tree_sum(comm, data, 2, &err));
    ck_assert(!comm_is_waiting(comm));
}

START_TEST(threads_waiting_rank_is_reported)
{
    run_ranks(2, wait_for_rank_1);
}
END_TEST

static void abort_by_rank_2(struct comm *comm)
{
    struct error err;
    float data[4] = {1, 2, 3, 4};
    CHECK_OK(comm_tree_sum(comm, data, 4, &err));
    if (comm->rank == 2) {
        sleep_ms(30); /* the others wait in the sum by now */
        comm_abort(comm, 17);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_ERR(comm_tree_sum(comm, data, 4, &err), ERR_UNAVAILABLE,
                  "rank 2 took the group down with status 17");
        CHECK_ERR(comm_exchange(comm, data, data, 4, &err), ERR_UNAVAILABLE, "rank 2");
    }
}

START_TEST(threads_abort_fails_waiting_and_later_calls_of_every_rank)
{
    run_ranks(4, abort_by_rank_2);
}
END_TEST

static void close_by_rank_1(struct comm *comm)
{
    struct error err;
    float data[2] = {1, 2};
    CHECK_OK(comm_tree_sum(comm, data, 2, &err));
    if (comm->rank == 1) {
        sleep_ms(20);
        return;
    }
    CHECK_ERR(comm_tree_sum(comm, data, 2, &err), ERR_UNAVAILABLE, "have left");
}

START_TEST(threads_rank_that_closes_leaves_nobody_waiting)
{
    run_ranks(4, close_by_rank_1);
}
END_TEST

static void disagree(struct comm *comm)
{
    struct error err;
    float data[8] = {0}, all[32];
    CHECK_ERR(comm_tree_sum(comm, data, comm->rank == 3 ? 8 : 4, &err), ERR_INTERNAL, "rank 3");
    int rc = comm->rank == 0 ? comm_exchange(comm, data, all, 4, &err)
                             : comm_tree_sum(comm, data, 4, &err);
    ck_assert_int_eq(rc, ERR_INTERNAL);
    CHECK_OK(comm_tree_sum(comm, data, 8, &err));
}

START_TEST(threads_ranks_that_disagree_all_get_the_error)
{
    run_ranks(4, disagree);
}
END_TEST

START_TEST(threads_sizes_that_are_no_group_are_refused)
{
    static const int sizes[] = {0, -4, 65, 128};
    struct error err;
    struct comm *comms[MAX_RANKS];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK_ERR(comm_threads_open(comms, sizes[i], &err), ERR_ARGUMENT, "must be 1 to 64");
    }
}
END_TEST

/* As comm_mpi.c sums, without MPI: who sends to whom fits together, and every rank gets the sum. */
START_TEST(turns_of_any_number_of_ranks_meet_and_give_the_tree)
{
    for (int size = 1; size <= MAX_RANKS; size++) {
        float sums[MAX_RANKS], next[MAX_RANKS];
        for (int rank = 0; rank < size; rank++) {
            sums[rank] = value_of(rank, 3);
        }
        for (int distance = 1; distance < size; distance *= 2) {
            int n_got[MAX_RANKS] = {0};
            memcpy(next, sums, sizeof sums);
            for (int rank = 0; rank < size; rank++) {
                struct comm_tree_turn turn = comm_tree_turn_of(rank, size, distance);
                for (int i = 0; i < turn.n_to; i++) {
                    int to = turn.first_to + i * turn.step_to;
                    ck_assert_int_eq(comm_tree_turn_of(to, size, distance).from, rank);
                    n_got[to]++;
                    next[to] += sums[rank];
                }
            }
            for (int rank = 0; rank < size; rank++) {
                bool gets = comm_tree_turn_of(rank, size, distance).from >= 0;
                ck_assert_int_eq(n_got[rank], gets ? 1 : 0);
            }
            memcpy(sums, next, sizeof sums);
        }
        for (int rank = 0; rank < size; rank++) {
            ck_assert(sums[rank] == tree_of(0, size, 3));
        }
    }
}
END_TEST

START_TEST(single_group_is_the_identity)
{
    struct error err;
    float data[3] = {1, 2, 3}, all[3] = {0};
    struct comm *comm = comm_single();
    ck_assert_int_eq(comm->size, 1);
    CHECK_OK(comm_tree_sum(comm, data, 3, &err));
    CHECK_OK(comm_exchange(comm, data, all, sizeof data, &err));
    ck_assert(all[2] == 3.0F);
    comm_close(comm);
    comm_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *cases = tcase_create("threads");
    tcase_add_test(cases, threads_tree_sum_has_the_promised_bits_on_every_rank);
    tcase_add_test(cases, the_test_data_tells_the_tree_from_a_chain);
    tcase_add_test(cases, threads_exchange_keeps_rank_order);
    tcase_add_test(cases, threads_sums_follow_each_other_without_mixing);
    tcase_add_test(cases, threads_waiting_rank_is_reported);
    tcase_add_test(cases, threads_abort_fails_waiting_and_later_calls_of_every_rank);
    tcase_add_test(cases, threads_rank_that_closes_leaves_nobody_waiting);
    tcase_add_test(cases, threads_ranks_that_disagree_all_get_the_error);
    tcase_add_test(cases, threads_sizes_that_are_no_group_are_refused);
    tcase_add_test(cases, turns_of_any_number_of_ranks_meet_and_give_the_tree);
    tcase_add_test(cases, single_group_is_the_identity);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
