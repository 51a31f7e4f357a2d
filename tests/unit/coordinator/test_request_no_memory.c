/* ctest: labels=quick,slow libs=coordinator,worker fail_alloc=yes timeout=600 long=900 */
/* Requests while memory is short. Each trial opens a coordinator and a worker in this process, and
 * one allocation on any of their threads fails, while they connect or while a request goes through
 * both. The client must get the text or a sentence, and the next request must be served. Each trial
 * costs a start and waits, so every third allocation fails, and each one in `tests/run long`. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/coordinator.h"
#include "proto/jobs_wire.h"
#include "rpc/client.h"
#include "rpc/common.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/sleep_util.h"
#include "worker/worker.h"

#define TARGET "synthetic:tiny,seed=7"
#define DRAFT  "synthetic:tiny,seed=7,agree=0.8,draft=1"

enum {
    N_TOKENS = 12,
    ANSWER_BYTES = 4096,
    ARENA_BYTES = 1 << 20,
    CONNECT_MS = 200, /* for what happens after the start without a request */
    SETTLED_MS = 100,
    PATIENCE_US = 20 * 1000000
};

enum kind { GENERATE, SCORE, DESCRIBE, SUBMIT, WATCH, N_KINDS };

static const char *const paths[N_KINDS] = {
    "/outrider.generation.v1.Generation/Generate", "/outrider.generation.v1.Generation/Score",
    "/outrider.generation.v1.Generation/Describe", "/outrider.generation.v1.Generation/Submit",
    "/outrider.generation.v1.Generation/Watch"};

static char folder[64], target_address[128], listen_address[128];

/* One coordinator and its worker. */
struct pair {
    struct worker *worker;
    struct coordinator *coordinator;
    pthread_t threads[2];
    struct error errors[2];
};

/* The client that asks; */
static struct {
    struct rpc_client *client;
    struct buffer request, messages;
    struct arena arena;
    char answer[ANSWER_BYTES];    /* the text, or ids and logprobs */
    char job_id[JOB_ID_BYTES];    /* of SUBMIT, for WATCH */
    char state[ERROR_TEXT_BYTES]; /* of DESCRIBE */
} asker;

