/* ctest: labels=quick libs=worker timeout=60 */
/* A rank's page after steps, further questions, refusals and a new stream. */
#include "worker/rank_signals.h"

#include <stdio.h>

#include "tests/support/check_util.h"

#define LABELS "model_name=\"a \\\"b\\\"\",rank=\"1\",ranks=\"2\""

static struct step_lane lanes[] = {{.n_tokens = 5}, {.n_tokens = 1}};
static const struct step two_lanes = {.n_lanes = 2, .lanes = lanes};
static const struct step question = {.n_more = 1};

static struct rank_signals *open_signals(void)
{
    struct target_description d = {.rank = 1, .n_ranks = 2, .n_kv_blocks = 64, .n_threads = 3};
    struct error err;
    struct rank_signals *s;
    snprintf(d.model, sizeof d.model, "a \"b\"");
    snprintf(d.arithmetic, sizeof d.arithmetic, "cpu-bf16");
    snprintf(d.kernels, sizeof d.kernels, "avx2");
    const struct rank_signals_options options = {.description = &d,
                                                 .version = "1.2",
                                                 .collectives = "mpi",
                                                 .weight_bytes = 5000,
                                                 .kv_bytes = 700};
    CHECK_OK(rank_signals_open(&s, &options, &err));
    return s;
}

static void record(struct rank_signals *s, const struct step *step, const struct step_reply *reply)
{
    const struct rank_signals_step record = {.step = step,
                                             .reply = reply,
                                             .bytes_in = 100,
                                             .bytes_out = 900,
                                             .total_us = 5200,
                                             .n_blocks_written = 7};
    rank_signals_step(s, &record);
}

/* The page has this line. */
static void check_line(const char *page, const char *line)
{
    char wanted[512];
    snprintf(wanted, sizeof wanted, "\noutrider_worker_%s\n", line);
    ck_assert_msg(strstr(page, wanted) != NULL, "no line '%s' in\n%s", line, page);
}

static const char *show(struct rank_signals *s, struct buffer *out)
{
    struct error err;
    out->len = 0;
    CHECK_OK(rank_signals_write(s, out, &err));
    CHECK_OK(buffer_append(out, "", 1, &err));
    return (const char *)out->data;
}

START_TEST(features_are_counted_by_bytes_and_time)
{
    struct rank_signals *s = open_signals();
    struct buffer out = {0};
    static const uint16_t data[40];
    const struct lane_features lanes_of[] = {{40, data}, {8, data}};
    const struct step_reply plain = {.n_rows = 1, .compute_us = 4000},
                            reply = {.compute_us = 4000,
                                     .feature_us = 70,
                                     .n_features = 2,
                                     .features = lanes_of};
    record(s, &two_lanes, &plain);
    record(s, &two_lanes, &reply);
    const char *page = show(s, &out);
    check_line(page, "feature_bytes_total{" LABELS "} 96");
    check_line(page, "step_features_seconds_sum{" LABELS "} 0.00007");
    check_line(page, "step_features_seconds_count{" LABELS "} 1");
    buffer_free(&out);
    rank_signals_close(s);
}
END_TEST

START_TEST(steps_are_measured_and_questions_counted)
{
    struct rank_signals *s = open_signals();
    struct buffer out = {0};
    const struct step_reply reply = {
        .n_rows = 3, .queue_us = 30, .compute_us = 4000, .collective_us = 1000, .n_refused = 1};
    record(s, &two_lanes, &reply);
    record(s, &question, &reply);
    const char *page = show(s, &out);
    check_line(page, "step_seconds_sum{" LABELS "} 0.0052");
    check_line(page, "step_seconds_count{" LABELS "} 1");
    check_line(page, "step_part_seconds_sum{" LABELS ",part=\"queue\"} 0.00003");
    check_line(page, "step_part_seconds_sum{" LABELS ",part=\"compute\"} 0.004");
    check_line(page, "step_part_seconds_sum{" LABELS ",part=\"collective\"} 0.001");
    check_line(page, "step_part_seconds_sum{" LABELS ",part=\"codec\"} 0.0002");
    check_line(page, "step_tokens_sum{" LABELS "} 6");
    check_line(page, "step_rows_sum{" LABELS "} 3");
    check_line(page, "step_lanes_sum{" LABELS "} 2");
    check_line(page, "questions_total{" LABELS "} 1");
    check_line(page, "bytes_total{" LABELS ",direction=\"received\"} 200");
    check_line(page, "bytes_total{" LABELS ",direction=\"sent\"} 1800");
    check_line(page, "lanes_refused_total{" LABELS "} 1");
    check_line(page, "kv_blocks_written{" LABELS "} 7");
    check_line(page, "kv_blocks{" LABELS "} 64");
    check_line(page, "weight_bytes{" LABELS "} 5000");
    check_line(page, "build_info{" LABELS ",version=\"1.2\",arithmetic=\"cpu-bf16\",kernels="
                     "\"avx2\",collectives=\"mpi\",threads=\"3\"} 1");
    ck_assert_ptr_nonnull(strstr(page, "\nprocess_start_time_seconds "));
    buffer_free(&out);
    rank_signals_close(s);
}
END_TEST

START_TEST(refusals_and_losses_are_no_steps)
{
    struct rank_signals *s = open_signals();
    struct buffer out = {0};
    const struct step_reply refused = {.error_text = "stale", .compute_us = 10};
    record(s, &two_lanes, &refused);
    rank_signals_bad_message(s);
    rank_signals_lost_reply(s);
    rank_signals_stream(s);
    const char *page = show(s, &out);
    check_line(page, "step_seconds_count{" LABELS "} 0");
    check_line(page, "steps_refused_total{" LABELS "} 1");
    check_line(page, "bad_messages_total{" LABELS "} 1");
    check_line(page, "lost_replies_total{" LABELS "} 1");
    check_line(page, "streams_total{" LABELS "} 1");
    buffer_free(&out);
    rank_signals_close(s);
}
END_TEST

START_TEST(a_new_stream_has_written_nothing)
{
    struct rank_signals *s = open_signals();
    struct buffer out = {0};
    const struct step_reply reply = {.n_rows = 1};
    record(s, &two_lanes, &reply);
    rank_signals_stream(s);
    check_line(show(s, &out), "kv_blocks_written{" LABELS "} 0");
    buffer_free(&out);
    rank_signals_close(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank_signals");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, features_are_counted_by_bytes_and_time);
    tcase_add_test(tc, steps_are_measured_and_questions_counted);
    tcase_add_test(tc, refusals_and_losses_are_no_steps);
    tcase_add_test(tc, a_new_stream_has_written_nothing);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
