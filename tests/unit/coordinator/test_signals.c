/* ctest: labels=quick,threads libs=signals timeout=60 */
/* The page has what the engine tells the signals, under our names and vLLM's, before a group
 * serves, while another one comes, and while others read. */
#include "coordinator/signals/signals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/limits.h"
#include "coordinator/signals/job_report.h"
#include "tests/support/check_util.h"

static void look(void *arg, struct signals *s)
{
    signals_set(s, SIGNAL_WAITING, 0, *(const int *)arg);
}

static int n_waiting = 3;

static struct signals *open_signals(bool has_vllm)
{
    const struct signals_options options = {.version = "1.2",
                                            .draft_name = "small \"one\"",
                                            .has_vllm = has_vllm,
                                            .look = look,
                                            .look_arg = &n_waiting};
    struct error err;
    struct signals *s;
    CHECK_OK(signals_open(&s, &options, &err));
    return s;
}

static void set_group(struct signals *s, const char *model)
{
    const struct signals_group group = {.model = model,
                                        .arithmetic = "cpu-bf16",
                                        .kernels = "avx2",
                                        .n_ranks = 2,
                                        .n_kv_blocks = 64,
                                        .block_tokens = 16};
    struct error err;
    CHECK_OK(signals_set_group(s, &group, &err));
}

/* The page as text, in out. */
static const char *show(struct signals *s, struct buffer *out)
{
    struct error err;
    out->len = 0;
    CHECK_OK(signals_write(s, out, &err));
    CHECK_OK(buffer_append(out, "", 1, &err));
    return (const char *)out->data;
}

/* The page has this line. */
static void check_line(const char *page, const char *line)
{
    char wanted[512];
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    ck_assert_msg(strstr(page, wanted) != NULL, "no line '%s' in\n%s", line, page);
}

static void check_no(const char *page, const char *part)
{
    ck_assert_msg(strstr(page, part) == NULL, "'%s' is in\n%s", part, page);
}

START_TEST(there_is_a_page_before_there_is_a_group)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    const char *page = show(s, &out);
    check_line(page, "outrider_target_up{model_name=\"unknown\"} 0");
    check_line(page, "outrider_num_requests_waiting{model_name=\"unknown\"} 3");
    check_line(page, "vllm:num_requests_waiting{model_name=\"unknown\"} 3");
    check_line(page, "outrider_build_info{model_name=\"unknown\",version=\"1.2\",arithmetic="
                     "\"unknown\",kernels=\"unknown\",ranks=\"0\",draft=\"small \\\"one\\\"\"} 1");
    ck_assert_ptr_nonnull(strstr(page, "\nprocess_cpu_seconds_total "));
    buffer_free(&out);
    signals_close(s);
}
END_TEST

