/* ctest: labels=quick,threads libs=base timeout=60 */
/* The team: every member works exactly once per job, results are visible after the join, an idle
 * team sleeps, and shared work is handed out exactly once. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads/team.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { MAX_MEMBERS = 5, N_ITEMS = 1003 };

struct tally {
    int calls[MAX_MEMBERS]; /* not atomic: the join must order the accesses */
    int items[N_ITEMS];
    int n_members;
};

static void count_call(void *arg, int member, int n_members)
{
    struct tally *tally = arg;
    tally->calls[member]++;
    if (member == 0) tally->n_members = n_members;
    int begin, end;
    team_range(N_ITEMS, 16, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++)
        tally->items[i]++;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* All work must have been done exactly `job` times. */
static bool tally_is(const struct tally *tally, int n_members, int job)
{
    int n_wrong = tally->n_members != n_members;
    for (int i = 0; i < n_members; i++)
        n_wrong += tally->calls[i] != job;
    for (int i = 0; i < N_ITEMS; i++)
        n_wrong += tally->items[i] != job;
    return n_wrong == 0;
}

static void run_jobs(int n_members, int spin_us, int n_jobs)
{
    struct error err;
    struct team *team;
    struct tally tally = {0};
    CHECK_OK(team_open(&team, n_members, spin_us, &err));
    ck_assert_int_eq(team_size(team), n_members);
    for (int job = 1; job <= n_jobs; job++) {
        team_run(team, count_call, &tally);
        if (!tally_is(&tally, n_members, job)) ck_abort_msg("job %d was not done once", job);
    }
    team_close(team);
}

START_TEST(team_every_member_runs_every_job_once_when_sleeping)
{
    for (int n = 1; n <= MAX_MEMBERS; n++)
        run_jobs(n, 0, 200);
}
END_TEST

START_TEST(team_every_member_runs_every_job_once_when_spinning)
{
    run_jobs(1, 50, 20);
    run_jobs(2, 50, 1000);
}
END_TEST

START_TEST(team_of_more_members_than_processors_still_joins)
{
    run_jobs(MAX_MEMBERS, 100, 200);
}
END_TEST

static void wait_random(void *arg, int member, int n_members)
{
    struct tally *tally = arg;
    uint32_t hash = (uint32_t)(tally->calls[member]++ * 7919 + member * 104729);
    (void)n_members;
    sleep_us(hash % 100);
}

/* Jobs and pauses about as long as the spin: every mix of spinning and sleeping sides occurs. */
START_TEST(team_loses_no_wake_up_at_the_edge_of_sleep)
{
    struct error err;
    struct team *team;
    struct tally tally = {0};
    CHECK_OK(team_open(&team, 2, 60, &err));
    for (int i = 0; i < 1000; i++) {
        team_run(team, wait_random, &tally);
        sleep_us(i * 37 % 120);
    }
    ck_assert_int_eq(tally.calls[0], 1000);
    ck_assert_int_eq(tally.calls[1], 1000);
    team_close(team);
}
END_TEST

START_TEST(team_idle_costs_no_processor_time)
{
    struct error err;
    struct team *team;
    struct tally tally = {0};
    CHECK_OK(team_open(&team, 2, 100, &err));
    team_run(team, count_call, &tally);
    sleep_ms(20);
    double before = cpu_seconds();
    sleep_ms(300);
    ck_assert_msg(cpu_seconds() - before < 0.03, "an idle team used %f s of 0.3 s",
                  cpu_seconds() - before);
    team_close(team);
}
END_TEST

START_TEST(team_refuses_nonsense_and_closes_nothing)
{
    struct error err;
    struct team *team;
    CHECK_ERR(team_open(&team, 0, 0, &err), ERR_ARGUMENT, "team of 0 threads");
    ck_assert_ptr_null(team);
    CHECK_ERR(team_open(&team, 2, -1, &err), ERR_ARGUMENT, "-1 us");
    team_close(NULL);
}
END_TEST

static bool range_covers(int n_items, int unit, int n_members)
{
    int expected = 0;
    for (int member = 0; member < n_members; member++) {
        int begin, end;
        team_range(n_items, unit, member, n_members, &begin, &end);
        if (begin != expected || end < begin) return false;
        if (begin % unit && begin != n_items) return false;
        expected = end;
    }
    return expected == n_items;
}

/* ---- shared work ---- */

enum { GRID_MAX = 4096 };

struct shared {
    struct team *team;
    int n_columns, n_rows;
    bool is_static;                  /* every member computes its own range */
    int slow_member;                 /* -1: none */
    atomic_int n_done;               /* units */
    atomic_int done[GRID_MAX];       /* how often each unit was handed out */
    atomic_int n_complete[GRID_MAX]; /* how often each column was complete */
    atomic_int n_early;              /* columns told complete before they were */
    atomic_int n_helped;             /* units of the slow member that others computed */
};

static void tell_complete(struct shared *work, const struct team_share *share)
{
    for (int column = share->range_begin; column < share->range_end; column++) {
        work->n_complete[column]++;
        for (int row = 0; row < work->n_rows; row++) {
            if (!work->done[row * work->n_columns + column]) work->n_early++;
        }
    }
}

/* Until there is nothing left but what this member has taken already. */
static void wait_for_others(const struct shared *work, const struct team_share *share)
{
    while (work->n_done < work->n_columns * work->n_rows - (share->until - share->at))
        sleep_ms(1);
}

static void do_shared(void *arg, int member, int n_members)
{
    struct shared *work = arg;
    struct team_share share = team_share_begin(work->is_static ? NULL : work->team, member,
                                               n_members, work->n_columns, work->n_rows);
    while (team_share_next(&share)) {
        if (share.owner != member && work->is_static) ck_abort_msg("member %d helped", member);
        for (int i = share.begin; i < share.end; i++)
            work->done[share.row * work->n_columns + i]++;
        if (share.owner == work->slow_member && member != share.owner) {
            work->n_helped += share.end - share.begin;
        }
        work->n_done += share.end - share.begin;
        if (member == work->slow_member) wait_for_others(work, &share);
        if (team_share_completes(&share)) tell_complete(work, &share);
    }
}

/* Everything must have been handed out exactly once. */
static void check_shared(const struct shared *work)
{
    ck_assert_int_eq(work->n_early, 0);
    for (int i = 0; i < work->n_columns * work->n_rows; i++) {
        ck_assert_msg(work->done[i] == 1, "%d columns, %d rows: unit %d was handed out %d times",
                      work->n_columns, work->n_rows, i, work->done[i]);
    }
    for (int i = 0; i < work->n_columns; i++)
        ck_assert_int_eq(work->n_complete[i], 1);
}

static void run_shared(struct team *team, int n_columns, int n_rows, bool is_static)
{
    struct shared work = {.team = team,
                          .n_columns = n_columns,
                          .n_rows = n_rows,
                          .is_static = is_static,
                          .slow_member = -1};
    team_run(team, do_shared, &work);
    check_shared(&work);
}

START_TEST(shared_work_is_handed_out_exactly_once)
{
    static const int columns[] = {0, 1, 2, 3, 5, 48, 501}, rows[] = {1, 2, 8};
    for (int n = 1; n <= MAX_MEMBERS; n++) {
        struct error err;
        struct team *team;
        CHECK_OK(team_open(&team, n, 50, &err));
        for (int i = 0; i < 300; i++) { /* other jobs between, as in a step */
            run_shared(team, columns[i % 7], rows[i % 3], i % 11 == 10);
            struct tally tally = {0};
            for (int k = 0; k < i % 3; k++)
                team_run(team, count_call, &tally);
        }
        team_close(team);
    }
    struct shared alone = {.n_columns = 7, .n_rows = 3, .slow_member = -1};
    do_shared(&alone, 0, 1);
    check_shared(&alone);
}
END_TEST

/* Member 1 takes a quarter of its 24 units and then waits for all the others. */
START_TEST(shared_work_of_a_slow_member_is_done_by_others)
{
    struct error err;
    struct team *team;
    struct shared work = {.n_columns = 9, .n_rows = 8, .slow_member = 1};
    CHECK_OK(team_open(&team, 3, 50, &err));
    work.team = team;
    team_run(team, do_shared, &work);
    check_shared(&work);
    ck_assert_int_ge(work.n_helped, 18);
    team_close(team);
}
END_TEST

START_TEST(team_range_covers_every_item_once_in_whole_units)
{
    static const int units[] = {1, 3, 16, 64};
    for (int n_members = 1; n_members <= 9; n_members++) {
        for (int n_items = 0; n_items < 200; n_items++) {
            for (int u = 0; u < 4; u++) {
                if (!range_covers(n_items, units[u], n_members)) {
                    ck_abort_msg("%d items of unit %d, %d members", n_items, units[u], n_members);
                }
            }
        }
    }
}
END_TEST

START_TEST(team_range_is_even_and_does_not_overflow)
{
    int begin, end;
    team_range(INT32_MAX, 16, 7, 8, &begin, &end);
    ck_assert_int_eq(end, INT32_MAX);
    ck_assert_int_gt(begin, INT32_MAX / 8 * 7 - 32);
    team_range(160, 16, 1, 3, &begin, &end);
    ck_assert_int_eq(begin, 48);
    ck_assert_int_eq(end, 96);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("team");
    TCase *team = tcase_create("team");
    tcase_add_test(team, team_every_member_runs_every_job_once_when_sleeping);
    tcase_add_test(team, team_every_member_runs_every_job_once_when_spinning);
    tcase_add_test(team, team_of_more_members_than_processors_still_joins);
    tcase_add_test(team, team_loses_no_wake_up_at_the_edge_of_sleep);
    tcase_add_test(team, team_idle_costs_no_processor_time);
    tcase_add_test(team, team_refuses_nonsense_and_closes_nothing);
    tcase_add_test(team, shared_work_is_handed_out_exactly_once);
    tcase_add_test(team, shared_work_of_a_slow_member_is_done_by_others);
    tcase_add_test(team, team_range_covers_every_item_once_in_whole_units);
    tcase_add_test(team, team_range_is_even_and_does_not_overflow);
    suite_add_tcase(suite, team);
    return check_main(suite);
}
