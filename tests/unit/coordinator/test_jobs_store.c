/* The store of submitted jobs: keys, order, bounds, and many threads at once, which thread
 * sanitizer sees. */
/* ctest: labels=quick,threads libs=jobs timeout=60 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/store/jobs.h"
#include "tests/support/check_util.h"

enum { KEPT = 8, BYTES_MAX = 64 << 10, N_THREADS = 4, N_ROUNDS = 300, SPACE = 6 };

static struct jobs *jobs;
static struct error err;
static struct job_info info;
static struct buffer buf;
static bool existed;

static void setup(void)
{
    const struct jobs_options options = {.n_kept = KEPT, .bytes_max = BYTES_MAX, .run = 0xabc};
    CHECK_OK(jobs_open(&jobs, &options, &err));
}

static void teardown(void)
{
    jobs_close(jobs);
    buffer_free(&buf);
}

static struct job_submission submission(const char *key, uint64_t digest)
{
    return (struct job_submission){.owner = "",
                                   .key = key,
                                   .digest = {digest, 1},
                                   .request_id = "r",
                                   .n_sequences = 2,
                                   .n_prompt = 5,
                                   .request = (const uint8_t *)"x",
                                   .request_len = 1};
}

/* A job that the engine has. */
static struct job_info submitted(const char *key, uint64_t digest)
{
    struct job_info made;
    const struct job_submission s = submission(key, digest);
    CHECK_OK(jobs_submit(jobs, &s, &made, &existed, &err));
    jobs_admit(jobs, made.number, true);
    return made;
}

static int append(uint64_t number, int sequence, int n_tokens, const char *bytes)
{
    const struct job_message message = {.kind = JOB_MESSAGE_TOKENS,
                                        .sequence = sequence,
                                        .n_tokens = n_tokens,
                                        .data = (const uint8_t *)bytes,
                                        .len = strlen(bytes)};
    return jobs_append(jobs, number, &message, &err);
}

START_TEST(an_answer_is_read_as_it_was_appended)
{
    static const struct {
        int sequence, n, first;
        const char *bytes;
    } parts[] = {
        {0, 3, 0, "abc"}, {1, 1, 0, "d"}, {0, 2, 3, "efgh"}, {1, 0, 1, ""}, {1, 4, 1, "i"}};
    struct job_info job = submitted("", 1);
    struct job_message message;
    bool is_there;
    ck_assert_str_eq(job.id, "job-0000000000000abc-1");
    ck_assert_int_eq((int)job.state, JOB_STATE_WAITING);
    for (size_t i = 0; i < 5; i++) {
        CHECK_OK(append(job.number, parts[i].sequence, parts[i].n, parts[i].bytes));
    }
    for (size_t i = 0; i < 5; i++) {
        CHECK_OK(jobs_read(jobs, job.id, i, &buf, &message, &is_there, &info, &err));
        ck_assert(is_there);
        ck_assert_int_eq(message.sequence, parts[i].sequence);
        ck_assert_int_eq(message.n_tokens, parts[i].n);
        ck_assert_int_eq(message.first_token, parts[i].first);
        ck_assert_uint_eq(message.len, strlen(parts[i].bytes));
        if (message.len) ck_assert_mem_eq(message.data, parts[i].bytes, message.len);
    }
    CHECK_OK(jobs_read(jobs, job.id, 5, &buf, &message, &is_there, &info, &err));
    ck_assert(!is_there && info.state == JOB_STATE_RUNNING && info.n_tokens == 10);
    CHECK_ERR(append(job.number, 2, 1, "x"), ERR_INTERNAL, "sequence 2 has no place");
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    jobs_end(jobs, job.number, JOB_END_FAILED, ERR_INTERNAL, "a second end is ignored");
    CHECK_OK(jobs_find(jobs, "", job.id, &info, &err));
    ck_assert(info.state == JOB_STATE_ENDED && info.end == JOB_END_LENGTH && !info.error_code);
}
END_TEST

