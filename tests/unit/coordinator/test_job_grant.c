/* ctest: labels=quick libs=coordinator timeout=30 */
/* Properties that the grant of a key gives a job: its client, its share, its class, and the number
 * of jobs that its holder has. */
#include "access/keys.h"
#include "coordinator/job/job.h"
#include "tests/support/check_util.h"

static struct grant holder;
static struct error err;

static bool never(const struct reply *reply)
{
    (void)reply;
    return false;
}

static void close_reply(struct reply *reply)
{
    (void)reply;
}

static void take_failure(struct reply *reply, int code, const char *text)
{
    (void)reply, (void)text;
    ck_assert_int_eq(code, ERR_TIMEOUT);
}

static const struct reply_ops ops = {
    .is_cancelled = never, .fail = take_failure, .close = close_reply};
static struct reply reply = {.ops = &ops};

static void setup(void)
{
    holder = (struct grant){.name = "alice",
                            .weight = 3,
                            .max_jobs = 2,
                            .max_priority = KEY_PRIORITY_NORMAL,
                            .n_refs = 1};
}

static struct job *open_job(enum job_kind kind, enum job_class job_class)
{
    struct job *job;
    CHECK_OK(job_open(&job, kind, &err));
    job->reply = &reply;
    job->generate.client = "whoever";
    job->generate.job_class = job_class;
    return job;
}

START_TEST(job_without_a_grant_waits_as_its_request_says)
{
    struct job *job = open_job(JOB_GENERATE, JOB_CLASS_HIGH);
    CHECK_OK(job_hold_grant(job, NULL, &err));
    ck_assert_str_eq(job_client(job), "whoever");
    ck_assert_int_eq(job_weight(job), 0);
    ck_assert_int_eq(job_class_of(job), JOB_CLASS_HIGH);
    job_free(job);
    job = open_job(JOB_SCORE, JOB_CLASS_HIGH);
    ck_assert_str_eq(job_client(job), "whoever");
    ck_assert_int_eq(job_class_of(job), JOB_CLASS_HIGH);
    job_free(job);
    CHECK_OK(job_open(&job, JOB_SCORE, &err)); /* of gRPC: it has nothing of a generation */
    job->reply = &reply;
    ck_assert_str_eq(job_client(job), "");
    ck_assert_int_eq(job_class_of(job), JOB_CLASS_NORMAL);
    job_free(job);
}
END_TEST

START_TEST(grant_overrides_client_weight_and_class_of_the_request)
{
    static const enum job_class wanted[] = {JOB_CLASS_LOW, JOB_CLASS_NORMAL, JOB_CLASS_HIGH};
    static const enum job_class given[N_KEY_PRIORITIES][3] = {
        [KEY_PRIORITY_LOW] = {JOB_CLASS_LOW, JOB_CLASS_LOW, JOB_CLASS_LOW},
        [KEY_PRIORITY_NORMAL] = {JOB_CLASS_LOW, JOB_CLASS_NORMAL, JOB_CLASS_NORMAL},
        [KEY_PRIORITY_HIGH] = {JOB_CLASS_LOW, JOB_CLASS_NORMAL, JOB_CLASS_HIGH}};
    for (int most = 0; most < N_KEY_PRIORITIES; most++) {
        for (int i = 0; i < 3; i++) {
            struct job *job = open_job(JOB_GENERATE, wanted[i]);
            holder.max_priority = most;
            CHECK_OK(job_hold_grant(job, &holder, &err));
            ck_assert_str_eq(job_client(job), "alice");
            ck_assert_int_eq(job_weight(job), 3);
            ck_assert_int_eq(job_class_of(job), given[most][i]);
            job_free(job);
        }
    }
}
END_TEST

START_TEST(jobs_of_a_holder_are_counted_until_they_are_freed)
{
    struct job *jobs[2], *more = open_job(JOB_SCORE, JOB_CLASS_NORMAL);
    for (int i = 0; i < 2; i++) {
        jobs[i] = open_job(JOB_GENERATE, JOB_CLASS_NORMAL);
        CHECK_OK(job_hold_grant(jobs[i], &holder, &err));
    }
    ck_assert_int_eq(holder.n_refs, 3);
    CHECK_ERR(job_hold_grant(more, &holder, &err), ERR_EXHAUSTED, "allows 2 requests at once");
    ck_assert_ptr_null(more->grant);
    job_free(jobs[0]);
    CHECK_OK(job_hold_grant(more, &holder, &err));
    job_free(jobs[1]);
    job_free(more);
    ck_assert_int_eq(holder.n_jobs, 0);
    ck_assert_int_eq(holder.n_refs, 1);
}
END_TEST

/* A step that hangs may keep the job itself. */
START_TEST(a_job_that_has_ended_is_not_counted)
{
    struct job *jobs[3];
    struct error why;
    error_set(&why, ERR_TIMEOUT, "the request's time is over");
    for (int i = 0; i < 2; i++) {
        jobs[i] = open_job(JOB_GENERATE, JOB_CLASS_NORMAL);
        CHECK_OK(job_hold_grant(jobs[i], &holder, &err));
    }
    jobs[2] = open_job(JOB_GENERATE, JOB_CLASS_NORMAL);
    CHECK_ERR(job_hold_grant(jobs[2], &holder, &err), ERR_EXHAUSTED, "at once");
    job_end(jobs[0], JOB_END_DEADLINE, why.code, &why);
    ck_assert_int_eq(holder.n_jobs, 1);
    CHECK_OK(job_hold_grant(jobs[2], &holder, &err));
    for (int i = 0; i < 3; i++) {
        job_free(jobs[i]);
    }
    ck_assert_int_eq(holder.n_jobs, 0);
    ck_assert_int_eq(holder.n_refs, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job_grant");
    TCase *grants = tcase_create("grants");
    tcase_add_checked_fixture(grants, setup, NULL);
    tcase_add_test(grants, job_without_a_grant_waits_as_its_request_says);
    tcase_add_test(grants, grant_overrides_client_weight_and_class_of_the_request);
    tcase_add_test(grants, jobs_of_a_holder_are_counted_until_they_are_freed);
    tcase_add_test(grants, a_job_that_has_ended_is_not_counted);
    suite_add_tcase(suite, grants);
    return check_main(suite);
}
