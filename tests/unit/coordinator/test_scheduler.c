/* ctest: labels=quick libs=coordinator timeout=120 */
/* Plans for sequences in chosen states: who comes first, who waits, and who gives up its place.
 * What holds for every plan is checked by tests/support/scheduler_world.h with each of them. */
#include "coordinator/schedule/places.h"
#include "tests/support/scheduler_plans.h"

#include "base/least.h"

static const struct world_options small_steps = {64, 64, 1024, 1024, 64};

/* ---- decoding lanes ---- */

START_TEST(decoding_lanes_come_first)
{
    world_open(&w, &small_steps);
    begin_decoding(40, STRATEGY_FIXED, 0);
    struct sequence *prompt = add(400, 10, STRATEGY_FIXED, 0);
    plan_now();
    ck_assert_int_eq(w.plan.n_lanes, 41);
    for (int i = 0; i < 40; i++) {
        ck_assert(w.plan.lanes[i].n_tokens == 1 && w.plan.lanes[i].is_last);
    }
    ck_assert_int_eq(tokens_of(prompt), 24); /* what is left of the step */
    world_close(&w);
}
END_TEST

/* ---- K ---- */

START_TEST(lanes_with_a_fixed_k_take_turns_in_a_full_step)
{
    enum {
        N = 64,
        FIXED = 8,
        PER_ROUND = 64 / (FIXED + 1),
        TURN = (N + PER_ROUND - 1) / PER_ROUND
    };
    int last[N] = {0};
    world_open(&w, &small_steps);
    begin_decoding(N, STRATEGY_FIXED, FIXED);
    for (int round = 1; round <= 10 * TURN; round++) {
        plan_now();
        ck_assert_int_eq(w.plan.n_lanes, PER_ROUND);
        for (int i = 0; i < N; i++) {
            const struct lane_plan *lane = world_lane(&w, w.active[i]);
            if (lane) {
                ck_assert_int_eq(lane_plan_k(lane), FIXED);
                last[i] = round;
            }
            ck_assert(round - last[i] <= TURN);
        }
        world_play(&w, NONE_STAYS);
    }
    world_close(&w);
}
END_TEST

/* One lane whose guesses need nearly the whole step, beside prompts that never end. */
START_TEST(a_large_k_has_its_turn_while_prompts_keep_coming)
{
    static const struct world_options tight = {17, 17, 1024, 1024, 16};
    world_open(&w, &tight);
    begin_decoding(1, STRATEGY_FIXED, 16);
    struct sequence *lane = w.active[0];
    for (int round = 0, waited = 0; round < 60; round++) {
        add(30, 2, STRATEGY_FIXED, 0);
        plan_now();
        waited = world_lane(&w, lane) ? 0 : waited + 1;
        ck_assert(waited <= 3);
        world_play(&w, NONE_STAYS);
    }
    ck_assert_int_gt(w.n_ended, 5); /* and the prompts are read, too */
    world_close(&w);
}
END_TEST

/* All rows of the step could be taken by guesses. */
START_TEST(a_prompt_is_read_while_guesses_could_fill_the_step)
{
    static const struct world_options few_rows = {512, 64, 1024, 1024, 64};
    world_open(&w, &few_rows);
    teach_steps(10000, 250);               /* their prompts fit into one step */
    begin_decoding(32, STRATEGY_FIXED, 7); /* 8 of them take all rows */
    struct sequence *prompt = add(16, 10, STRATEGY_FIXED, 0);
    for (int round = 0; round < 2; round++) {
        plan_now();
        world_play(&w, NONE_STAYS);
    }
    ck_assert_int_gt(prompt->n_tokens, prompt->n_prompt);
    world_close(&w);
}
END_TEST

/* Guesses after those of the draft have what all others leave of the step, tokens or rows, and of
 * that no more than each may. */
