/* ctest: labels=quick,threads,slow libs=comm_nccl timeout=60 */
/* Ranks on devices that fail, over tests/support/fake_nccl.c. Each kind of failure ends in time,
 * with its own text, and with as many aborts as communicators that failed. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/device_ranks.h"

static void run_fault(const char *fault, rank_fn *fn)
{
    setenv("FAKE_NCCL_FAULT", fault, 1);
    run_ranks(2, SHORT_MS, fn);
}

static void no_id(struct comm *comm)
{
    struct error err;
    CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_UNAVAILABLE,
              comm->rank ? "rank 0 has no NCCL id" : "unhandled system error: the fake was told");
}

START_TEST(nccl_rank_0_without_an_id_tells_all)
{
    run_fault("no_id", no_id);
    ck_assert_int_eq(count_of("Init"), 0);
    check_counts(0, 0, 0);
}
END_TEST

static void init_refused(struct comm *comm)
{
    struct error err;
    if (comm->rank == 1) {
        CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_UNAVAILABLE,
                  "ncclCommInitRankConfig failed on rank 1 of 2: unhandled cuda error");
    } else {
        CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_TIMEOUT, "after 300 ms: a rank has not");
    }
}

START_TEST(nccl_rank_that_cannot_start_leaves_the_others_waiting_until_the_deadline)
{
    run_fault("init_refused@1", init_refused);
    check_counts(0, 0, 1); /* rank 1 had nothing to abort */
}
END_TEST

static void init_hangs(struct comm *comm)
{
    struct error err;
    int64_t start_ms = clock_now_ms();
    CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_TIMEOUT,
              "ncclCommInitRankConfig has not ended on rank");
    ck_assert_int_ge(clock_now_ms() - start_ms, SHORT_MS);
    CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_TIMEOUT, "has not ended");
}

START_TEST(nccl_init_that_never_completes_ends_at_the_deadline)
{
    run_fault("init_hang@1", init_hangs);
    check_counts(0, 0, 2);
}
END_TEST

START_TEST(nccl_rank_that_never_comes_ends_the_others_at_the_deadline)
{
    struct error err;
    struct comm *comm;
    struct comm_nccl_id id;
    const struct comm_nccl_options options = {.path = FAKE, .timeout_ms = SHORT_MS};
    CHECK_OK(comm_nccl_open_take(&comm, NULL, 0, 4, &options, &err));
    CHECK_OK(comm_nccl_make_id(comm, &id, &err));
    int64_t start_ms = clock_now_ms();
    CHECK_ERR(comm_nccl_connect(comm, &id, &err), ERR_TIMEOUT, "on rank 0 of 4 after 300 ms");
    ck_assert_int_lt(clock_now_ms() - start_ms, LATE_MS);
    check_counts(0, 0, 1);
    comm_close(comm);
    check_counts(0, 0, 1);
}
END_TEST

static void init_fails_later(struct comm *comm)
{
    struct error err;
    if (comm->rank == 1) {
        CHECK_ERR(comm_nccl_connect(comm, NULL, &err), ERR_UNAVAILABLE,
                  "unhandled system error: the fake was told to fail on this rank");
    } else {
        CHECK_OK(comm_nccl_connect(comm, NULL, &err)); /* and close does not touch it again */
    }
}

START_TEST(nccl_close_without_the_others_ends_at_the_deadline_with_an_abort)
{
    run_fault("init_error@1", init_fails_later);
    check_counts(1, 0, 2);
}
END_TEST