START_TEST(labels_follow_the_group)
{
    struct signals *s = open_signals(false);
    struct buffer out = {0};
    set_group(s, "tales");
    signals_set(s, SIGNAL_TARGET_UP, 0, 1);
    const char *page = show(s, &out);
    check_line(page, "outrider_target_up{model_name=\"tales\"} 1");
    check_line(page, "outrider_cache_config_info{model_name=\"tales\",block_size=\"16\","
                     "num_gpu_blocks=\"64\"} 1");
    check_no(page, "unknown");
    check_no(page, "vllm:");
    set_group(s, "tales");
    set_group(s, "other");
    page = show(s, &out);
    check_line(page, "outrider_target_up{model_name=\"other\"} 1");
    check_no(page, "tales");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* Three guesses, of which the first stays: the second is rejected, and the third is not tested. */
START_TEST(guesses_are_counted_by_position)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    signals_commit(s, &(struct signals_commit){.n_tokens = 1}); /* the first token: no gap */
    signals_commit(s, &(struct signals_commit){
                          .n_drafted = 3, .n_accepted = 1, .n_tokens = 2, .gap_us = 9001});
    signals_commit(s, &(struct signals_commit){
                          .n_drafted = 2, .n_accepted = 2, .n_tokens = 3, .gap_us = 3000});
    const char *page = show(s, &out);
    check_line(page, "outrider_generation_tokens_total{model_name=\"m\"} 6");
    check_line(page, "vllm:spec_decode_num_drafts_total{model_name=\"m\"} 2");
    check_line(page, "vllm:spec_decode_num_draft_tokens_total{model_name=\"m\"} 5");
    check_line(page, "vllm:spec_decode_num_accepted_tokens_total{model_name=\"m\"} 3");
    check_line(page, "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\",position="
                     "\"0\"} 2");
    check_line(page, "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"m\",position="
                     "\"1\"} 1");
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(signals_get(s, SIGNAL_TESTED_AT, i), i < 2 ? 2 : 0);
    }
    check_line(page, "outrider_draft_length_tokens_bucket{model_name=\"m\",le=\"0\"} 1");
    check_line(page, "outrider_draft_length_tokens_bucket{model_name=\"m\",le=\"2\"} 2");
    check_line(page, "outrider_draft_length_tokens_count{model_name=\"m\"} 3");
    /* Two tokens of 4,501 us and three of 1,000 us. */
    check_line(page, "vllm:inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.001\"} 3");
    check_line(page, "vllm:inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.002\"} 3");
    check_line(page, "vllm:inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.005\"} 5");
    check_line(page, "vllm:inter_token_latency_seconds_sum{model_name=\"m\"} 0.012002");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* Two chains of two guesses; the siblings of both are checked and one of them stays. Neither K nor
 * alpha knows of it. */
START_TEST(siblings_are_counted_beside_the_chain)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    signals_commit(s, &(struct signals_commit){.n_drafted = 2,
                                               .n_accepted = 1,
                                               .n_siblings = 3,
                                               .n_siblings_accepted = 1,
                                               .drafter = SIGNALS_MODEL,
                                               .n_tokens = 3});
    signals_commit(s, &(struct signals_commit){.n_drafted = 2,
                                               .n_accepted = 2,
                                               .n_siblings = 2,
                                               .drafter = SIGNALS_SESSION,
                                               .n_tokens = 3});
    const char *page = show(s, &out);
    check_line(page, "outrider_sibling_tokens_total{model_name=\"m\",drafter=\"model\"} 3");
    check_line(page, "outrider_sibling_tokens_total{model_name=\"m\",drafter=\"session\"} 2");
    check_line(page,
               "outrider_sibling_accepted_tokens_total{model_name=\"m\",drafter=\"model\"} 1");
    check_line(page,
               "outrider_sibling_accepted_tokens_total{model_name=\"m\",drafter=\"session\"} 0");
    check_line(page, "vllm:spec_decode_num_draft_tokens_total{model_name=\"m\"} 4");
    check_line(page, "vllm:spec_decode_num_accepted_tokens_total{model_name=\"m\"} 3");
    check_line(page,
               "outrider_drafter_accepted_tokens_total{model_name=\"m\",drafter=\"model\"} 1");
    check_line(page, "outrider_draft_length_tokens_sum{model_name=\"m\"} 4");
    ck_assert_int_eq(signals_get(s, SIGNAL_TESTED_AT, 1), 2);
    ck_assert_int_eq(signals_get(s, SIGNAL_ACCEPTED_AT, 1), 1);
    check_no(page, "vllm:sibling");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* The rows of a round without guesses may be those of a window. */
START_TEST(a_window_alone_is_counted)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    signals_commit(s, &(struct signals_commit){.n_branch = 8,
                                               .n_branch_accepted = 1,
                                               .branch_drafter = SIGNALS_LOOKAHEAD,
                                               .n_tokens = 2});
    const char *page = show(s, &out);
    check_line(page, "outrider_sibling_tokens_total{model_name=\"m\",drafter=\"lookahead\"} 8");
    check_line(page,
               "outrider_sibling_accepted_tokens_total{model_name=\"m\",drafter=\"lookahead\"} 1");
    check_line(page, "outrider_spec_decode_num_drafts_total{model_name=\"m\"} 0");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* The draft's chain has one sibling, and a finder's chain of three guesses beside it, of which two
 * stay. */