START_TEST(appended_guesses_have_what_others_leave_of_the_step)
{
    static const struct world_options steps[] = {{40, 256, 1024, 1024, 64},
                                                 {512, 40, 1024, 1024, 64}};
    for (int i = 0; i < 2; i++) {
        for (int append_max = 0; append_max <= 8; append_max += 8) {
            int n_guesses = 0, n_append = 0;
            world_open(&w, &steps[i]);
            begin_decoding(4, STRATEGY_PLANNED, DRAFT_MAX);
            teach_steps(10000, 0);
            w.scheduler.append_max = append_max;
            plan_now();
            ck_assert_int_eq(w.plan.n_lanes, 4);
            for (int l = 0; l < 4; l++) {
                n_guesses += lane_plan_k(&w.plan.lanes[l]);
                n_append += plan_n_append(&w.plan.lanes[l]);
            }
            int most = least(4 * append_max, 40 - 4 - n_guesses);
            ck_assert_int_gt(n_guesses, 0);
            ck_assert_int_eq(n_append, most);
            world_close(&w);
        }
    }
}
END_TEST

/* The K of every round of one text, which does not depend on who else is there: a round gives this
 * K or none at all. */
static int record_ks(enum strategy strategy, int n_others, int *ks, int n_max)
{
    int n = 0;
    world_open(&w, &small_steps);
    struct sequence *seq = add(20, 200, strategy, 6);
    for (int i = 0; i < n_others; i++) {
        add(10 + i, 390, i % 2 ? STRATEGY_FIXED : STRATEGY_HEURISTIC, i % 9);
    }
    for (int round = 0; n < n_max && round < 10000; round++) {
        plan_now();
        const struct lane_plan *lane = world_lane(&w, seq);
        if (lane && lane->is_last) {
            ks[n] = lane_plan_k(lane);
            int n_accepted = n * 7 % 5; /* what the target says does not depend on company */
            for (int i = 0; i < w.plan.n_lanes; i++) {
                bool is_it = w.plan.lanes[i].seq == seq;
                int k = lane_plan_k(&w.plan.lanes[i]);
                world_commit(&w, &w.plan.lanes[i], is_it ? least(n_accepted, k) : 0);
            }
            w.plan.n_lanes = 0;
            n++;
        }
        world_play(&w, NONE_STAYS);
    }
    ck_assert_int_eq(n, n_max);
    world_close(&w);
    return n;
}

START_TEST(company_never_changes_a_fixed_or_heuristic_k)
{
    enum { N_ROUNDS = 30 };
    static const enum strategy strategies[] = {STRATEGY_FIXED, STRATEGY_HEURISTIC,
                                               STRATEGY_THRESHOLD};
    int alone[N_ROUNDS], beside[N_ROUNDS];
    record_ks(strategies[_i], 0, alone, N_ROUNDS);
    record_ks(strategies[_i], 63, beside, N_ROUNDS);
    ck_assert_mem_eq(alone, beside, sizeof alone);
    ck_assert_int_gt(alone[1], 0);
}
END_TEST

/* ---- KV blocks ---- */

/* Three plain texts with a full block each; there is one block more, and all will want it. */
static void fill_pool(struct sequence *seqs[3])
{
    static const struct world_options blocks = {64, 64, 4, 0, 4};
    world_open(&w, &blocks);
    for (int i = 0; i < 3; i++) {
        seqs[i] = add(15, 60, STRATEGY_FIXED, 0);
    }
    while (seqs[2]->n_target_kv < WORLD_BLOCK) {
        world_round(&w, NONE_STAYS);
    }
    ck_assert_int_eq(block_pool_room(&w.pool), 1);
    ck_assert_int_eq(w.n_evictions, 0);
}

START_TEST(the_youngest_gives_up_its_place_when_no_block_is_left)
{
    struct sequence *seqs[3];
    fill_pool(seqs);
    plan_now();
    ck_assert_int_eq(w.n_evictions, 1);
    ck_assert(seqs[2]->slot < 0 && seqs[2]->counters.preemptions == 1);
    ck_assert(world_lane(&w, seqs[0]) && world_lane(&w, seqs[1]));
    ck_assert_ptr_eq(w.waiting[0], seqs[2]);
    world_close(&w);
}
END_TEST

/* Also when it is the oldest; and the younger one keeps its place then. */
START_TEST(sequence_of_a_slow_client_gives_up_its_place_first)
{
    struct sequence *seqs[3];
    fill_pool(seqs);
    seqs[0]->backpressure.slow_us = 1;
    plan_now();
    ck_assert_int_eq(w.n_evictions, 1);
    ck_assert_int_lt(seqs[0]->slot, 0);
    ck_assert(world_lane(&w, seqs[1]) && world_lane(&w, seqs[2]));
    world_close(&w);
}
END_TEST

