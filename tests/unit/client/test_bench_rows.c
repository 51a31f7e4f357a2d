/* ctest: labels=quick libs=client timeout=60 */
/* The parts of `outrider bench` that need no server: arms, prompts, tallies, rows, files. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "client/bench/prompts.h"
#include "client/bench/report.h"
#include "tests/support/check_util.h"

static struct error err;

/* ---- arms ---- */

static struct sweep parsed(const char *text)
{
    struct sweep sweep = {0};
    CHECK_OK(sweep_parse(&sweep, text, &err));
    return sweep;
}

static struct bench_arm base_arm(void)
{
    struct bench_arm base = {.concurrency = 1};
    generate_options_init(&base.generate);
    return base;
}

START_TEST(ranks_change_slowest_and_guesses_fastest)
{
    static const char *const labels[] = {
        "T=1 rule=block K=0", "T=1 rule=block K=1", "T=1 rule=greedy K=0", "T=1 rule=greedy K=1",
        "T=2 rule=block K=0", "T=2 rule=block K=1", "T=2 rule=greedy K=0", "T=2 rule=greedy K=1"};
    const struct sweep sweep = parsed("K=0..1,rule=block,greedy,T=1,2");
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_OK(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err));
    ck_assert_int_eq(n_arms, 8);
    for (int i = 0; i < n_arms; i++) {
        ck_assert_str_eq(arms[i].label, labels[i]);
        ck_assert_int_eq(arms[i].n_ranks, 1 + i / 4);
        ck_assert_int_eq(arms[i].generate.request.n_draft, i % 2);
        ck_assert_str_eq(arms[i].generate.request.rule, i / 2 % 2 ? "greedy" : "block");
        ck_assert_ptr_eq(sweep_plain(arms, n_arms, &arms[i]), &arms[i - i % 2]);
    }
    free(arms);
}
END_TEST

/* A name in braces that only the command sees is no option; it says which cluster an arm needs, and
 * changes slowest. */
START_TEST(names_in_braces_are_for_the_command_that_starts)
{
    static const char *const labels[] = {"T=1 groups=1 C=1 K=0", "T=1 groups=1 C=1 K=2",
                                         "T=1 groups=1 C=8 K=0", "T=1 groups=1 C=8 K=2",
                                         "T=1 groups=2 C=1 K=0", "T=1 groups=2 C=1 K=2",
                                         "T=1 groups=2 C=8 K=0", "T=1 groups=2 C=8 K=2"};
    const struct sweep sweep = parsed("C=1,8,K=0,2,groups=1,2,T=1");
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_OK(sweep_arms(&sweep, &base, "run -T {T} --groups {groups} {K}", &arms, &n_arms, &err));
    ck_assert_int_eq(n_arms, 8);
    for (int i = 0; i < n_arms; i++) {
        ck_assert_str_eq(arms[i].label, labels[i]);
        ck_assert_str_eq(arms[i].started, i < 4 ? "T=1 groups=1" : "T=1 groups=2");
        ck_assert_int_eq(arms[i].n_groups, i < 4 ? 1 : 2);
        ck_assert_str_eq(arms[i].others, i < 4 ? "groups=1" : "groups=2");
        ck_assert_ptr_eq(sweep_plain(arms, n_arms, &arms[i]), &arms[i - i % 2]);
    }
    free(arms);
    CHECK_ERR(sweep_arms(&sweep, &base, "run -T {T}", &arms, &n_arms, &err), ERR_ARGUMENT,
              "no option");
    const struct sweep blank = parsed("groups=1 2");
    CHECK_ERR(sweep_arms(&blank, &base, "{groups}", &arms, &n_arms, &err), ERR_ARGUMENT, "blank");
}
END_TEST

START_TEST(every_option_that_takes_a_value_is_swept_by_its_name)
{
    const struct sweep sweep = parsed("temperature=0.5,max-tokens=7,C=3,stop=x");
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_OK(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err));
    ck_assert_int_eq(n_arms, 1);
    const struct generate_request *request = &arms[0].generate.request;
    ck_assert(request->sampling.temperature > 0.49f && request->sampling.temperature < 0.51f);
    ck_assert_int_eq(request->max_tokens, 7);
    ck_assert_int_eq(arms[0].concurrency, 3);
    ck_assert_int_eq(request->n_stop, 1);
    ck_assert_str_eq(request->stop[0], "x");
    ck_assert_ptr_null(sweep_plain(arms, n_arms, &arms[0]));
    free(arms);
}
END_TEST

