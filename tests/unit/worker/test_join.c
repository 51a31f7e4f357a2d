/* ctest: labels=quick,slow libs=worker timeout=60 */
/* A rank without MPI asks its lead, over real gRPC. The id arrives complete; a lead that is late or
 * not ready is asked again; one that is another rank, or differs in what ranks share, is refused
 * with a reason; and the listener offers the id only until its group is complete. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/client.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"
#include "worker/join.h"
#include "worker/listener.h"

enum { LATE_MS = 600 };

static struct error err;
static char address[256];
static const struct lead_access plain;

static struct target_description description(int rank)
{
    struct target_description d = {.arithmetic = "cpu-bf16",
                                   .group = "00000000cafe0017",
                                   .n_layers = 1,
                                   .dim = 2,
                                   .n_heads = 3,
                                   .n_kv_heads = 4,
                                   .head_dim = 5,
                                   .ffn_dim = 6,
                                   .vocab_size = 7,
                                   .rank = rank,
                                   .n_ranks = 2,
                                   .n_slices = 4,
                                   .n_slots = 10,
                                   .n_kv_blocks = 11,
                                   .block_tokens = 16,
                                   .context_limit = 13,
                                   .max_step_tokens = 14,
                                   .max_step_rows = 15,
                                   .n_threads = 1,
                                   .model_fingerprint = 99,
                                   .tokenizer_fingerprint = 98};
    return d;
}

static struct target_description lead(void)
{
    struct target_description d = description(0);
    d.has_nccl_id = true;
    for (int i = 0; i < WIRE_NCCL_ID_BYTES; i++)
        d.nccl_id[i] = (uint8_t)(i * 7);
    for (int i = 0; i < WIRE_MEMBER_PASS_BYTES; i++)
        d.member_pass[i] = (uint8_t)(i * 17);
    return d;
}

static struct target_description mine, theirs;

/* ---- the lead: a real listener ---- */

static struct listener *listener;
static struct queue *queue;
static struct watchdog *dog;

static void on_late(void *arg)
{
    (void)arg;
}

static void lead_open(const struct target_description *d)
{
    CHECK_OK(queue_open(&queue, 4, &err));
    CHECK_OK(watchdog_open(&dog, on_late, NULL, &err));
    CHECK_OK(listener_open(
        &listener, address, d,
        &(struct listener_options){
            .queue = queue, .dog = dog, .member_pass = d->member_pass, .run_names = "*"},
        &err));
}

static void lead_close(void)
{
    void *item;
    listener_close(listener, 0);
    while (queue && queue_pop(queue, &item, 0, &err) == 0)
        listened_free(item);
    queue_close(queue);
    watchdog_close(dog);
}

static void setup(void)
{
    snprintf(address, sizeof address, "unix:/tmp/outrider-join-%d", (int)getpid());
    mine = description(1);
}

START_TEST(join_gets_the_id_and_the_group_of_rank_0)
{
    const struct target_description offered = lead();
    lead_open(&offered);
    CHECK_OK(join_ask(&theirs, &mine, address, &plain, 10, &err));
    ck_assert_mem_eq(theirs.nccl_id, offered.nccl_id, WIRE_NCCL_ID_BYTES);
    ck_assert_mem_eq(theirs.member_pass, offered.member_pass, WIRE_MEMBER_PASS_BYTES);
    ck_assert_str_eq(theirs.group, offered.group);
    ck_assert(theirs.has_nccl_id && theirs.is_busy);
    lead_close();
}
END_TEST

static void *lead_comes_late(void *arg)
{
    sleep_ms(LATE_MS);
    lead_open(arg);
    return NULL;
}

START_TEST(join_waits_for_a_lead_that_is_late)
{
    struct target_description offered = lead();
    struct error other;
    pthread_t thread;
    int64_t start_ms = clock_now_ms();
    ck_assert_int_eq(pthread_create(&thread, NULL, lead_comes_late, &offered), 0);
    int rc = join_ask(&theirs, &mine, address, &plain, 20, &other);
    pthread_join(thread, NULL);
    ck_assert_msg(rc == 0, "%s", other.text);
    ck_assert_int_ge(clock_now_ms() - start_ms, LATE_MS);
    lead_close();
}
END_TEST