/* Times and counts with which guesses pay. */
static void teach_that_guesses_pay(struct planner *planner, struct planner_sequence *seq)
{
    for (int n = 1; n <= 64; n *= 2) {
        planner_calibrate_step(planner, n, 20000);
        planner_calibrate_draft(planner, 0, n, 100);
    }
    for (int i = 0; i < 200; i++) {
        planner_observe_lane(planner, seq, 0, 8, 8);
    }
}

START_TEST(planned_lane_loses_its_guesses_before_any_sequence_its_place)
{
    static const struct world_options blocks = {64, 64, 6, 64, 4};
    world_open(&w, &blocks);
    struct sequence *seq = add(20, 60, STRATEGY_PLANNED, 8);
    struct sequence *other = add(20, 60, STRATEGY_FIXED, 0);
    plan_now();
    world_play(&w, NONE_STAYS);
    while (seq->n_tokens < 32) {
        seq->n_draft = 0;
        world_round(&w, NONE_STAYS);
    }
    seq->n_draft = 8;
    seq->n_draft_kv[0] = seq->n_tokens - 1;
    teach_that_guesses_pay(&w.planner, &seq->planner_state);
    plan_now();
    ck_assert_int_gt(lane_plan_k(world_lane(&w, seq)), 0); /* where there are blocks, it guesses */
    ck_assert_int_eq(w.n_evictions, 0);
    world_play(&w, NONE_STAYS);
    world_close(&w);

    static const struct world_options fewer = {64, 64, 4, 64, 4};
    world_open(&w, &fewer);
    seq = add(20, 60, STRATEGY_PLANNED, 8);
    other = add(20, 60, STRATEGY_FIXED, 0);
    while (seq->n_tokens < 32) {
        seq->n_draft = 0;
        world_round(&w, NONE_STAYS);
    }
    seq->n_draft = 8;
    seq->n_draft_kv[0] = seq->n_tokens - 1;
    teach_that_guesses_pay(&w.planner, &seq->planner_state);
    plan_now(); /* both have two full blocks, and there is no other */
    ck_assert(world_lane(&w, seq) && lane_plan_k(world_lane(&w, seq)) == 0);
    ck_assert(world_lane(&w, other) && w.n_evictions == 0);
    world_close(&w);
}
END_TEST

START_TEST(an_evicted_text_goes_on_where_it_was)
{
    static const struct world_options blocks = {64, 64, 8, 16, 4};
    world_open(&w, &blocks);
    for (int i = 0; i < 4; i++) {
        add(20, 60, STRATEGY_FIXED, 3);
    }
    while (w.n_ended < 4) {
        int n_tokens[4], n = 0;
        world_admit(&w);
        for (int i = 0; i < w.n_active; i++) {
            n_tokens[n++] = w.active[i]->n_tokens;
        }
        struct sequence *before[4];
        memcpy(before, w.active, sizeof before);
        world_plan(&w);
        for (int i = 0; i < n; i++) {
            ck_assert(before[i]->n_tokens == n_tokens[i]); /* also of those that were evicted */
        }
        world_play(&w, 60);
    }
    ck_assert_int_gt(w.n_evictions, 0);
    world_close(&w);
}
END_TEST

/* ---- scores ---- */

static struct sequence *add_scored(int n_prompt, bool is_echo, int n_draft)
{
    const struct world_job job = {.n_prompt = n_prompt,
                                  .max_tokens = 20,
                                  .is_score = !is_echo,
                                  .is_echo = is_echo,
                                  .strategy = STRATEGY_FIXED,
                                  .n_draft = n_draft,
                                  .text = 3};
    return world_add(&w, &job);
}