START_TEST(a_key_belongs_to_one_request)
{
    const struct job_submission same = submission("k", 7), other = submission("k", 8);
    struct job_info first;
    CHECK_OK(jobs_find_key(jobs, &same, &info, &existed, &err));
    ck_assert(!existed);
    CHECK_OK(jobs_submit(jobs, &same, &first, &existed, &err));
    ck_assert(!existed);
    CHECK_ERR(jobs_submit(jobs, &same, &info, &existed, &err), ERR_UNAVAILABLE,
              "is being admitted at this moment");
    jobs_admit(jobs, first.number, false);
    CHECK_ERR(jobs_find(jobs, "", first.id, &info, &err), ERR_NOT_FOUND, "is no longer kept");
    struct job_info second = submitted("k", 7);
    ck_assert(!existed && second.number > first.number);
    CHECK_OK(jobs_submit(jobs, &same, &info, &existed, &err));
    ck_assert(existed && info.number == second.number);
    CHECK_ERR(jobs_submit(jobs, &other, &info, &existed, &err), ERR_ARGUMENT,
              "key 'k' belongs to job-0000000000000abc-2");
}
END_TEST

START_TEST(a_fault_of_the_service_frees_the_key)
{
    static const struct {
        enum job_end end;
        int code;
        bool frees;
    } ends[] = {{JOB_END_STOP, 0, false},
                {JOB_END_LENGTH, 0, false},
                {JOB_END_ANSWERED, 0, false},
                {JOB_END_CANCELLED, ERR_CANCELLED, false},
                {JOB_END_DEADLINE, ERR_TIMEOUT, false},
                {JOB_END_REFUSED, ERR_ARGUMENT, false},
                {JOB_END_SLOW_READER, ERR_EXHAUSTED, false},
                {JOB_END_FAILED, ERR_INTERNAL, true},
                {JOB_END_UNAVAILABLE, ERR_UNAVAILABLE, true},
                {JOB_END_SHUTDOWN, ERR_UNAVAILABLE, true}};
    ck_assert_int_eq(sizeof ends / sizeof *ends, JOB_ENDS);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char key[16];
        snprintf(key, sizeof key, "end %zu", i);
        const struct job_submission same = submission(key, 7), other = submission(key, 8);
        struct job_info first = submitted(key, 7);
        jobs_end(jobs, first.number, ends[i].end, ends[i].code, "");
        CHECK_OK(jobs_find_key(jobs, &same, &info, &existed, &err));
        ck_assert_int_eq(existed, !ends[i].frees);
        if (ends[i].frees) { /* another request may have it, too */
            struct job_info second = submitted(key, 8);
            ck_assert(!existed && second.number > first.number);
            CHECK_OK(jobs_submit(jobs, &other, &info, &existed, &err));
            ck_assert(existed && info.number == second.number);
            CHECK_ERR(jobs_find_key(jobs, &same, &info, &existed, &err), ERR_ARGUMENT, second.id);
            jobs_end(jobs, second.number, JOB_END_STOP, 0, "");
        }
        CHECK_OK(jobs_find(jobs, "", first.id, &info, &err)); /* the old one can still be read */
        ck_assert_str_eq(info.key, key);
    }
}
END_TEST

START_TEST(no_new_job_while_none_is_served)
{
    const struct job_submission known = submission("k", 7), other = submission("k", 8);
    const struct job_submission new_one = submission("l", 7);
    struct job_info job = submitted("k", 7);
    jobs_set_serving(jobs, false, "rank 2 is gone");
    CHECK_ERR(jobs_submit(jobs, &new_one, &info, &existed, &err), ERR_UNAVAILABLE,
              "rank 2 is gone");
    CHECK_OK(jobs_submit(jobs, &known, &info, &existed, &err));
    ck_assert(existed && info.number == job.number);
    CHECK_ERR(jobs_submit(jobs, &other, &info, &existed, &err), ERR_ARGUMENT, "key 'k' belongs to");
    jobs_set_serving(jobs, true, "");
    CHECK_OK(jobs_submit(jobs, &new_one, &info, &existed, &err));
    ck_assert(!existed && info.number == job.number + 1);
}
END_TEST