START_TEST(series_go_on_as_they_began)
{
    static const struct {
        const char *text, *last;
        int n;
    } good[] = {{"C=1,2,4,...,64", "64", 7}, {"C=3,9,27,...,243", "243", 5},
                {"C=1,2,...,9", "9", 9},     {"C=1,2,3,...,6", "6", 6},
                {"C=8,16,...,32", "32", 4},  {"C=plan,0,2,...,8", "8", 6},
                {"C=1,2,4,...,4", "4", 3}};
    const struct sweep sweep = parsed(good[_i].text);
    ck_assert_int_eq(sweep.factors[0].n, good[_i].n);
    ck_assert_str_eq(sweep.factors[0].values[good[_i].n - 1], good[_i].last);
}
END_TEST

START_TEST(planned_arms_say_nothing_of_k)
{
    const struct sweep sweep = parsed("K=plan,0,4");
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_OK(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err));
    ck_assert_int_eq(arms[0].generate.request.strategy, STRATEGY_PLANNED);
    ck_assert_int_eq(arms[0].generate.request.n_draft, -1);
    ck_assert_str_eq(arms[0].label, "K=plan");
    ck_assert_int_eq(arms[2].generate.request.strategy, STRATEGY_DEFAULT);
    ck_assert_int_eq(arms[2].generate.request.n_draft, 4);
    ck_assert_ptr_eq(sweep_plain(arms, n_arms, &arms[0]), &arms[1]);
    free(arms);
}
END_TEST

/* An addition of one arm is not in another one's request, nor in the base's. */
START_TEST(arms_have_lists_of_their_own)
{
    const struct sweep sweep = parsed("logit-bias=5=1,6=2,ban-ids=7");
    struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_OK(generate_options_set(&base.generate, "ban-ids", "1,2", &err));
    CHECK_OK(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err));
    ck_assert_int_eq(n_arms, 2);
    for (int i = 0; i < n_arms; i++) {
        const struct generate_request *request = &arms[i].generate.request;
        ck_assert_int_eq(request->n_biases, 1);
        ck_assert_int_eq(request->biases[0].id, 5 + i);
        ck_assert_int_eq(request->n_bans, 2);
        ck_assert_int_eq(request->bans[0].ids[1], 2);
        ck_assert_int_eq(request->bans[1].ids[0], 7);
        ck_assert_ptr_eq(request->bans[1].ids, arms[i].generate.ban_ids[1]);
    }
    ck_assert_int_eq(base.generate.request.n_bans, 1);
    free(arms);
}
END_TEST

START_TEST(sweeps_that_make_no_sense_are_refused)
{
    static const struct {
        const char *text, *part;
    } bad[] = {{"", "expected NAME=VALUES"},
               {"4", "expected NAME=VALUES"},
               {"=4", "no name"},
               {"K=", "no value"},
               {"K=1,,2", "no value"},
               {"K=3..1", "whole number from 3"},
               {"K=1,K=2", "named twice"},
               {"K=0..64", "more than 64 values"},
               {"C=1,2,4,...,63", "does not reach 63"},
               {"C=4,2,...,1", "does not reach 1"},
               {"C=1,2,4,...,2", "does not reach 2"},
               {"C=1,...,4", "two numbers"},
               {"C=1,2,...", "no value after"},
               {"C=1,2,...,K=1", "no value after"},
               {"C=1,2,x,...,4", "two numbers"},
               {"C=1,2,...,1000", "more than 64 values"},
               {"a=1,b=1,c=1,d=1,e=1,f=1,g=1", "more than 6 names"},
               {"abcdefghijklmnopqrstuvwxyz=1", "no name"},
               {"K=abcdefghijklmnopqrstuvwxyz", "no value"}};
    struct sweep sweep = {0};
    CHECK_ERR(sweep_parse(&sweep, bad[_i].text, &err), ERR_ARGUMENT, bad[_i].part);
}
END_TEST

START_TEST(arms_that_make_no_sense_are_refused)
{
    static const struct {
        const char *text, *part;
    } bad[] = {{"K=17", "--draft-tokens"},
               {"T=0", "--sweep T"},
               {"C=257", "--sweep C"},
               {"R=0", "--sweep R"},
               {"colour=red", "no option"},
               {"ignore-eos=1", "no option"},
               {"temperature=1e-9", "temperature"},
               {"C=1..64,K=0..16", "more than 1024"}};
    const struct sweep sweep = parsed(bad[_i].text);
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms;
    CHECK_ERR(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err), ERR_ARGUMENT, bad[_i].part);
    ck_assert_ptr_null(arms);
}
END_TEST