static void fails_after_call_3(struct comm *comm)
{
    struct error err;
    float data[4] = {1, 2, 3, 4};
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(comm_device_sum(comm, data, 4, NULL, &err));
        CHECK_OK(comm_device_failed(comm, &err));
    }
    CHECK_OK(comm_device_sum(comm, data, 4, NULL, &err));
    CHECK_ERR(comm_device_failed(comm, &err), ERR_UNAVAILABLE, "a collective failed on rank ");
    const char *last = comm->rank ? "rank 1 of 2: remote process exited" : "rank 0 of 2: remote";
    CHECK_ERR(comm_device_failed(comm, &err), ERR_UNAVAILABLE, last);
    CHECK_ERR(comm_device_sum(comm, data, 4, NULL, &err), ERR_UNAVAILABLE, last);
    CHECK_ERR(comm_device_gather(comm, data, data, 1, NULL, &err), ERR_UNAVAILABLE, last);
    CHECK_ERR(comm_device_swap(comm, 0, data, data, 1, NULL, &err), ERR_UNAVAILABLE, last);
}

START_TEST(nccl_async_error_is_found_at_the_end_of_the_step_and_stays)
{
    run_fault("async:3", fails_after_call_3);
    check_counts(0, 0, 2);
}
END_TEST

static void call_is_refused(struct comm *comm)
{
    struct error err;
    float data[4] = {1, 2, 3, 4}, theirs[4];
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_device_swap(comm, !comm->rank, data, theirs, 4, NULL, &err));
    if (comm->rank == 0) {
        CHECK_ERR(comm_device_swap(comm, 1, data, theirs, 4, NULL, &err), ERR_INTERNAL,
                  "a swap (ncclSend, ncclRecv) failed on rank 0 of 2: invalid argument or usage");
    } else {
        CHECK_ERR(comm_device_swap(comm, 0, data, theirs, 4, NULL, &err), ERR_TIMEOUT, "hangs");
    }
}

START_TEST(nccl_refused_call_of_one_rank_ends_both)
{
    run_fault("call_refused:2@0", call_is_refused);
    check_counts(0, 0, 2);
}
END_TEST

static void send_is_refused(struct comm *comm)
{
    struct error err;
    float data[4] = {1, 2, 3, 4}, theirs[4];
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_device_swap(comm, !comm->rank, data, theirs, 4, NULL, &err));
    CHECK_ERR(comm_device_swap(comm, !comm->rank, data, theirs, 4, NULL, &err), ERR_INTERNAL,
              "a swap (ncclSend, ncclRecv) failed");
}

START_TEST(nccl_refused_half_of_a_swap_is_a_failure_of_the_swap)
{
    run_fault("send_refused:2", send_is_refused);
    check_counts(0, 0, 2);
}
END_TEST

static void disagree(struct comm *comm)
{
    struct error err;
    float data[8] = {0}, theirs[8];
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    int rc = comm_device_swap(comm, !comm->rank, data, theirs, comm->rank ? 4 : 5, NULL, &err);
    ck_assert(rc == ERR_INTERNAL || rc == ERR_TIMEOUT);
}

START_TEST(nccl_swap_of_two_sizes_does_not_hang)
{
    run_ranks(2, SHORT_MS, disagree);
    check_counts(0, 0, 2);
}
END_TEST

static void call_hangs(struct comm *comm)
{
    struct error err;
    float data[4] = {1, 2, 3, 4}, all[8];
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_device_gather(comm, data, all, 4, NULL, &err));
    CHECK_ERR(comm_device_gather(comm, data, all, 4, NULL, &err), ERR_TIMEOUT,
              "ncclAllGather has not ended on rank");
}

START_TEST(nccl_call_that_hangs_ends_at_the_deadline)
{
    run_fault("call_hang:2", call_hangs);
    check_counts(0, 0, 2);
}
END_TEST

static void connect_only(struct comm *comm)
{
    struct error err;
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
}

START_TEST(nccl_finalize_that_hangs_becomes_an_abort)
{
    run_fault("finalize_hang@1", connect_only);
    check_counts(2, 1, 1);
}
END_TEST

START_TEST(nccl_destroy_that_does_not_return_does_not_hold_up_close)
{
    run_fault("destroy_hang", connect_only);
    check_counts(2, 2, 0);
}
END_TEST

