/* ctest: labels=quick,slow libs=worker timeout=60 */
/* Whose Stay stream counts, over real gRPC: only a rank that knows its group's pass holds one on
 * rank 0, no more of them than there are other ranks, and none where the group has no such streams.
 * When a stranger's call ends, nothing happens. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/client.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"
#include "worker/lead_watch.h"
#include "worker/listener.h"
#include "worker/members.h"

enum { AWHILE_MS = 300, PATIENCE_MS = 20000 };

static const uint8_t pass[WIRE_MEMBER_PASS_BYTES] = {0, 1, 0xfe, 0xff, 7};
static const struct target_description description = {
    .arithmetic = "cpu-bf16", .n_ranks = 2, .n_slices = 4};
static struct error err;
static char address[256];
static struct listener *listener;
static struct queue *queue;
static struct watchdog *dog;
static struct rpc_client *client;
static atomic_int n_lost; /* counted by the listener's handlers */

static void on_late(void *arg)
{
    (void)arg;
}

static void count_lost(void *arg)
{
    (void)arg;
    atomic_fetch_add(&n_lost, 1);
}

/* Rank 0 of a complete group with so many members; calls show `shown`, unless it is NULL. */
static void open_both(int n_members, const char *shown)
{
    const struct rpc_client_options options = {.header_name = shown ? MEMBERS_HEADER : NULL,
                                               .header_value = shown};
    const struct listener_options lead = {.dog = dog,
                                          .queue = queue,
                                          .on_rank_lost = count_lost,
                                          .member_pass = pass,
                                          .run_names = "*"};
    snprintf(address, sizeof address, "unix:/tmp/outrider-members-%d", (int)getpid());
    atomic_store(&n_lost, 0);
    CHECK_OK(listener_open(&listener, address, &description, &lead, &err));
    listener_expect_members(listener, n_members);
    listener_set_complete(listener);
    listener_set_serving(listener, true);
    CHECK_OK(rpc_client_open(&client, &options, &err));
}

static void close_both(void)
{
    rpc_client_close(client);
    listener_close(listener, 0);
}

static void setup(void)
{
    CHECK_OK(queue_open(&queue, 4, &err));
    CHECK_OK(watchdog_open(&dog, on_late, NULL, &err));
}

static void teardown(void)
{
    queue_close(queue);
    watchdog_close(dog);
}

static struct rpc_stream *stay(void)
{
    struct rpc_stream *stream;
    CHECK_OK(rpc_stream_open(&stream, client, address, "/outrider.target.v1.Target/Stay", true,
                             INT64_MAX, &err));
    return stream;
}

static int64_t in_ms(int ms)
{
    return clock_now_us() + (int64_t)ms * 1000;
}

static int receive(struct rpc_stream *stream, int ms)
{
    const uint8_t *data;
    size_t len;
    return rpc_stream_receive(stream, &data, &len, in_ms(ms), &err);
}

static void wait_for_loss(void)
{
    int64_t deadline_us = in_ms(PATIENCE_MS);
    while (atomic_load(&n_lost) == 0 && clock_now_us() < deadline_us)
        sleep_ms(1);
    ck_assert_int_eq(atomic_load(&n_lost), 1);
}

/* A rank 0 whose members would be counted notices nothing. */
static void check_refused(int n_members, const char *shown, int code, const char *text)
{
    open_both(n_members, shown);
    struct rpc_stream *stream = stay();
    CHECK_ERR(receive(stream, PATIENCE_MS), code, text);
    rpc_stream_close(stream);
    stream = stay(); /* cancelled at once */
    rpc_stream_close(stream);
    sleep_ms(AWHILE_MS);
    ck_assert_int_eq(atomic_load(&n_lost), 0);
    close_both();
}

static const char *pass_text(void)
{
    static char text[MEMBERS_PASS_CHARS];
    members_pass_text(pass, text);
    return text;
}

START_TEST(pass_is_written_in_hexadecimal)
{
    ck_assert_str_eq(pass_text(), "0001feff070000000000000000000000");
}
END_TEST

START_TEST(group_without_such_streams_refuses_all)
{
    check_refused(0, NULL, ERR_UNSUPPORTED, "mpirun watches them");
    check_refused(0, pass_text(), ERR_UNSUPPORTED, "mpirun watches them");
}
END_TEST

START_TEST(stranger_is_refused_and_its_end_ends_nothing)
{
    static const char *const shown[] = {NULL, "x", "0001feff07000000000000000000000",
                                        "0001feff070000000000000000000001",
                                        "0001feff0700000000000000000000000"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        check_refused(1, shown[i], ERR_UNAUTHENTICATED, "only the other ranks of this group");
    }
}
END_TEST

START_TEST(more_streams_than_ranks_are_refused_until_one_has_ended)
{
    open_both(2, pass_text());
    struct rpc_stream *held[2] = {stay(), stay()};
    for (int i = 0; i < 2; i++) {
        CHECK_ERR(receive(held[i], AWHILE_MS), ERR_TIMEOUT, "");
    }
    struct rpc_stream *third = stay();
    CHECK_ERR(receive(third, PATIENCE_MS), ERR_EXHAUSTED, "all 2 other ranks");
    rpc_stream_close(third);
    sleep_ms(AWHILE_MS);
    ck_assert_int_eq(atomic_load(&n_lost), 0);
    rpc_stream_close(held[0]);
    wait_for_loss();
    held[0] = stay();
    CHECK_ERR(receive(held[0], AWHILE_MS), ERR_TIMEOUT, "");
    listener_set_leaving(listener);
    for (int i = 0; i < 2; i++) {
        rpc_stream_close(held[i]);
    }
    close_both();
    ck_assert_int_eq(atomic_load(&n_lost), 1);
}
END_TEST

START_TEST(rank_that_watches_its_lead_is_a_member_whose_end_is_a_loss)
{
    struct lead_watch *watch;
    open_both(1, NULL);
    CHECK_OK(lead_watch_open(&watch, address, pass, &(struct lead_access){0}, &err));
    sleep_ms(AWHILE_MS); /* a watch that is refused ends this process */
    ck_assert_int_eq(atomic_load(&n_lost), 0);
    lead_watch_close(watch);
    wait_for_loss();
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("members");
    TCase *cases = tcase_create("members");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, pass_is_written_in_hexadecimal);
    tcase_add_test(cases, group_without_such_streams_refuses_all);
    tcase_add_test(cases, stranger_is_refused_and_its_end_ends_nothing);
    tcase_add_test(cases, more_streams_than_ranks_are_refused_until_one_has_ended);
    tcase_add_test(cases, rank_that_watches_its_lead_is_a_member_whose_end_is_a_loss);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
