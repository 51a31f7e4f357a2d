/* The codecs of stored jobs: every field arrives, and every bad value is refused with its name. */
/* ctest: labels=quick libs=proto timeout=60 */
#include "proto/jobs_wire.h"
#include "tests/support/generation_samples.h"

static struct job_status status_sample(const char *id)
{
    static const int32_t ids[] = {3, 70000};
    static struct generate_summary summary = {.finish_reason = "stop",
                                              .stop_match = "",
                                              .rule = "greedy",
                                              .speculation_off = "",
                                              .request_id = "r",
                                              .arithmetic = "cpu-bf16",
                                              .completion_tokens = 2,
                                              .index = 1};
    static struct job_text texts[] = {{2, ids, "a\xc3\xa9", 3, NULL}, {0, NULL, "", 0, &summary}};
    return (struct job_status){.id = id,
                               .key = "a key",
                               .error = "it\xc3\xa9s",
                               .request_id = "r-1",
                               .state = JOB_STATE_ENDED,
                               .end = JOB_END_SLOW_READER,
                               .n = 2,
                               .prompt_tokens = 7,
                               .completion_tokens = 9,
                               .submitted_ms = UINT64_MAX,
                               .ended_ms = 5,
                               .existed = true,
                               .n_texts = 2,
                               .texts = texts};
}

static void statuses_equal(const struct job_status *a, const struct job_status *b)
{
    ck_assert_str_eq(a->id, b->id);
    ck_assert_str_eq(a->key, b->key);
    ck_assert_str_eq(a->error, b->error);
    ck_assert_str_eq(a->request_id, b->request_id);
    ck_assert_int_eq((int)a->state, (int)b->state);
    if (a->state == JOB_STATE_ENDED) ck_assert_int_eq((int)a->end, (int)b->end);
    ck_assert_int_eq(a->n, b->n);
    ck_assert_int_eq(a->prompt_tokens, b->prompt_tokens);
    ck_assert_int_eq(a->completion_tokens, b->completion_tokens);
    ck_assert_uint_eq(a->submitted_ms, b->submitted_ms);
    ck_assert_uint_eq(a->ended_ms, b->ended_ms);
    ck_assert_int_eq(a->existed, b->existed);
    ck_assert_int_eq(a->n_texts, b->n_texts);
}

START_TEST(status_round_trip_keeps_every_field)
{
    const struct job_status sent = status_sample("job-1");
    struct job_status got;
    CHECK_OK(job_status_encode(&buf, &sent, &err));
    seed_write("generation_wire", 5, "job", 0, buf.data, buf.len);
    CHECK_OK(job_status_decode(buf.data, buf.len, &read_back, &got, &err));
    statuses_equal(&sent, &got);
    ck_assert_int_eq(got.texts[0].n_ids, 2);
    ck_assert_int_eq(got.texts[0].ids[1], 70000);
    ck_assert_str_eq(got.texts[0].text, "a\xc3\xa9");
    ck_assert_ptr_null(got.texts[0].summary);
    ck_assert_int_eq(got.texts[1].summary->completion_tokens, 2);
}
END_TEST

START_TEST(list_round_trip_keeps_every_field)
{
    struct job_status jobs[] = {status_sample("job-3"), status_sample("job-2")};
    jobs[1].state = JOB_STATE_RUNNING;
    jobs[1].texts = NULL, jobs[1].n_texts = 0;
    const struct job_list sent = {.n = 2, .jobs = jobs, .next_page_token = "2"};
    struct job_list got;
    CHECK_OK(job_list_encode(&buf, &sent, &err));
    seed_write("generation_wire", 6, "jobs", 0, buf.data, buf.len);
    CHECK_OK(job_list_decode(buf.data, buf.len, &read_back, &got, &err));
    ck_assert_int_eq(got.n, 2);
    ck_assert_str_eq(got.next_page_token, "2");
    for (int i = 0; i < 2; i++) {
        statuses_equal(&jobs[i], &got.jobs[i]);
    }
}
END_TEST