START_TEST(nccl_abort_that_does_not_return_does_not_hold_up_its_caller)
{
    setenv("FAKE_NCCL_FAULT", "abort_hang", 1);
    struct error err;
    struct comm *comm;
    struct comm_nccl_id id;
    const struct comm_nccl_options options = {.path = FAKE, .timeout_ms = SHORT_MS};
    CHECK_OK(comm_nccl_open_take(&comm, NULL, 0, 2, &options, &err));
    CHECK_OK(comm_nccl_make_id(comm, &id, &err));
    int64_t start_ms = clock_now_ms();
    CHECK_ERR(comm_nccl_connect(comm, &id, &err), ERR_TIMEOUT, "has not come");
    comm_close(comm);
    ck_assert_int_lt(clock_now_ms() - start_ms, LATE_MS);
    check_counts(0, 0, 1);
    unlink((const char *)id.bytes); /* the fake's file, which an abort would have removed */
}
END_TEST

static void abort_by_rank_1(struct comm *comm)
{
    struct error err;
    float data[2] = {1, 2};
    CHECK_OK(comm_nccl_connect(comm, NULL, &err));
    CHECK_OK(comm_device_sum(comm, data, 2, NULL, &err));
    if (comm->rank == 1) {
        comm_abort(comm, 17);
        CHECK_ERR(comm_device_sum(comm, data, 2, NULL, &err), ERR_UNAVAILABLE,
                  "rank 1 took the group down with status 17");
    } else {
        CHECK_ERR(comm_device_sum(comm, data, 2, NULL, &err), ERR_TIMEOUT, "on rank 0");
    }
    CHECK_ERR(comm_tree_sum(comm, data, 2, &err), ERR_UNAVAILABLE, "rank 1 took the group down");
}

START_TEST(nccl_abort_of_the_group_reaches_device_and_base)
{
    run_ranks(2, SHORT_MS, abort_by_rank_1);
    check_counts(0, 0, 2);
}
END_TEST

START_TEST(nccl_abort_without_base_ends_the_process_with_its_status)
{
    int status = 0;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct error err;
        struct comm *comm;
        const struct comm_nccl_options options = {.path = FAKE};
        if (comm_nccl_open_take(&comm, NULL, 0, 2, &options, &err)) _exit(1);
        comm_abort(comm, 42);
        _exit(2);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm_nccl_faults");
    TCase *cases = tcase_create("faults");
    tcase_add_test(cases, nccl_rank_0_without_an_id_tells_all);
    tcase_add_test(cases, nccl_rank_that_cannot_start_leaves_the_others_waiting_until_the_deadline);
    tcase_add_test(cases, nccl_init_that_never_completes_ends_at_the_deadline);
    tcase_add_test(cases, nccl_rank_that_never_comes_ends_the_others_at_the_deadline);
    tcase_add_test(cases, nccl_close_without_the_others_ends_at_the_deadline_with_an_abort);
    tcase_add_test(cases, nccl_async_error_is_found_at_the_end_of_the_step_and_stays);
    tcase_add_test(cases, nccl_refused_call_of_one_rank_ends_both);
    tcase_add_test(cases, nccl_refused_half_of_a_swap_is_a_failure_of_the_swap);
    tcase_add_test(cases, nccl_swap_of_two_sizes_does_not_hang);
    tcase_add_test(cases, nccl_call_that_hangs_ends_at_the_deadline);
    tcase_add_test(cases, nccl_finalize_that_hangs_becomes_an_abort);
    tcase_add_test(cases, nccl_destroy_that_does_not_return_does_not_hold_up_close);
    tcase_add_test(cases, nccl_abort_that_does_not_return_does_not_hold_up_its_caller);
    tcase_add_test(cases, nccl_abort_of_the_group_reaches_device_and_base);
    tcase_add_test(cases, nccl_abort_without_base_ends_the_process_with_its_status);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