START_TEST(a_second_chain_is_counted_for_who_made_it)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    signals_commit(s, &(struct signals_commit){.n_drafted = 2,
                                               .n_siblings = 1,
                                               .n_branch = 3,
                                               .n_branch_accepted = 2,
                                               .drafter = SIGNALS_MODEL,
                                               .branch_drafter = SIGNALS_STORE,
                                               .n_tokens = 3});
    const char *page = show(s, &out);
    check_line(page, "outrider_sibling_tokens_total{model_name=\"m\",drafter=\"model\"} 1");
    check_line(page, "outrider_sibling_tokens_total{model_name=\"m\",drafter=\"store\"} 3");
    check_line(page,
               "outrider_sibling_accepted_tokens_total{model_name=\"m\",drafter=\"model\"} 0");
    check_line(page,
               "outrider_sibling_accepted_tokens_total{model_name=\"m\",drafter=\"store\"} 2");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* After three guesses of the draft come two of the session's finder; first one of those stays, and
 * then not even all of the draft's. */
START_TEST(appended_guesses_are_counted_for_the_finder)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    for (int n_accepted = 4; n_accepted >= 2; n_accepted -= 2) {
        signals_commit(s, &(struct signals_commit){.n_drafted = 5,
                                                   .n_appended = 2,
                                                   .n_accepted = n_accepted,
                                                   .drafter = SIGNALS_MODEL,
                                                   .appended_drafter = SIGNALS_SESSION,
                                                   .n_tokens = n_accepted + 1});
    }
    const char *page = show(s, &out);
    check_line(page, "outrider_drafter_tokens_total{model_name=\"m\",drafter=\"model\"} 6");
    check_line(page, "outrider_drafter_tokens_total{model_name=\"m\",drafter=\"session\"} 4");
    check_line(page,
               "outrider_drafter_accepted_tokens_total{model_name=\"m\",drafter=\"model\"} 5");
    check_line(page,
               "outrider_drafter_accepted_tokens_total{model_name=\"m\",drafter=\"session\"} 1");
    check_line(page, "vllm:spec_decode_num_draft_tokens_total{model_name=\"m\"} 10");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

START_TEST(drafters_have_their_names)
{
    static const char *const names[] = {
        [SIGNALS_MODEL] = "model",          [SIGNALS_SESSION] = "session",
        [SIGNALS_STORE] = "store",          [SIGNALS_DATASTORE] = "datastore",
        [SIGNALS_RECYCLED] = "recycled",    [SIGNALS_LOOKAHEAD] = "lookahead",
        [SIGNALS_PREDICTION] = "prediction"};
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    char line[128];
    set_group(s, "m");
    for (int i = 0; i < SIGNALS_DRAFTERS; i++) {
        signals_commit(
            s, &(struct signals_commit){.n_drafted = 1 + i, .drafter = (enum signals_drafter)i});
    }
    const char *page = show(s, &out);
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (!names[i]) continue; /* the name of a further row is in that row alone */
        snprintf(line, sizeof line,
                 "outrider_drafter_tokens_total{model_name=\"m\",drafter=\"%s\"} %d", names[i],
                 1 + i);
        check_line(page, line);
    }
    int n_lines = 0;
    for (const char *at = page; (at = strstr(at, "\noutrider_drafter_tokens_total{")); at++) {
        n_lines++;
    }
    ck_assert_int_eq(n_lines, SIGNALS_DRAFTERS);
    buffer_free(&out);
    signals_close(s);
}
END_TEST