/* The rows of each plan are checked to be those of the tokens without a score. */
START_TEST(each_token_is_scored_once_over_chunks_and_an_eviction)
{
    static const struct world_options few_rows = {512, 64, 64, 64, 4};
    int n_rounds = 0, n_scored = 0;
    world_open(&w, &few_rows);
    begin_decoding(2, STRATEGY_FIXED, 0);
    struct sequence *seq = add_scored(300, _i == 1, _i == 1 ? 4 : 0);
    while (n_scored < 299) {
        plan_now();
        const struct lane_plan *lane = world_lane(&w, seq);
        ck_assert_ptr_nonnull(lane);
        n_scored += lane->n_scored;
        ck_assert(lane->n_scored <= 64);
        bool is_over = n_scored == 299;
        world_play(&w, NONE_STAYS);
        if (++n_rounds == 2 && !is_over) { /* its KV is lost, and it begins anew */
            places_withdraw(seq, &w.pool, &w.drafters);
            struct error err;
            CHECK_OK(places_give(seq, 2, &w.pool, &w.drafters, &err));
            ck_assert_int_eq(seq->n_target_kv, 0);
        }
        ck_assert_int_lt(n_rounds, 50);
    }
    world_close(&w);
}
END_TEST

/* Rows of scores, of guesses and of the bonus token together. */
START_TEST(an_echoed_prompt_that_guesses_at_once_keeps_to_the_rows)
{
    for (int n_prompt = 2; n_prompt <= FIRST_GUESS_TOKENS; n_prompt++) {
        static const struct world_options few_rows = {512, 64, 64, 64, 4};
        world_open(&w, &few_rows);
        struct sequence *seq = add_scored(n_prompt, true, 8);
        for (int round = 0; round < 10 && seq->n_tokens == seq->n_prompt; round++) {
            world_round(&w, NONE_STAYS);
        }
        ck_assert_int_gt(seq->n_tokens, seq->n_prompt);
        ck_assert_int_eq(seq->n_scored, n_prompt);
        world_close(&w);
    }
}
END_TEST

START_TEST(a_scored_text_reads_all_of_it_though_others_know_its_beginning)
{
    world_open(&w, &large);
    const struct world_job plain = {.n_prompt = 200, .max_tokens = 5, .text = 3};
    world_add(&w, &plain);
    while (w.n_ended == 0) {
        world_round(&w, NONE_STAYS);
    }
    struct sequence *seq = add_scored(200, false, 0);
    struct sequence *again = world_add(&w, &plain);
    plan_now();
    ck_assert(seq->n_target_kv == 0 && tokens_of(seq) == 199);
    ck_assert(again->n_target_kv == 192 && tokens_of(again) == 8);
    ck_assert_uint_eq(again->counters.target_reused, 192);
    world_close(&w);
}
END_TEST

/* ---- features ---- */

static const struct feature_wish eight = {.n = 8, .boundaries = {0, 1, 2, 3, 4, 5, 6, 7}};
static const struct feature_wish projected = {
    .projection = {.key = {5, 16384}, .n = 3, .boundaries = {2, 4, 6}}};
static const struct feature_wish two = {.n = 2, .boundaries = {3, 6}}, other = {.normed = true};

/* All wishes of a step are one; a text whose wish the older one's does not hold waits for it. */
START_TEST(a_text_that_wants_other_features_waits_for_the_older_one)
{
    world_open(&w, &large);
    w.target.dim = 64;
    struct sequence *first = add_scored(700, false, 0), *alike = add_scored(300, false, 0);
    struct sequence *differs = add_scored(300, false, 0);
    first->job->score.features = eight;
    alike->job->score.features = two;
    differs->job->score.features = other;
    plan_now();
    ck_assert(tokens_of(first) > 0 && tokens_of(alike) > 0);
    ck_assert_ptr_null(world_lane(&w, differs));
    world_play(&w, NONE_STAYS);
    for (int round = 0; round < 50 && w.n_ended < 3; round++) {
        world_round(&w, NONE_STAYS);
    }
    ck_assert_int_eq(w.n_ended, 3);
    world_close(&w);
}
END_TEST

/* 8 boundaries of width 16,384 are 256 KiB a row: a reply has room for 128, and a text that is
 * scored has 32 in a step. Of what a worker has projected it has room for 1024. */