START_TEST(requests_keep_every_field)
{
    struct submit_request submit = {.key = "k 1"}, submit_got;
    const struct watch_request watch = {.id = "job-1", .from_token = UINT32_MAX};
    const struct list_request list = {
        .page_size = 7, .page_token = "9", .state = JOB_STATE_WAITING};
    struct watch_request watch_got;
    struct list_request list_got;
    const char *id;
    generate_request_init(&submit.request);
    submit.request.prompt = "Once", submit.request.prompt_len = 4;
    submit.request.max_tokens = 3, submit.request.n = 2;
    CHECK_OK(submit_request_encode(&buf, &submit, &err));
    seed_write("generation_wire", 7, "submit", 0, buf.data, buf.len);
    CHECK_OK(submit_request_decode(buf.data, buf.len, &read_back, &submit_got, &err));
    ck_assert_str_eq(submit_got.key, "k 1");
    ck_assert_str_eq(submit_got.request.prompt, "Once");
    ck_assert(submit_got.request.max_tokens == 3 && submit_got.request.n == 2);
    CHECK_OK(watch_request_encode(&buf, &watch, &err));
    CHECK_OK(watch_request_decode(buf.data, buf.len, &read_back, &watch_got, &err));
    ck_assert_str_eq(watch_got.id, "job-1");
    ck_assert_uint_eq(watch_got.from_token, UINT32_MAX);
    CHECK_OK(list_request_encode(&buf, &list, &err));
    CHECK_OK(list_request_decode(buf.data, buf.len, &read_back, &list_got, &err));
    ck_assert_int_eq(list_got.page_size, 7);
    ck_assert_str_eq(list_got.page_token, "9");
    ck_assert_int_eq((int)list_got.state, JOB_STATE_WAITING);
    CHECK_OK(job_request_encode(&buf, "job-5", &err));
    CHECK_OK(job_request_decode(buf.data, buf.len, &read_back, &id, &err));
    ck_assert_str_eq(id, "job-5");
}
END_TEST

static void submit_refused(const char *hex, const char *text)
{
    uint8_t bytes[256];
    struct submit_request got;
    size_t len = bytes_from_hex(hex, bytes);
    arena_reset(&read_back);
    CHECK_ERR(submit_request_decode(bytes, len, &read_back, &got, &err), ERR_FORMAT, text);
}

START_TEST(refusals_name_the_field)
{
    static char long_key[JOB_KEY_BYTES + 1];
    struct submit_request submit = {.key = long_key};
    struct list_request list = {.page_size = 1001, .page_token = ""};
    struct list_request list_got;
    struct job_status status = status_sample("job-1"), status_got;
    submit_refused("12016b", "request is not set");
    submit_refused("0a030a016112020aff", "key is not");
    submit_refused("0a060a0161c80601", "field 105 of GenerateRequest is not known");
    memset(long_key, 'k', sizeof long_key - 1);
    generate_request_init(&submit.request);
    submit.request.prompt = "a", submit.request.prompt_len = 1;
    CHECK_OK(submit_request_encode(&buf, &submit, &err));
    CHECK_ERR(submit_request_decode(buf.data, buf.len, &read_back, &submit, &err), ERR_FORMAT,
              "key has 129 bytes, at most 128");
    CHECK_OK(list_request_encode(&buf, &list, &err));
    CHECK_ERR(list_request_decode(buf.data, buf.len, &read_back, &list_got, &err), ERR_FORMAT,
              "page_size is 1001, must be 0 to 1000");
    status.end = JOB_ENDS;
    CHECK_OK(job_status_encode(&buf, &status, &err));
    CHECK_ERR(job_status_decode(buf.data, buf.len, &read_back, &status_got, &err), ERR_FORMAT,
              "end is 11, must be 1 to 10");
    status.state = (enum job_state)4;
    CHECK_OK(job_status_encode(&buf, &status, &err));
    CHECK_ERR(job_status_decode(buf.data, buf.len, &read_back, &status_got, &err), ERR_FORMAT,
              "state is 4, must be 0 to 3");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jobs_wire");
    TCase *tcase = tcase_create("jobs_wire");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, status_round_trip_keeps_every_field);
    tcase_add_test(tcase, list_round_trip_keeps_every_field);
    tcase_add_test(tcase, requests_keep_every_field);
    tcase_add_test(tcase, refusals_name_the_field);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