/* ---- prompts ---- */

static int read_prompts(struct bench_prompts *prompts, const char *text)
{
    char path[] = "/tmp/outrider-prompts-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    int rc = bench_prompts_read(prompts, path, &err);
    unlink(path);
    return rc;
}

START_TEST(prompts_are_lines_or_objects)
{
    struct bench_prompts prompts;
    CHECK_OK(read_prompts(&prompts, "one\n\n \t\ntwo words"));
    ck_assert_int_eq(prompts.n, 2);
    ck_assert_str_eq(prompts.items[0].text, "one");
    ck_assert_str_eq(prompts.items[1].text, "two words");
    bench_prompts_close(&prompts);
    CHECK_OK(read_prompts(&prompts, "{\"prompt\": \"a\\nb\", \"n\": 5}\n{\"prompt\": \"{\"}\n"));
    ck_assert_int_eq(prompts.n, 2);
    ck_assert_str_eq(prompts.items[0].text, "a\nb");
    ck_assert_int_eq(prompts.items[0].max_tokens, 5);
    ck_assert_int_eq(prompts.items[1].max_tokens, 0);
    bench_prompts_close(&prompts);
}
END_TEST

START_TEST(bad_prompt_files_name_the_line)
{
    static const struct {
        const char *text, *part;
    } bad[] = {{"", "has no prompt"},
               {"\n \n", "has no prompt"},
               {"{\"prompt\": 1}", "line 1: there is no text"},
               {"{\"prompt\": \"x\"}\nplain\n", "line 2"},
               {"{\"prompt\": \"x\", \"n\": 0}", "whole number"},
               {"{\"prompt\": \"x\", \"n\": \"5\"}", "whole number"},
               {"{\"prompt\": \"x\", \"n\": 1e9}", "whole number"},
               {"{\"prompt\": \"x\"", "line 1"}};
    struct bench_prompts prompts;
    CHECK_ERR(read_prompts(&prompts, bad[_i].text), ERR_FORMAT, bad[_i].part);
    ck_assert_int_eq(prompts.n, 0);
}
END_TEST

START_TEST(drawn_prompts_repeat_and_fill_the_vocabulary)
{
    enum { N = 64, LEN = 100, VOCAB = 50 };
    struct bench_prompts first, second, other;
    int seen[VOCAB] = {0}, n_seen = 0, n_equal = 0;
    struct bench_draw draw = {.n = N, .n_tokens = LEN, .vocab_size = VOCAB, .seed = 7};
    CHECK_OK(bench_prompts_draw(&first, &draw, &err));
    CHECK_OK(bench_prompts_draw(&second, &draw, &err));
    draw.seed = 8;
    CHECK_OK(bench_prompts_draw(&other, &draw, &err));
    for (int i = 0; i < N * LEN; i++) {
        int32_t id = first.items[i / LEN].ids[i % LEN];
        ck_assert(id >= 0 && id < VOCAB && id == second.ids[i]);
        n_seen += !seen[id]++;
        n_equal += id == other.ids[i];
    }
    ck_assert_int_eq(n_seen, VOCAB);
    ck_assert_int_lt(n_equal, N * LEN / 25); /* 2 % expected of 6400 */
    bench_prompts_close(&first);
    bench_prompts_close(&second);
    bench_prompts_close(&other);
}
END_TEST

START_TEST(shared_ids_are_those_at_the_beginning)
{
    enum { N = 8, LEN = 40, SHARED = 24, VOCAB = 1000 };
    const struct bench_draw draw = {
        .n = N, .n_tokens = LEN, .n_shared = SHARED, .vocab_size = VOCAB, .seed = 7};
    struct bench_prompts prompts;
    CHECK_OK(bench_prompts_draw(&prompts, &draw, &err));
    const int32_t *first = prompts.items[0].ids;
    for (int i = 1; i < N; i++) {
        const int32_t *ids = prompts.items[i].ids;
        ck_assert_mem_eq(ids, first, SHARED * sizeof *ids);
        ck_assert_mem_ne(ids + SHARED, first + SHARED, (LEN - SHARED) * sizeof *ids);
    }
    bench_prompts_close(&prompts);
}
END_TEST