static void setup(void)
{
    struct error err;
    log_open("test", LOG_LEVEL_ERROR);
    rpc_library_open(); /* its own start and end are not what is tested */
    snprintf(folder, sizeof folder, "/tmp/outrider-no-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(target_address, sizeof target_address, "unix:%s/worker", folder);
    snprintf(listen_address, sizeof listen_address, "unix:%s/coordinator", folder);
    CHECK_OK(arena_open(&asker.arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&asker.arena);
    buffer_free(&asker.request);
    buffer_free(&asker.messages);
    ck_assert_int_eq(rmdir(folder), 0);
    rpc_library_close();
}

/* ---- the pair ---- */

static void *run_worker(void *arg)
{
    struct pair *pair = arg;
    worker_run(pair->worker, &pair->errors[0]);
    return NULL;
}

static void *run_coordinator(void *arg)
{
    struct pair *pair = arg;
    coordinator_run(pair->coordinator, &pair->errors[1]);
    return NULL;
}

static struct target_list targets = {.n_addresses = 1};

static void pair_open(struct pair *pair)
{
    struct error err;
    const struct backend_options backend = {.device = "cpu", .kernels = "auto", .n_threads = 1};
    const struct worker_options worker = {.model = TARGET,
                                          .group = {.n_ranks = 1, .listen = target_address},
                                          .backend = backend,
                                          .n_slots = 2,
                                          .kv_tokens = 256,
                                          .max_step_tokens = 64,
                                          .max_step_rows = 32,
                                          .step_timeout_s = 60};
    const struct coordinator_options coordinator = {.listen = listen_address,
                                                    .targets = &targets,
                                                    .n_groups = 2,
                                                    .draft = DRAFT,
                                                    .lookup = "session",
                                                    .backend = backend,
                                                    .n_draft = -1,
                                                    .strategy = STRATEGY_PLANNED,
                                                    .support = 32,
                                                    .draft_kv_tokens = 256,
                                                    .n_sequences = 2,
                                                    .step_stretch = 2,
                                                    .queue_capacity = 4,
                                                    .queue_bytes = 1 << 20,
                                                    .jobs_kept = 4,
                                                    .jobs_bytes = 1 << 20,
                                                    .step_timeout_s = 60,
                                                    .max_prompt_bytes = 4096};
    *pair = (struct pair){0};
    snprintf(targets.addresses[0], sizeof targets.addresses[0], "%s", target_address);
    CHECK_OK(worker_open(&pair->worker, &worker, &err));
    CHECK_OK(coordinator_open(&pair->coordinator, &coordinator, &err));
    CHECK_OK(rpc_client_open(&asker.client, NULL, &err));
}

static void pair_start(struct pair *pair)
{
    ck_assert_int_eq(pthread_create(&pair->threads[0], NULL, run_worker, pair), 0);
    ck_assert_int_eq(pthread_create(&pair->threads[1], NULL, run_coordinator, pair), 0);
}

/* Both threads must have run until they were told to stop. */
static void pair_close(struct pair *pair)
{
    rpc_client_close(asker.client);
    coordinator_stop(pair->coordinator);
    pthread_join(pair->threads[1], NULL);
    worker_stop(pair->worker);
    pthread_join(pair->threads[0], NULL);
    coordinator_close(pair->coordinator);
    worker_close(pair->worker);
}

/* ---- requests ---- */

/* The prompt is text; the guesses' table, stop strings and shown drafts take their ways too. */
static void encode_request(enum kind kind)
{
    static const char text[] = "Once upon";
    static const char *const stops[] = {"\x01\x02\x03", "zzzz"};
    struct error err;
    const struct generate_request generate = {.prompt = text,
                                              .prompt_len = sizeof text - 1,
                                              .max_tokens = N_TOKENS,
                                              .sampling = {.temperature = 0.9f, .top_p = 0.95f},
                                              .has_seed = true,
                                              .seed = 3,
                                              .n_draft = 3,
                                              .rule = "coupled",
                                              .tree_rule = "",
                                              .show_drafts = true,
                                              .ignore_eos = true,
                                              .n_stop = 2,
                                              .stop = stops,
                                              .request_id = "no-memory",
                                              .n = 1,
                                              .logprobs = -1,
                                              .repetition_penalty = 1,
                                              .client = ""};
    const struct score_request score = {.text = text, .text_len = sizeof text - 1, .top_n = 1};
    asker.request.len = 0;
    if (kind == GENERATE) CHECK_OK(generate_request_encode(&asker.request, &generate, &err));
    const struct submit_request submit = {.request = generate, .key = ""};
    const struct watch_request watch = {.id = asker.job_id};
    if (kind == SUBMIT) CHECK_OK(submit_request_encode(&asker.request, &submit, &err));
    if (kind == WATCH) CHECK_OK(watch_request_encode(&asker.request, &watch, &err));
    if (kind == SCORE) CHECK_OK(score_request_encode(&asker.request, &score, &err));
}

static void append_answer(const char *text, size_t len)
{
    size_t have = strlen(asker.answer);
    ck_assert_uint_lt(have + len, sizeof asker.answer);
    memcpy(asker.answer + have, text, len);
    asker.answer[have + len] = '\0';
}

/* A scored token's text, which is for people alone, may be missing where memory is short. */
static void hear_message(enum kind kind, const uint8_t *data, size_t len)
{
    struct error err;
    struct generate_reply generate;
    struct score_reply score;
    char line[64];
    arena_reset(&asker.arena);
    if (kind == SUBMIT) {
        struct job_status job;
        CHECK_OK(job_status_decode(data, len, &asker.arena, &job, &err));
        snprintf(asker.job_id, sizeof asker.job_id, "%s", job.id);
    } else if (kind == GENERATE || kind == WATCH) {
        CHECK_OK(generate_reply_decode(data, len, &asker.arena, &generate, &err));
        if (generate.tokens) append_answer(generate.tokens->text, generate.tokens->text_len);
    } else if (kind == DESCRIBE) {
        struct service_description desc;
        CHECK_OK(service_description_decode(data, len, &asker.arena, &desc, &err));
        snprintf(asker.state, sizeof asker.state, "%s", desc.state);
    } else if (kind == SCORE) {
        CHECK_OK(score_reply_decode(data, len, &asker.arena, &score, &err));
        for (int i = 0; i < score.n; i++) {
            const struct score_token *token = &score.tokens[i];
            int n = snprintf(line, sizeof line, "%d %a ", token->id, (double)token->logprob);
            append_answer(line, (size_t)n);
        }
    }
}

/* One call; its answer is in asker.answer. Errors: what the coordinator says. */
static int call(enum kind kind, struct error *err)
{
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    struct rpc_stream *stream = NULL;
    const uint8_t *data;
    size_t len;
    int rc = 0;
    encode_request(kind);
    asker.answer[0] = '\0';
    TRY(rpc_stream_open(&stream, asker.client, listen_address, paths[kind], true, deadline_us,
                        err));
    TRY(rpc_stream_send(stream, asker.request.data, asker.request.len, deadline_us, err));
    TRY(rpc_stream_half_close(stream, err));
    while (!(rc = rpc_stream_receive(stream, &data, &len, deadline_us, err))) {
        hear_message(kind, data, len);
    }
    if (rc == ERR_CLOSED) rc = 0;
out:
    rpc_stream_close(stream);
    return rc;
}

/* One request; one that was submitted is watched to its end. */
static int ask(enum kind kind, struct error *err)
{
    int rc = call(kind, err);
    if (!rc && kind == DESCRIBE && strcmp(asker.state, "serving") != 0) {
        return error_set(err, ERR_UNAVAILABLE, "%s", asker.state);
    }
    return rc || kind != SUBMIT ? rc : call(WATCH, err);
}

/* Until the target has been reached, or reached again. */
static void ask_until_served(enum kind kind)
{
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    struct error err;
    while (ask(kind, &err)) {
        ck_assert_msg(err.code == ERR_UNAVAILABLE && clock_now_us() < deadline_us,
                      "the next request is not served: %s", err.text);
        sleep_ms(2);
    }
}

/* ---- trials ---- */

enum phase { CONNECTING, REQUESTING };

struct trial {
    enum phase phase;
    enum kind kind;
    const char *wanted; /* the answer where nothing fails */
};

/* Checks that a failure in between has done nothing else to a request than it may. */
static void check_answer(const struct trial *trial, long n, int rc, const struct error *err)
{
    if (rc) {
        ck_assert_msg(strstr(err->text, "no memory") != NULL,
                      "allocation %ld fails: the client reads %d (%s)", n, rc, err->text);
    } else {
        ck_assert_str_eq(asker.answer, trial->wanted);
    }
}

/* The n-th allocation fails; false if there are less. *was_told: the client got the sentence. */
static bool try_once(const struct trial *trial, long n, bool *was_told)
{
    struct pair pair;
    struct error err;
    pair_open(&pair);
    *was_told = false;
    if (trial->phase == CONNECTING) fail_alloc_arm(FAIL_OTHER_THREADS, FAIL_ALL, n);
    pair_start(&pair);
    if (trial->phase == CONNECTING) sleep_ms(CONNECT_MS);
    if (trial->phase == REQUESTING) {
        ask_until_served(DESCRIBE);
        fail_alloc_arm(FAIL_OTHER_THREADS, FAIL_ALL, n);
        int rc = ask(trial->kind, &err);
        check_answer(trial, n, rc, &err);
        *was_told = rc != 0;
    }
    bool has_failed = fail_alloc_disarm();
    ask_until_served(trial->kind);
    ck_assert_str_eq(asker.answer, trial->wanted);
    pair_close(&pair);
    return has_failed;
}

/* Returns what is allocated once nothing has changed for SETTLED_MS: gRPC closes the descriptors of
 * a pair on threads of its own, some of them after pair_close has returned. */
static struct fail_alloc_live live_when_settled(void)
{
    struct fail_alloc_live last = fail_alloc_live();
    for (int n_ms = 0; n_ms < SETTLED_MS; n_ms++) {
        sleep_ms(1);
        struct fail_alloc_live now = fail_alloc_live();
        if (memcmp(&last, &now, sizeof now) != 0) n_ms = 0;
        last = now;
    }
    return last;
}

static void try_each(const char *what, enum phase phase, enum kind kind)
{
    struct trial trial = {.phase = phase, .kind = kind};
    struct fail_alloc_live before, after;
    char wanted[ANSWER_BYTES];
    struct pair pair;
    const long step = getenv("OUTRIDER_TEST_LONG") ? FAIL_ALLOC_STEP : 3;
    long n = 1 - step, n_failed = 0, n_told = 0;
    bool has_failed, was_told;
    pair_open(&pair);
    pair_start(&pair);
    ask_until_served(kind);
    memcpy(wanted, asker.answer, sizeof wanted);
    pair_close(&pair);
    trial.wanted = wanted;
    before = live_when_settled(); /* and so it is after every trial */
    do {
        n += step;
        has_failed = try_once(&trial, n, &was_told);
        ck_assert_msg(fail_alloc_is_as_before(&before, &after),
                      "%s: allocation %ld fails: %ld blocks, %ld mapped bytes, %ld files stay",
                      what, n, after.n_blocks - before.n_blocks,
                      after.mapped_bytes - before.mapped_bytes, after.n_files - before.n_files);
        n_failed += has_failed;
        n_told += was_told;
    } while (has_failed);
    printf("%s: %ld allocations failed; the client was told of %ld\n", what, n_failed, n_told);
    ck_assert_int_gt(n_failed, 0);
}

START_TEST(failures_while_they_connect_only_delay)
{
    try_each("connecting", CONNECTING, GENERATE);
}
END_TEST

START_TEST(a_generation_ends_with_its_text_or_a_sentence)
{
    try_each("generating", REQUESTING, GENERATE);
}
END_TEST

START_TEST(a_submitted_job_ends_with_its_text_or_a_sentence)
{
    try_each("submitting", REQUESTING, SUBMIT);
}
END_TEST

START_TEST(a_scoring_ends_with_its_numbers_or_a_sentence)
{
    try_each("scoring", REQUESTING, SCORE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("requests without memory");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, failures_while_they_connect_only_delay);
    tcase_add_test(all, a_generation_ends_with_its_text_or_a_sentence);
    tcase_add_test(all, a_submitted_job_ends_with_its_text_or_a_sentence);
    tcase_add_test(all, a_scoring_ends_with_its_numbers_or_a_sentence);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