START_TEST(jobs_that_ended_first_make_room)
{
    uint64_t numbers[KEPT];
    for (int i = 0; i < KEPT; i++) {
        numbers[i] = submitted("", 1).number;
    }
    const struct job_submission one_more = submission("", 1);
    CHECK_ERR(jobs_submit(jobs, &one_more, &info, &existed, &err), ERR_EXHAUSTED,
              "8 jobs are kept");
    jobs_end(jobs, numbers[5], JOB_END_STOP, 0, "");
    jobs_end(jobs, numbers[2], JOB_END_STOP, 0, "");
    submitted("", 1);
    struct job_info infos[KEPT];
    bool is_last;
    ck_assert_int_eq(jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ANY, infos, KEPT, &is_last), KEPT);
    ck_assert(is_last && infos[0].number == KEPT + 1 && infos[KEPT - 1].number == 1);
    for (int i = 0; i < KEPT; i++) {
        ck_assert_uint_ne(infos[i].number, numbers[5]);
    }
    ck_assert_int_eq(jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ENDED, infos, KEPT, &is_last), 1);
    ck_assert_uint_eq(infos[0].number, numbers[2]);
    ck_assert_int_eq(jobs_list(jobs, "", 4, JOB_STATE_ANY, infos, 2, &is_last), 2);
    ck_assert(!is_last && infos[0].number == 3 && infos[1].number == 2);
}
END_TEST

START_TEST(bytes_are_bounded_and_a_running_answer_is_kept)
{
    static char block[10001];
    memset(block, 'x', sizeof block - 1);
    struct job_info ended = submitted("", 1), running = submitted("", 2);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(append(ended.number, 0, 1, block));
    }
    jobs_end(jobs, ended.number, JOB_END_STOP, 0, "");
    int n = 0;
    while (append(running.number, 0, 1, block) == 0) {
        ck_assert_int_lt(++n, 20);
    }
    ck_assert_int_eq(err.code, ERR_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "--jobs-bytes 65536"));
    ck_assert_int_ge(n, 3);
    CHECK_ERR(jobs_find(jobs, "", ended.id, &info, &err), ERR_NOT_FOUND, "is no longer kept");
    CHECK_OK(jobs_find(jobs, "", running.id, &info, &err));
    ck_assert_int_eq(info.n_tokens, n);
}
END_TEST

/* An answer that can never fit costs no other job its own. */
START_TEST(job_that_never_fits_drops_no_other)
{
    static char block[BYTES_MAX + 1];
    memset(block, 'x', sizeof block - 1);
    struct job_info ended = submitted("", 1), running = submitted("", 2);
    CHECK_OK(append(ended.number, 0, 1, "its answer"));
    jobs_end(jobs, ended.number, JOB_END_STOP, 0, "");
    CHECK_ERR(append(running.number, 0, 1, block), ERR_EXHAUSTED, "--jobs-bytes 65536");
    CHECK_OK(jobs_find(jobs, "", ended.id, &info, &err));
    jobs_end(jobs, running.number, JOB_END_FAILED, ERR_EXHAUSTED, err.text);
    block[BYTES_MAX / 2] = 0;
    struct job_info next = submitted("", 3);
    CHECK_OK(append(next.number, 0, 1, block));
    CHECK_OK(jobs_find(jobs, "", ended.id, &info, &err));
}
END_TEST

START_TEST(a_job_that_may_be_refused_is_not_listed)
{
    const struct job_submission s = submission("k", 7);
    struct job_info infos[KEPT];
    bool is_last;
    CHECK_OK(jobs_submit(jobs, &s, &info, &existed, &err));
    ck_assert_int_eq(jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ANY, infos, KEPT, &is_last), 0);
    ck_assert(is_last);
    jobs_admit(jobs, info.number, true);
    ck_assert_int_eq(jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ANY, infos, KEPT, &is_last), 1);
}
END_TEST

START_TEST(only_whole_ids_are_found)
{
    submitted("", 1);
    static const char *const wrong[] = {"",
                                        "job-",
                                        "1",
                                        "job-0000000000000abc-01",
                                        "job-0000000000000abc-1 ",
                                        "job-abc-1",
                                        "job-0000000000000abd-1",
                                        "job-0000000000000abc-2",
                                        "job-0000000000000abc--1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(jobs_find(jobs, "", wrong[i], &info, &err), ERR_NOT_FOUND, "there is no job");
    }
    CHECK_OK(jobs_cancel(jobs, "", "job-0000000000000abc-1", &info, &err));
    ck_assert(jobs_is_cancelled(jobs, 1) && !jobs_is_cancelled(jobs, 2));
}
END_TEST

/* ---- many threads ---- */