/* Every slice has first ids of its own, and a slice can be had again. */
START_TEST(renewed_prompts_differ_in_their_first_id_alone)
{
    enum { N = 4, LEN = 8, VOCAB = 50 };
    const struct bench_draw draw = {
        .n = N, .n_tokens = LEN, .n_shared = 2, .vocab_size = VOCAB, .seed = 7};
    struct bench_prompts prompts, same;
    bool seen[VOCAB] = {false};
    CHECK_OK(bench_prompts_draw(&prompts, &draw, &err));
    CHECK_OK(bench_prompts_draw(&same, &draw, &err));
    for (int slice = 0; slice < VOCAB; slice++) {
        bench_prompts_renew(&prompts, &draw, slice);
        for (int i = 0; i < N; i++) {
            const int32_t *ids = prompts.items[i].ids;
            ck_assert_int_eq(ids[0], prompts.items[0].ids[0]);
            ck_assert_mem_eq(ids + 1, same.items[i].ids + 1, (LEN - 1) * sizeof *ids);
        }
        int32_t id = prompts.items[0].ids[0];
        ck_assert(id >= 0 && id < VOCAB && !seen[id]);
        seen[id] = true;
    }
    bench_prompts_renew(&prompts, &draw, VOCAB);
    ck_assert_mem_eq(prompts.ids, same.ids, N * LEN * sizeof *same.ids);
    bench_prompts_close(&prompts);
    bench_prompts_close(&same);
}
END_TEST

/* ---- rows ---- */

static struct generate_summary summary_in_company(enum strategy strategy)
{
    return (struct generate_summary){.completion_tokens = 30,
                                     .n_draft = 16,
                                     .strategy = strategy,
                                     .counters = {.rounds = 11, /* ten of them are timed */
                                                  .drafted = 22,
                                                  .rounds_us = 1000,
                                                  .lanes = 40,
                                                  .step_tokens = 65,
                                                  .target_reused = 48,
                                                  .draft_reused = 32,
                                                  .preemptions = 3,
                                                  .expected_us = 1100,
                                                  .planned_us = 1000}};
}

START_TEST(rows_say_what_company_the_requests_had)
{
    static struct tally tally;
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    const struct generate_summary summary = summary_in_company(STRATEGY_PLANNED);
    tally_begin(&tally);
    for (int i = 0; i < 4; i++) { /* two requests of two texts each */
        tally_add_summary(&tally, &summary);
        if (i % 2) tally_add_done(&tally, 5000);
    }
    bench_row_of(&row, &arm, &tally);
    ck_assert(row.figures[BENCH_REQUESTS] == 2 && row.figures[BENCH_BATCH_SIZE] == 4);
    ck_assert(row.figures[BENCH_ROWS_PER_STEP] == 6.5 && row.figures[BENCH_MEAN_K] == 2);
    ck_assert(row.figures[BENCH_TARGET_REUSED] == 192 && row.figures[BENCH_DRAFT_REUSED] == 128);
    ck_assert(row.figures[BENCH_PREEMPTIONS] == 12 && row.figures[BENCH_ROUND_US] == 100);
    ck_assert(row.figures[BENCH_PREDICTED_RATIO] == 1.1);
    ck_assert(row.is_planned);
}
END_TEST

/* Each place's guesses in columns of their own, and empty ones where there were none. */
START_TEST(rows_say_who_guessed_and_how_places_fared)
{
    static struct tally tally;
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    const struct generate_summary summary = {.completion_tokens = 30,
                                             .counters = {.rounds = 10,
                                                          .drafted = 16,
                                                          .siblings = 7,
                                                          .siblings_accepted = 2,
                                                          .found = 5,
                                                          .found_accepted = 3,
                                                          .appended = 4,
                                                          .appended_accepted = 1,
                                                          .staged = 6,
                                                          .drafted_at = {10, 6},
                                                          .tested_at = {10, 4},
                                                          .accepted_at = {5, 1}}};
    tally_begin(&tally);
    tally_add_summary(&tally, &summary);
    tally_add_summary(&tally, &summary);
    bench_row_of(&row, &arm, &tally);
    static const enum bench_figure figures[] = {
        BENCH_SIBLINGS, BENCH_SIBLINGS_ACCEPTED, BENCH_FOUND, BENCH_FOUND_ACCEPTED,
        BENCH_APPENDED, BENCH_APPENDED_ACCEPTED, BENCH_STAGED};
    static const int wanted[] = {14, 4, 10, 6, 8, 2, 12};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        ck_assert(row.figures[figures[i]] == wanted[i]);
    }
    ck_assert(row.figures[BENCH_DRAFTED_AT] == 20 && row.figures[BENCH_DRAFTED_AT + 1] == 12);
    ck_assert(row.figures[BENCH_TESTED_AT + 1] == 8 && row.figures[BENCH_ACCEPTED_AT] == 10);
    ck_assert(row.figures[BENCH_ACCEPTED_AT + 1] == 2 && isnan(row.figures[BENCH_TESTED_AT + 2]));
    ck_assert_str_eq(bench_figure_name(BENCH_DRAFTED_AT), "drafted_pos_0");
    ck_assert_str_eq(bench_figure_name(BENCH_TESTED_AT + 9), "tested_pos_9");
    ck_assert_str_eq(bench_figure_name(N_BENCH_FIGURES - 1), "accepted_pos_15");
}
END_TEST