START_TEST(join_of_nobody_ends_at_the_deadline_with_the_last_reason)
{
    int64_t start_ms = clock_now_ms();
    CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 1, &err), ERR_TIMEOUT,
              "rank 1 has not found its group within 1 s: unix:/tmp/outrider-join-");
    CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 1, &err), ERR_TIMEOUT,
              "start rank 0, or correct --lead");
    ck_assert_int_ge(clock_now_ms() - start_ms, 1900);
    ck_assert_int_lt(clock_now_ms() - start_ms, 10000);
}
END_TEST

START_TEST(join_of_a_complete_group_is_refused_at_the_deadline)
{
    const struct target_description offered = lead();
    lead_open(&offered);
    listener_set_serving(listener, true);
    CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 1, &err), ERR_TIMEOUT,
              "waits for no more ranks: its group is complete");
    ck_assert(!theirs.has_nccl_id && !theirs.is_busy);
    listener_set_serving(listener, false); /* as after a restart of the group */
    CHECK_OK(join_ask(&theirs, &mine, address, &plain, 10, &err));
    lead_close();
}
END_TEST

START_TEST(join_of_another_rank_or_size_is_refused_at_once)
{
    struct target_description other = description(1);
    int64_t start_ms = clock_now_ms();
    lead_open(&other);
    CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 30, &err), ERR_ARGUMENT,
              "is rank 1; --lead is the address of rank 0");
    lead_close();
    other = lead();
    other.n_ranks = 4;
    lead_open(&other);
    CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 30, &err), ERR_ARGUMENT,
              "has a group of 4 ranks, ours has 2");
    lead_close();
    ck_assert_int_lt(clock_now_ms() - start_ms, 15000);
}
END_TEST

START_TEST(join_of_a_lead_that_holds_something_else_names_it)
{
    static const struct {
        const char *what;
        int field;
    } cases[] = {{"another model than", 0},        {"another tokenizer than", 1},
                 {"another arithmetic than", 2},   {"another number of slices than", 3},
                 {"another --slots than", 4},      {"another --kv-tokens than", 5},
                 {"another --max-step-tokens", 6}, {"another --max-step-rows", 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct target_description other = lead();
        other.model_fingerprint += cases[i].field == 0;
        other.tokenizer_fingerprint += cases[i].field == 1;
        if (cases[i].field == 2) snprintf(other.arithmetic, sizeof other.arithmetic, "cpu-int8");
        other.n_slices *= cases[i].field == 3 ? 2 : 1;
        other.n_slots += cases[i].field == 4;
        other.n_kv_blocks += cases[i].field == 5;
        other.max_step_tokens += cases[i].field == 6;
        other.max_step_rows += cases[i].field == 7;
        lead_open(&other);
        CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 30, &err), ERR_ARGUMENT, cases[i].what);
        lead_close();
    }
}
END_TEST

START_TEST(listener_that_starts_refuses_streams_and_one_that_serves_has_no_id)
{
    const struct target_description offered = lead();
    struct rpc_client *client;
    struct rpc_stream *stream;
    const uint8_t *data;
    size_t len;
    lead_open(&offered);
    CHECK_OK(rpc_client_open(&client, NULL, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rpc_stream_open(&stream, client, address, "/outrider.target.v1.Target/Run", true,
                                 INT64_MAX, &err));
        int rc = rpc_stream_receive(stream, &data, &len, clock_now_us() + 500000, &err);
        if (i == 0) CHECK_ERR(rc, ERR_UNAVAILABLE, "this group is still starting");
        if (i == 1) { /* taken */
            ck_assert_int_eq(rc, ERR_TIMEOUT);
            CHECK_ERR(join_ask(&theirs, &mine, address, &plain, 1, &err), ERR_TIMEOUT,
                      "is complete");
            ck_assert(theirs.is_busy && !theirs.has_nccl_id);
        }
        listener_set_serving(listener, true);
        rpc_stream_close(stream);
    }
    rpc_client_close(client);
    lead_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("join");
    TCase *cases = tcase_create("join");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, join_gets_the_id_and_the_group_of_rank_0);
    tcase_add_test(cases, join_waits_for_a_lead_that_is_late);
    tcase_add_test(cases, join_of_nobody_ends_at_the_deadline_with_the_last_reason);
    tcase_add_test(cases, join_of_a_complete_group_is_refused_at_the_deadline);
    tcase_add_test(cases, join_of_another_rank_or_size_is_refused_at_once);
    tcase_add_test(cases, join_of_a_lead_that_holds_something_else_names_it);
    tcase_add_test(cases, listener_that_starts_refuses_streams_and_one_that_serves_has_no_id);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
