/* Threads that run tasks, the budget that tasks share, and the monitor: every task runs once, the
 * limit holds, and nobody waits for ever. Thread sanitizer sees all of it. */
/* ctest: labels=quick,threads libs=base timeout=60 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/threads/monitor.h"
#include "base/threads/pool.h"
#include "tests/support/check_util.h"

enum { N_TASKS = 2000, N_THREADS = 3, LIMIT = 1000, PATIENCE_US = 30 * 1000000 };

static struct budget budget;
static struct monitor monitor;
static int n_done, n_refused; /* inside the monitor */
static atomic_int n_open;     /* the gate */

static void note(int *counter)
{
    monitor_enter(&monitor);
    (*counter)++;
    monitor_wake(&monitor);
    monitor_leave(&monitor);
}

/* Takes its bytes, if they are there, and gives them back. */
static void run_task(void *task)
{
    size_t bytes = *(size_t *)task;
    struct error err;
    free(task);
    if (budget_take(&budget, bytes, &err)) {
        ck_assert_int_eq(err.code, bytes > LIMIT ? ERR_ARGUMENT : ERR_EXHAUSTED);
        note(&n_refused);
    } else {
        ck_assert_uint_le(budget_used(&budget), LIMIT);
        budget_give(&budget, bytes);
        note(&n_done);
    }
}

static void setup(void)
{
    budget_init(&budget, LIMIT, "--limit");
    monitor_open(&monitor);
    n_done = n_refused = 0;
    atomic_store(&n_open, 0);
}

static void teardown(void)
{
    monitor_close(&monitor);
}

static void wait_for(int n)
{
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    monitor_enter(&monitor);
    while (n_done + n_refused < n) {
        ck_assert(monitor_wait(&monitor, deadline_us) || clock_now_us() < deadline_us);
    }
    monitor_leave(&monitor);
}

START_TEST(every_task_runs_once)
{
    struct error err;
    struct pool *pool;
    CHECK_OK(pool_open(&pool, N_THREADS, N_TASKS, &err));
    for (int i = 0; i < N_TASKS; i++) {
        size_t *bytes = malloc(sizeof *bytes);
        ck_assert_ptr_nonnull(bytes);
        *bytes = (size_t)i;
        CHECK_OK(pool_push(pool, run_task, bytes, &err));
    }
    wait_for(N_TASKS);
    pool_close(pool);
    ck_assert_int_eq(n_done + n_refused, N_TASKS);
    ck_assert_int_ge(n_refused, N_TASKS - LIMIT - 1); /* those that can never fit */
    ck_assert_uint_eq(budget_used(&budget), 0);
}
END_TEST

static void run_gated(void *task)
{
    (void)task;
    while (!atomic_load(&n_open)) {
        monitor_enter(&monitor);
        monitor_wait(&monitor, clock_now_us() + 1000);
        monitor_leave(&monitor);
    }
    note(&n_done);
}

START_TEST(a_full_queue_refuses_and_closing_runs_what_waits)
{
    struct error err;
    struct pool *pool;
    int n = 0;
    CHECK_OK(pool_open(&pool, 1, 4, &err));
    while (pool_push(pool, run_gated, NULL, &err) == 0) {
        ck_assert_int_lt(++n, 7);
    }
    ck_assert_int_eq(err.code, ERR_EXHAUSTED);
    ck_assert_int_ge(n, 4);
    atomic_store(&n_open, 1);
    pool_close(pool);
    ck_assert_int_eq(n_done, n);
}
END_TEST

START_TEST(the_budget_says_what_is_used_and_which_option_limits_it)
{
    struct error err;
    CHECK_OK(budget_take(&budget, 900, &err));
    CHECK_ERR(budget_take(&budget, 101, &err), ERR_EXHAUSTED,
              "occupy 900 bytes, and 101 more would exceed the 1000 of --limit");
    CHECK_OK(budget_take(&budget, 100, &err));
    budget_give(&budget, 1000);
    ck_assert_uint_eq(budget_used(&budget), 0);
}
END_TEST

START_TEST(a_wait_ends_at_its_deadline)
{
    monitor_enter(&monitor);
    int64_t deadline_us = clock_now_us() + 2000;
    while (monitor_wait(&monitor, deadline_us)) {
    }
    ck_assert_int_ge(clock_now_us(), deadline_us);
    monitor_leave(&monitor);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase = tcase_create("pool");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_task_runs_once);
    tcase_add_test(tcase, a_full_queue_refuses_and_closing_runs_what_waits);
    tcase_add_test(tcase, the_budget_says_what_is_used_and_which_option_limits_it);
    tcase_add_test(tcase, a_wait_ends_at_its_deadline);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