/* Such a K is the limit of the planner's choice, and the row of K = 4 stays the row of K = 4. */
START_TEST(planned_rows_are_those_without_a_number)
{
    static struct tally tally;
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    struct generate_summary summary = summary_in_company(STRATEGY_PLANNED);
    arm.generate.request.n_draft = 4;
    tally_begin(&tally);
    tally_add_summary(&tally, &summary);
    bench_row_of(&row, &arm, &tally);
    ck_assert(!row.is_planned);
    arm.generate.request.n_draft = -1;
    summary.strategy = STRATEGY_FIXED;
    tally_add_summary(&tally, &summary);
    bench_row_of(&row, &arm, &tally);
    ck_assert(!row.is_planned);
}
END_TEST

START_TEST(errors_are_counted_by_sentence)
{
    static struct tally tally, all;
    struct bench_arm arm = base_arm();
    static struct bench_row row;
    tally_begin(&tally);
    tally_begin(&all);
    for (int i = 0; i < 20; i++) {
        error_set(&err, ERR_TIMEOUT, "sentence %d", i % 10);
        tally_add_failure(&tally, &err);
    }
    tally_merge_errors(&all, &tally);
    tally_merge_errors(&all, &tally);
    ck_assert_int_eq(tally.n_errors, TALLY_ERRORS_MAX);
    ck_assert_int_eq(tally.errors[0].n, 2);
    ck_assert_int_eq(tally.errors[TALLY_ERRORS_MAX - 1].n, 6); /* with those that found no room */
    ck_assert_int_eq(all.n_failed, 40);
    ck_assert_int_eq(all.errors[0].n, 4);
    bench_row_of(&row, &arm, &tally);
    ck_assert_str_eq(row.error, "sentence 7");
    ck_assert(row.figures[BENCH_FAILURES] == 20 && isnan(row.figures[BENCH_ALPHA]));
}
END_TEST

START_TEST(tokens_share_the_gap_of_their_message)
{
    static struct tally tally;
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    tally_begin(&tally);
    for (int i = 0; i < 100; i++)
        tally_add_gap(&tally, 4000, 4);
    tally_add_gap(&tally, 4000, 1);
    bench_row_of(&row, &arm, &tally);
    ck_assert(tally.token_gap.n == 401 && tally.message_gap.n == 101);
    ck_assert(fabs(row.figures[BENCH_TOKEN_P50] - 1e-3) < 3e-5);
    ck_assert(fabs(row.figures[BENCH_TOKEN_P99] - 1e-3) < 3e-5);
    ck_assert(fabs(row.figures[BENCH_MESSAGE_P50] - 4e-3) < 1.2e-4);
}
END_TEST

