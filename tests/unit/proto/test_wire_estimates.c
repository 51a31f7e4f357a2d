/* Strategies, thresholds and estimates that are refused in requests, summaries and descriptions. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>

#include "proto/generation_wire.h"
#include "tests/support/check_util.h"

enum { ARENA_BYTES = 1 << 20 };

static struct error err;
static struct arena arena;
static struct buffer buf;

static void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&arena);
    buffer_free(&buf);
}

static void description_refused(const struct service_description *desc, const char *text)
{
    struct service_description got;
    CHECK_OK(service_description_encode(&buf, desc, &err));
    arena_reset(&arena);
    CHECK_ERR(service_description_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
}

static void summary_refused(const struct estimates *estimates, float threshold, const char *text)
{
    const struct generate_summary summary = {.finish_reason = "",
                                             .stop_match = "",
                                             .rule = "",
                                             .speculation_off = "",
                                             .request_id = "",
                                             .arithmetic = "",
                                             .threshold = threshold,
                                             .estimates = *estimates};
    const struct generate_reply sent = {.summary = &summary};
    struct generate_reply got;
    CHECK_OK(generate_reply_encode(&buf, &sent, &err));
    arena_reset(&arena);
    CHECK_ERR(generate_reply_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
}

START_TEST(estimates_refusals_name_the_field)
{
    const struct estimates good = {.n_rounds = 1, .n_positions = 2};
    struct {
        struct estimates estimates;
        const char *text;
    } cases[] = {{good, "rounds is 4294967295"}, {good, "draft_us is -1"},
                 {good, "read_us is nan"},       {good, "step_us is inf"},
                 {good, "row_us is -inf"},       {good, "rtt_us is -0.5"},
                 {good, "alpha is 1.5"},         {good, "alpha_per_position is 2"}};
    cases[0].estimates.n_rounds = -1;
    cases[1].estimates.draft_us = -1;
    cases[2].estimates.read_us = NAN;
    cases[3].estimates.step_us = INFINITY;
    cases[4].estimates.row_us = -INFINITY;
    cases[5].estimates.rtt_us = -0.5f;
    cases[6].estimates.alpha = 1.5f;
    cases[7].estimates.alpha_at[1] = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct service_description desc = {.version = "",
                                           .target_model = "",
                                           .target_architecture = "",
                                           .arithmetic = "",
                                           .draft_model = "",
                                           .state = "",
                                           .estimates = cases[i].estimates};
        description_refused(&desc, cases[i].text);
        summary_refused(&cases[i].estimates, 0, cases[i].text);
        desc.estimates = good;
        desc.default_strategy = (enum strategy)9;
        description_refused(&desc, "strategy is 9");
    }
    summary_refused(&good, 7, "threshold is 7");
    /* A repeated field of 17 floats: Description.estimates.alpha_per_position. */
    uint8_t many[80] = {0x9a, 0x01, 70, 0x42, 68};
    struct service_description got;
    CHECK_ERR(service_description_decode(many, 73, &arena, &got, &err), ERR_FORMAT,
              "alpha_per_position has 17 entries, at most 16");
}
END_TEST

static void request_refused(enum strategy strategy, float threshold, const char *text)
{
    const struct generate_request sent = {.prompt = "x",
                                          .prompt_len = 1,
                                          .sampling = {.temperature = 1, .top_p = 1},
                                          .n_draft = -1,
                                          .strategy = strategy,
                                          .has_threshold = true,
                                          .threshold = threshold,
                                          .n = 1,
                                          .logprobs = -1,
                                          .repetition_penalty = 1};
    struct generate_request got;
    CHECK_OK(generate_request_encode(&buf, &sent, &err));
    arena_reset(&arena);
    CHECK_ERR(generate_request_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
}

START_TEST(request_refusals_name_the_field)
{
    request_refused((enum strategy)N_STRATEGIES, 0.5f, "strategy is 5, must be 0 to 4");
    request_refused((enum strategy) - 1, 0.5f, "strategy is -1, must be 0 to 4");
    request_refused(STRATEGY_THRESHOLD, 1.25f, "threshold is 1.25");
    request_refused(STRATEGY_THRESHOLD, -0.5f, "threshold is -0.5");
    request_refused(STRATEGY_THRESHOLD, NAN, "threshold is nan");
}
END_TEST

START_TEST(times_refusals_name_the_table)
{
    static const struct service_description nothing = {.version = "",
                                                       .target_model = "",
                                                       .target_architecture = "",
                                                       .arithmetic = "",
                                                       .draft_model = "",
                                                       .state = ""};
    struct service_description desc = nothing;
    desc.times.draft = (struct time_table){1, {{1, -2}}};
    description_refused(&desc, "times.draft is -2");
    desc = nothing;
    desc.times.step = (struct time_table){2, {{1, 5}, {NAN, 5}}};
    description_refused(&desc, "times.step is nan");
    desc = nothing;
    desc.times.rest = (struct time_table){1, {{1, INFINITY}}};
    description_refused(&desc, "times.rest is inf");
    /* A table of 81 empty points: Description.times.step. */
    uint8_t many[256] = {0xc2, 0x01, 0xa2, 0x01};
    for (int i = 0; i < TIME_POINTS_MAX + 1; i++) {
        many[4 + 2 * i] = 0x12;
    }
    struct service_description got;
    CHECK_ERR(service_description_decode(many, 4 + 162, &arena, &got, &err), ERR_FORMAT,
              "times.step has 81 entries, at most 80");
}
END_TEST

/* Fields that an older coordinator leaves out. */
START_TEST(absent_estimates_are_zeros)
{
    struct service_description got;
    CHECK_OK(service_description_decode(NULL, 0, &arena, &got, &err));
    ck_assert(got.estimates.n_rounds == 0 && got.estimates.step_us == 0);
    ck_assert(got.estimates.n_positions == 0 && got.default_strategy == STRATEGY_DEFAULT);
    ck_assert(got.times.draft.n == 0 && got.times.step.n == 0 && got.times.rest.n == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_estimates");
    TCase *tcase = tcase_create("refusals");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, estimates_refusals_name_the_field);
    tcase_add_test(tcase, request_refusals_name_the_field);
    tcase_add_test(tcase, times_refusals_name_the_table);
    tcase_add_test(tcase, absent_estimates_are_zeros);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