START_TEST(a_round_is_the_sum_of_its_parts)
{
    struct signals *s = open_signals(false);
    struct buffer out = {0};
    const struct signals_round round = {.part_us = {[SIGNALS_PLAN] = 10,
                                                    [SIGNALS_DRAFT] = 200,
                                                    [SIGNALS_WIRE] = -5,
                                                    [SIGNALS_VERIFY] = 3000,
                                                    [SIGNALS_COLLECTIVE] = 40,
                                                    [SIGNALS_ACCEPT] = 50},
                                        .n_tokens = 7,
                                        .n_rows = 5,
                                        .n_lanes = 2,
                                        .bytes_sent = 100,
                                        .bytes_received = 900};
    set_group(s, "m");
    signals_round(s, &round);
    const char *page = show(s, &out);
    check_line(page, "outrider_round_seconds_sum{model_name=\"m\"} 0.0033");
    check_line(page, "outrider_round_part_seconds_sum{model_name=\"m\",part=\"verify\"} 0.003");
    check_line(page, "outrider_round_part_seconds_sum{model_name=\"m\",part=\"wire\"} 0");
    check_line(page, "outrider_round_part_seconds_count{model_name=\"m\",part=\"wire\"} 1");
    check_line(page, "outrider_step_tokens_sum{model_name=\"m\"} 7");
    check_line(page, "outrider_step_rows_sum{model_name=\"m\"} 5");
    check_line(page, "outrider_step_lanes_bucket{model_name=\"m\",le=\"2\"} 1");
    check_line(page, "outrider_step_bytes_total{model_name=\"m\",direction=\"received\"} 900");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

START_TEST(load_is_the_one_shown_last)
{
    struct signals *s = open_signals(false);
    struct buffer out = {0};
    float alpha[DRAFT_MAX] = {0.5f, 0.25f};
    struct signals_load load = {
        .n_running = 4,
        .n_places = 8,
        .n_waiting_again = 1,
        .kv_blocks = {[SIGNALS_IN_USE] = 10, [SIGNALS_FREE] = 20, [SIGNALS_CACHED] = 10},
        .alpha = alpha};
    set_group(s, "m");
    signals_set_load(s, &load);
    load.n_running = 2;
    signals_set_load(s, &load);
    const char *page = show(s, &out);
    check_line(page, "outrider_num_requests_running{model_name=\"m\"} 2");
    check_line(page, "outrider_kv_cache_usage_perc{model_name=\"m\"} 0.25");
    check_line(page, "outrider_kv_blocks{model_name=\"m\",state=\"cached\"} 10");
    check_line(page, "outrider_planner_acceptance_ratio{model_name=\"m\",position=\"1\"} 0.25");
    load = (struct signals_load){.alpha = alpha}; /* without a group there are no blocks */
    signals_set_load(s, &load);
    check_line(show(s, &out), "outrider_kv_cache_usage_perc{model_name=\"m\"} 0");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

/* ---- ends ---- */

static void end_job(struct signals *s, enum job_end end, int64_t queue_us, int64_t first_us)
{
    const struct job_report report = {.end = end,
                                      .n_prompt = 12,
                                      .work = {.n_tokens = 30},
                                      .queue_us = queue_us,
                                      .first_token_us = first_us,
                                      .total_us = 900000};
    signals_job(s, &report);
}

START_TEST(only_requests_that_were_served_have_times)
{
    struct signals *s = open_signals(true);
    struct buffer out = {0};
    set_group(s, "m");
    end_job(s, JOB_END_STOP, 2000, 50000);
    end_job(s, JOB_END_CANCELLED, 2000, -1); /* had a place and no token */
    end_job(s, JOB_END_UNAVAILABLE, 2000, 50000);
    end_job(s, JOB_END_REFUSED, -1, -1);
    signals_add(s, SIGNAL_ENDS, JOB_END_REFUSED, 1); /* at the door */
    const char *page = show(s, &out);
    check_line(page, "vllm:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 1");
    check_line(page, "vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"} 1");
    check_line(page, "vllm:request_success_total{model_name=\"m\",finished_reason=\"error\"} 1");
    check_line(page, "outrider_job_ends_total{model_name=\"m\",end=\"refused\"} 2");
    check_line(page, "outrider_job_ends_total{model_name=\"m\",end=\"unavailable\"} 1");
    check_line(page, "vllm:e2e_request_latency_seconds_count{model_name=\"m\"} 3");
    check_line(page, "vllm:request_queue_time_seconds_sum{model_name=\"m\"} 0.006");
    check_line(page, "vllm:request_prefill_time_seconds_sum{model_name=\"m\"} 0.096");
    check_line(page, "vllm:request_decode_time_seconds_sum{model_name=\"m\"} 1.7");
    check_line(page, "vllm:request_generation_tokens_sum{model_name=\"m\"} 60");
    check_line(page, "vllm:request_prompt_tokens_sum{model_name=\"m\"} 36");
    buffer_free(&out);
    signals_close(s);
}
END_TEST

START_TEST(the_first_token_of_a_request_counts_once)
{
    struct signals *s = open_signals(false);
    signals_prompt(s, 10, 4, 2500); /* the first of its texts */
    signals_prompt(s, 10, 9, -1);   /* another one */
    ck_assert_int_eq(signals_get(s, SIGNAL_FIRST_TOKEN_TIME, 0), 1);
    ck_assert_int_eq(signals_get(s, SIGNAL_PREFIX_QUERIES, 0), 20);
    ck_assert_int_eq(signals_get(s, SIGNAL_PREFIX_HITS, 0), 13);
    signals_close(s);
}
END_TEST

/* ---- while others read ---- */

enum { SCRAPERS = 2, COMMITS = 3000, GROUPS_EACH = 10 };

static atomic_bool is_over; /* the engine has stopped */

static void *scrape(void *signals)
{
    struct buffer out = {0};
    long n = 0;
    do {
        const char *page = show(signals, &out);
        const char *label = strstr(page, "outrider_target_up{model_name=\"m");
        ck_assert_ptr_nonnull(label); /* a whole name, whichever group's */
        n++;
    } while (!is_over);
    buffer_free(&out);
    return (void *)n;
}

START_TEST(scrapes_beside_the_engine_see_whole_labels)
{
    struct signals *s = open_signals(true);
    pthread_t threads[SCRAPERS];
    float alpha[DRAFT_MAX] = {0.5f};
    const struct signals_load load = {.alpha = alpha};
    set_group(s, "m");
    is_over = false;
    for (int i = 0; i < SCRAPERS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, scrape, s), 0);
    }
    for (int i = 0; i < COMMITS; i++) {
        signals_commit(s, &(struct signals_commit){
                              .n_drafted = 3, .n_accepted = 2, .n_tokens = 3, .gap_us = 500});
        signals_round(s, &(struct signals_round){.n_lanes = 1});
        signals_set_load(s, &load);
        if (i % (COMMITS / GROUPS_EACH) == 0) set_group(s, i % 2 ? "m-one" : "m-two");
    }
    is_over = true;
    for (int i = 0; i < SCRAPERS; i++) {
        void *n;
        pthread_join(threads[i], &n);
        ck_assert_int_ge((long)n, 1);
    }
    ck_assert_int_eq(signals_get(s, SIGNAL_GENERATION_TOKENS, 0), 3 * COMMITS);
    ck_assert_int_eq(signals_get(s, SIGNAL_ROUND_TIME, 0), COMMITS);
    signals_close(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("signals");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, there_is_a_page_before_there_is_a_group);
    tcase_add_test(tc, labels_follow_the_group);
    tcase_add_test(tc, guesses_are_counted_by_position);
    tcase_add_test(tc, siblings_are_counted_beside_the_chain);
    tcase_add_test(tc, a_second_chain_is_counted_for_who_made_it);
    tcase_add_test(tc, a_window_alone_is_counted);
    tcase_add_test(tc, appended_guesses_are_counted_for_the_finder);
    tcase_add_test(tc, drafters_have_their_names);
    tcase_add_test(tc, a_round_is_the_sum_of_its_parts);
    tcase_add_test(tc, load_is_the_one_shown_last);
    tcase_add_test(tc, only_requests_that_were_served_have_times);
    tcase_add_test(tc, the_first_token_of_a_request_counts_once);
    tcase_add_test(tc, scrapes_beside_the_engine_see_whole_labels);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