START_TEST(quartiles_and_ratios_stay_within_a_repetition)
{
    enum { N_ARMS = 2, N_REPETITIONS = 5 };
    static struct bench_row rows[N_ARMS * N_REPETITIONS];
    const struct sweep sweep = parsed("K=0,4");
    const struct bench_arm base = base_arm();
    struct bench_arm *arms;
    int n_arms, n = 0;
    CHECK_OK(sweep_arms(&sweep, &base, NULL, &arms, &n_arms, &err));
    for (int r = 0; r < N_REPETITIONS; r++) {
        for (int a = 0; a < N_ARMS; a++, n++) {
            rows[n] = (struct bench_row){.arm = &arms[r % 2 ? N_ARMS - 1 - a : a], .repetition = r};
            bool is_fast = rows[n].arm == &arms[1];
            /* Repetition r is r + 1 times as fast as the first; the ratios are 1, 2, 3, 4 and 5. */
            rows[n].figures[BENCH_DECODE_TOKENS_PER_S] = (r + 1) * 10 * (is_fast ? r + 1 : 1);
        }
    }
    bench_row_ratios(rows, n, arms, n_arms);
    struct bench_results results = {.rows = rows, .n_rows = n};
    struct quartiles q = bench_figure_quartiles(&results, &arms[1], BENCH_SPEEDUP);
    ck_assert(q.n == 5 && q.low == 2 && q.median == 3 && q.high == 4);
    q = bench_figure_quartiles(&results, &arms[0], BENCH_SPEEDUP);
    ck_assert(q.low == 1 && q.median == 1 && q.high == 1);
    results.n_rows = 2;
    q = bench_figure_quartiles(&results, &arms[1], BENCH_DECODE_TOKENS_PER_S);
    ck_assert(q.n == 1 && q.low == 10 && q.high == 10);
    results.n_rows = n;
    q = bench_figure_quartiles(&results, &arms[1], BENCH_THROUGHPUT_RATIO);
    ck_assert(q.n == 0 && isnan(q.median)); /* 0 / 0: no tokens per second were given */
    free(arms);
}
END_TEST

START_TEST(texts_stay_in_their_field)
{
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    const struct bench_results results = {.rows = &row,
                                          .n_rows = 1,
                                          .target_model = "a,b",
                                          .draft_model = "say \"x\"",
                                          .arithmetic = "two\nlines"};
    char line[4096] = "";
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    row.arm = &arm;
    CHECK_OK(bench_csv_rows(file, "x", &results, 0, &err));
    rewind(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_ptr_nonnull(strstr(line, ",\"a,b\",\"say \"\"x\"\"\",\"two lines\"\n"));
    ck_assert(fgetc(file) == EOF);
    fclose(file);
}
END_TEST

START_TEST(disk_that_is_full_is_reported)
{
    static struct bench_row row;
    struct bench_arm arm = base_arm();
    const struct bench_results results = {
        .rows = &row, .n_rows = 1, .target_model = "", .draft_model = "", .arithmetic = ""};
    FILE *file = fopen("/dev/full", "w");
    if (!file) return;
    row.arm = &arm;
    CHECK_ERR(bench_csv_rows(file, "rows.csv", &results, 0, &err), ERR_IO, "rows.csv");
    fclose(file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_rows");
    TCase *tcase = tcase_create("parts");
    tcase_add_test(tcase, ranks_change_slowest_and_guesses_fastest);
    tcase_add_test(tcase, names_in_braces_are_for_the_command_that_starts);
    tcase_add_test(tcase, every_option_that_takes_a_value_is_swept_by_its_name);
    tcase_add_loop_test(tcase, sweeps_that_make_no_sense_are_refused, 0, 19);
    tcase_add_loop_test(tcase, series_go_on_as_they_began, 0, 7);
    tcase_add_test(tcase, planned_arms_say_nothing_of_k);
    tcase_add_test(tcase, arms_have_lists_of_their_own);
    tcase_add_loop_test(tcase, arms_that_make_no_sense_are_refused, 0, 8);
    tcase_add_test(tcase, prompts_are_lines_or_objects);
    tcase_add_loop_test(tcase, bad_prompt_files_name_the_line, 0, 8);
    tcase_add_test(tcase, drawn_prompts_repeat_and_fill_the_vocabulary);
    tcase_add_test(tcase, shared_ids_are_those_at_the_beginning);
    tcase_add_test(tcase, renewed_prompts_differ_in_their_first_id_alone);
    tcase_add_test(tcase, rows_say_what_company_the_requests_had);
    tcase_add_test(tcase, rows_say_who_guessed_and_how_places_fared);
    tcase_add_test(tcase, planned_rows_are_those_without_a_number);
    tcase_add_test(tcase, errors_are_counted_by_sentence);
    tcase_add_test(tcase, tokens_share_the_gap_of_their_message);
    tcase_add_test(tcase, quartiles_and_ratios_stay_within_a_repetition);
    tcase_add_test(tcase, texts_stay_in_their_field);
    tcase_add_test(tcase, disk_that_is_full_is_reported);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