/* A door and the engine at once: submits, writes an answer and ends it. */
static void *run_jobs(void *arg)
{
    struct error mine;
    struct job_info job;
    bool known;
    for (int i = 0; i < N_ROUNDS; i++) {
        const struct job_submission s = submission("", *(const uint64_t *)arg);
        while (jobs_submit(jobs, &s, &job, &known, &mine)) {
        }
        jobs_admit(jobs, job.number, true);
        for (int k = 0; k < SPACE; k++) {
            const struct job_message message = {.kind = JOB_MESSAGE_TOKENS,
                                                .sequence = k % 2,
                                                .n_tokens = 1,
                                                .data = (const uint8_t *)"abcdef",
                                                .len = (size_t)k};
            ck_assert_int_eq(jobs_append(jobs, job.number, &message, &mine), 0);
        }
        jobs_end(jobs, job.number, JOB_END_STOP, 0, "");
    }
    return NULL;
}

START_TEST(threads_submit_answer_and_watch)
{
    pthread_t threads[N_THREADS];
    uint64_t digests[N_THREADS], seen = 0;
    struct job_info infos[KEPT];
    bool is_last, is_there = true;
    for (uint64_t i = 0; i < N_THREADS; i++) {
        digests[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_jobs, &digests[i]), 0);
    }
    while (seen < N_THREADS * N_ROUNDS) {
        seen = jobs_wait(jobs, seen, clock_now_us() + 1000);
        int n = jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ANY, infos, KEPT, &is_last);
        for (int i = 0; i < n; i++) {
            struct job_message message;
            int rc = 0;
            for (size_t at = 0; !rc && is_there; at++) {
                rc = jobs_read(jobs, infos[i].id, at, &buf, &message, &is_there, &info, &err);
                if (!rc && is_there) ck_assert_uint_eq(message.len, at);
            }
            is_there = true;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    int n = jobs_list(jobs, "", UINT64_MAX, JOB_STATE_ENDED, infos, KEPT, &is_last);
    ck_assert(n > 0 && n <= KEPT);
    ck_assert(infos[0].n_tokens == SPACE);
}
END_TEST

START_TEST(jobs_of_other_keys_are_not_found)
{
    struct job_info infos[KEPT], alices, bobs;
    struct job_submission s = submission("k", 7);
    bool is_last;
    s.owner = "alice";
    CHECK_OK(jobs_submit(jobs, &s, &alices, &existed, &err));
    jobs_admit(jobs, alices.number, true);
    s.owner = "bob";
    s.digest[0] = 8; /* the same key for another request: keys of others are no keys */
    CHECK_OK(jobs_submit(jobs, &s, &bobs, &existed, &err));
    ck_assert(!existed);
    jobs_admit(jobs, bobs.number, true);
    CHECK_OK(jobs_submit(jobs, &s, &info, &existed, &err));
    ck_assert(existed && info.number == bobs.number);
    CHECK_ERR(jobs_find(jobs, "bob", alices.id, &info, &err), ERR_NOT_FOUND, "there is no job");
    CHECK_ERR(jobs_cancel(jobs, "bob", alices.id, &info, &err), ERR_NOT_FOUND, "there is no job");
    CHECK_ERR(jobs_find(jobs, "", alices.id, &info, &err), ERR_NOT_FOUND, "there is no job");
    ck_assert(!jobs_is_cancelled(jobs, alices.number));
    ck_assert_int_eq(jobs_list(jobs, "bob", UINT64_MAX, JOB_STATE_ANY, infos, KEPT, &is_last), 1);
    ck_assert_uint_eq(infos[0].number, bobs.number);
    ck_assert(is_last);
    CHECK_OK(jobs_cancel(jobs, "alice", alices.id, &info, &err));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jobs");
    TCase *tcase = tcase_create("jobs");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_answer_is_read_as_it_was_appended);
    tcase_add_test(tcase, a_key_belongs_to_one_request);
    tcase_add_test(tcase, a_fault_of_the_service_frees_the_key);
    tcase_add_test(tcase, no_new_job_while_none_is_served);
    tcase_add_test(tcase, jobs_that_ended_first_make_room);
    tcase_add_test(tcase, bytes_are_bounded_and_a_running_answer_is_kept);
    tcase_add_test(tcase, job_that_never_fits_drops_no_other);
    tcase_add_test(tcase, a_job_that_may_be_refused_is_not_listed);
    tcase_add_test(tcase, only_whole_ids_are_found);
    tcase_add_test(tcase, threads_submit_answer_and_watch);
    tcase_add_test(tcase, jobs_of_other_keys_are_not_found);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