START_TEST(a_step_has_no_more_tokens_than_a_reply_has_room_for_features)
{
    world_open(&w, &large);
    w.target.dim = 16384;
    teach_steps(1000, 1);
    struct sequence *scored = add_scored(700, false, 0), *prompt = add(900, 10, STRATEGY_FIXED, 4);
    scored->job->score.features = eight;
    plan_now();
    ck_assert_int_eq(tokens_of(scored), 32);
    ck_assert_int_le(tokens_of(prompt), 128 - 32);
    w.drafter->features = &eight;
    scored->backpressure.slow_us = 1;
    plan_now();
    ck_assert_int_eq(tokens_of(prompt), 128);
    w.drafter->features = &projected; /* one width in place of three */
    plan_now();
    ck_assert_int_eq(tokens_of(prompt), w.target.max_step_tokens);
    scored->job->score.features = (struct feature_wish){0};
    w.drafter->features = NULL;
    plan_now();
    ck_assert_int_gt(tokens_of(prompt), 128);
    world_close(&w);
}
END_TEST

/* The target computes what the draft has to see, although its KV is known. */
START_TEST(a_draft_that_reads_features_limits_what_the_target_reuses)
{
    world_open(&w, &large);
    const struct world_job plain = {.n_prompt = 200, .max_tokens = 5, .text = 3},
                           guesses = {.n_prompt = 200,
                                      .max_tokens = 5,
                                      .text = 3,
                                      .strategy = STRATEGY_FIXED,
                                      .n_draft = 4};
    world_add(&w, &plain);
    while (w.n_ended == 0) {
        world_round(&w, NONE_STAYS);
    }
    w.drafter->features = &two;
    struct sequence *unread = world_add(&w, &guesses), *without = world_add(&w, &plain);
    plan_now();
    ck_assert(unread->n_target_kv == 0 && without->n_target_kv == 192);
    while (w.n_ended < 3) {
        world_round(&w, NONE_STAYS);
    }
    struct sequence *read = world_add(&w, &guesses);
    plan_now();
    ck_assert(read->n_draft_kv[0] > 0 && read->n_target_kv > 0);
    ck_assert_int_le(read->n_target_kv, read->n_draft_kv[0]);
    w.drafter->features = NULL;
    world_close(&w);
}
END_TEST

/* ---- nobody ---- */

START_TEST(sequences_of_slow_clients_are_not_planned)
{
    world_open(&w, &large);
    begin_decoding(3, STRATEGY_FIXED, 2);
    for (int i = 0; i < 3; i++) {
        w.active[i]->backpressure.slow_us = 1;
    }
    plan_now();
    ck_assert(w.plan.n_lanes == 0 && w.plan.n_readings == 0 && w.n_evictions == 0);
    w.active[1]->backpressure.slow_us = 0;
    plan_now();
    ck_assert(w.plan.n_lanes == 1 && w.plan.lanes[0].seq == w.active[1]);
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler");
    TCase *tcase = tcase_create("plans");
    tcase_set_timeout(tcase, 280);
    tcase_add_test(tcase, decoding_lanes_come_first);
    tcase_add_test(tcase, lanes_with_a_fixed_k_take_turns_in_a_full_step);
    tcase_add_test(tcase, a_large_k_has_its_turn_while_prompts_keep_coming);
    tcase_add_test(tcase, a_prompt_is_read_while_guesses_could_fill_the_step);
    tcase_add_test(tcase, appended_guesses_have_what_others_leave_of_the_step);
    tcase_add_loop_test(tcase, company_never_changes_a_fixed_or_heuristic_k, 0, 3);
    tcase_add_test(tcase, the_youngest_gives_up_its_place_when_no_block_is_left);
    tcase_add_test(tcase, sequence_of_a_slow_client_gives_up_its_place_first);
    tcase_add_test(tcase, planned_lane_loses_its_guesses_before_any_sequence_its_place);
    tcase_add_test(tcase, an_evicted_text_goes_on_where_it_was);
    tcase_add_loop_test(tcase, each_token_is_scored_once_over_chunks_and_an_eviction, 0, 2);
    tcase_add_test(tcase, an_echoed_prompt_that_guesses_at_once_keeps_to_the_rows);
    tcase_add_test(tcase, a_scored_text_reads_all_of_it_though_others_know_its_beginning);
    tcase_add_test(tcase, a_text_that_wants_other_features_waits_for_the_older_one);
    tcase_add_test(tcase, a_step_has_no_more_tokens_than_a_reply_has_room_for_features);
    tcase_add_test(tcase, a_draft_that_reads_features_limits_what_the_target_reuses);
    tcase_add_test(tcase, sequences_of_slow_clients_are_not_planned);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
