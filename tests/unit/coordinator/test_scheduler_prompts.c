/* ctest: labels=quick libs=coordinator timeout=120 */
/* Prompts in the plans of steps: how much room they have, who has how much of it, and what the
 * draft reads of them. */
#include "tests/support/scheduler_plans.h"

#include "base/least.h"

/* ---- the room of a step ---- */

START_TEST(long_prompts_take_at_most_the_room_beside_decoding_lanes)
{
    world_open(&w, &large);
    begin_decoding(4, STRATEGY_FIXED, 0);
    struct sequence *oldest = add(400, 10, STRATEGY_FIXED, 0);
    struct sequence *younger = add(300, 10, STRATEGY_FIXED, 0);
    forget_times();
    plan_now();
    ck_assert_int_eq(tokens_of(oldest), 64);
    ck_assert_int_eq(tokens_of(younger), 0);
    world_play(&w, NONE_STAYS);
    ck_assert_int_eq(oldest->n_target_kv, 64);
    world_close(&w);
}
END_TEST

/* A stretch of 2 leaves room for about as many rows as 10,000 us are worth. */
START_TEST(the_room_follows_the_measured_times)
{
    world_open(&w, &large);
    begin_decoding(4, STRATEGY_FIXED, 0);
    struct sequence *prompt = add(900, 10, STRATEGY_FIXED, 0);
    teach_steps(10000, 50);
    plan_now();
    ck_assert_int_ge(tokens_of(prompt), 150);
    ck_assert_int_le(tokens_of(prompt), 210);
    world_play(&w, NONE_STAYS);
    teach_steps(0, 1000); /* every row is dear */
    plan_now();
    ck_assert_int_eq(tokens_of(prompt), 64); /* the least */
    world_close(&w);
}
END_TEST

/* As long as 16 steps of one row: all of it where many rows cost little more than one, and never
 * less than the least. */
START_TEST(the_room_without_decoding_lanes_follows_them_too)
{
    static const struct {
        int us, row_us, least, most;
    } machines[] = {{10000, 250, 512, 512}, {66000, 15000, 76, 88}, {1000, 50000, 64, 64}};
    world_open(&w, &large);
    struct sequence *prompt = add(900, 10, STRATEGY_FIXED, 0);
    teach_steps(machines[_i].us, machines[_i].row_us);
    plan_now();
    ck_assert_int_ge(tokens_of(prompt), machines[_i].least);
    ck_assert_int_le(tokens_of(prompt), machines[_i].most);
    world_close(&w);
}
END_TEST

/* The network, and rows of whole vocabularies that are merged: 16 times that is no room. */
START_TEST(rest_of_a_round_makes_no_room_for_prompts)
{
    world_open(&w, &large);
    struct sequence *prompt = add(900, 10, STRATEGY_FIXED, 0);
    teach_steps(66000, 15000);
    planner_curve_add(&w.planner.rest, 1, 300000, 1);
    plan_now();
    ck_assert_int_ge(tokens_of(prompt), 76);
    ck_assert_int_le(tokens_of(prompt), 88);
    world_close(&w);
}
END_TEST

START_TEST(a_large_stretch_is_meant_for_all_steps_with_prompts)
{
    world_open(&w, &large);
    w.scheduler.step_stretch = 100;
    struct sequence *prompt = add(900, 10, STRATEGY_FIXED, 0);
    teach_steps(66000, 15000);
    plan_now();
    ck_assert_int_eq(tokens_of(prompt), 512);
    world_close(&w);
}
END_TEST

/* ---- prompts beside each other ---- */

START_TEST(a_short_prompt_beside_a_long_one_is_read_at_once)
{
    world_open(&w, &large);
    begin_decoding(4, STRATEGY_FIXED, 0);
    struct sequence *first = add(900, 10, STRATEGY_FIXED, 0);
    struct sequence *second = add(700, 10, STRATEGY_FIXED, 0);
    forget_times();
    plan_now();
    world_play(&w, NONE_STAYS);
    struct sequence *brief = add(16, 10, STRATEGY_FIXED, 0);
    forget_times();
    plan_now();
    ck_assert(tokens_of(brief) == 16 && world_lane(&w, brief)->is_last);
    ck_assert_int_eq(tokens_of(first), 48); /* the oldest gets the rest */
    ck_assert_int_eq(tokens_of(second), 0);
    world_play(&w, NONE_STAYS);
    ck_assert_int_eq(brief->n_tokens, 17);
    world_close(&w);
}
END_TEST

static bool has_begun(const struct sequence *seq)
{
    return seq->n_tokens > seq->n_prompt;
}

static void round_of_least_room(void)
{
    forget_times();
    plan_now();
    world_play(&w, NONE_STAYS);
}

/* 40 tokens are more than half of the room. */
START_TEST(the_length_of_a_prompt_says_how_long_it_waits)
{
    world_open(&w, &large);
    begin_decoding(_i == 0 ? 0 : 4, STRATEGY_FIXED, 0);
    struct sequence *first = add(900, 10, STRATEGY_FIXED, 0);
    struct sequence *second = add(800, 10, STRATEGY_FIXED, 0);
    round_of_least_room();
    struct sequence *brief = add(40, 10, STRATEGY_FIXED, 0);
    round_of_least_room();
    round_of_least_room();
    ck_assert(has_begun(brief));
    ck_assert_int_eq(first->n_target_kv, 64 + 2 * 64 - 40);
    ck_assert_int_eq(second->n_target_kv, 0);
    world_close(&w);
}
END_TEST

/* Both are read with half of the room for each, and what came last waits for half of each. */
START_TEST(short_prompts_that_keep_coming_delay_long_ones_to_twice_their_time)
{
    enum { FIRST = 900, SECOND = 700, HALF = 64 / 2 };
    world_open(&w, &large);
    begin_decoding(_i == 0 ? 0 : 4, STRATEGY_FIXED, 0);
    struct sequence *first = add(FIRST, 100, STRATEGY_FIXED, 0);
    struct sequence *second = add(SECOND, 100, STRATEGY_FIXED, 0);
    for (int n = 1; !has_begun(second); n++) {
        add(40, 1, STRATEGY_FIXED, 0);
        round_of_least_room();
        ck_assert_int_ge(first->n_target_kv, least(FIRST, n * HALF));
        ck_assert_int_le(n, (FIRST + SECOND) / HALF);
    }
    ck_assert_int_ge(w.n_ended, FIRST / 40); /* and the short ones do not wait for them */
    world_close(&w);
}
END_TEST

START_TEST(prompts_of_similar_length_are_read_in_turn)
{
    world_open(&w, &large);
    struct sequence *first = add(600, 10, STRATEGY_FIXED, 0);
    struct sequence *second = add(310, 10, STRATEGY_FIXED, 0);
    while (!has_begun(first)) {
        ck_assert_int_eq(second->n_target_kv, 0);
        round_of_least_room();
    }
    world_close(&w);
}
END_TEST

/* An even share of nine prompts is 7 rows of a step. None of those of 60 tokens waits for the long
 * one, and each waits only for those before it. */
START_TEST(prompts_longer_than_an_even_share_do_not_wait_for_a_long_one)
{
    enum { N = 8, LENGTH = 60, HALF = 64 / 2 };
    struct sequence *seqs[N];
    world_open(&w, &large);
    begin_decoding(_i == 0 ? 0 : 4, STRATEGY_FIXED, 0);
    struct sequence *first = add(900, 10, STRATEGY_FIXED, 0);
    round_of_least_room();
    for (int i = 0; i < N; i++) {
        seqs[i] = add(LENGTH, 50, STRATEGY_FIXED, 0);
    }
    for (int n = 1, n_begun = 0; n_begun < N; n++) {
        round_of_least_room();
        while (n_begun < N && has_begun(seqs[n_begun])) {
            n_begun++;
        }
        ck_assert_int_ge(n_begun, least(N, n * HALF / LENGTH));
    }
    ck_assert(!has_begun(first));
    world_close(&w);
}
END_TEST

/* 32 prompts of 11 tokens at once, where 64 rows take nearly a second. */
START_TEST(many_short_prompts_begin_step_by_step)
{
    enum { N = 32, LENGTH = 11 };
    struct sequence *seqs[N];
    int n_begun = 0;
    world_open(&w, &large);
    for (int i = 0; i < N; i++) {
        seqs[i] = add(LENGTH, 20, STRATEGY_FIXED, 0);
    }
    for (int n = 1; n_begun < N; n++) {
        teach_steps(66000, 15000);
        plan_now();
        world_play(&w, NONE_STAYS);
        while (n_begun < N && has_begun(seqs[n_begun])) {
            n_begun++;
        }
        ck_assert_int_ge(n_begun, least(N, n * 64 / LENGTH));
        ck_assert_int_le(n_begun, n * 88 / LENGTH);
    }
    world_close(&w);
}
END_TEST

/* ---- the draft ---- */

START_TEST(first_token_after_a_long_prompt_is_decoded_plainly)
{
    world_open(&w, &large);
    struct sequence *brief = add(FIRST_GUESS_TOKENS, 50, STRATEGY_FIXED, 4);
    struct sequence *prompt = add(FIRST_GUESS_TOKENS + 1, 50, STRATEGY_FIXED, 4);
    teach_steps(10000, 250);
    plan_now();
    ck_assert(world_lane(&w, brief)->is_last && lane_plan_k(world_lane(&w, brief)) == 4);
    ck_assert(world_lane(&w, prompt)->is_last && lane_plan_k(world_lane(&w, prompt)) == 0);
    ck_assert_int_eq(w.plan.n_readings, 0); /* it does not wait for the draft */
    world_play(&w, NONE_STAYS);
    plan_now();
    ck_assert_int_eq(w.plan.n_readings, 1);
    ck_assert_ptr_eq(w.plan.readings[0].seq, prompt);
    world_play(&w, NONE_STAYS);
    plan_now();
    ck_assert_int_eq(lane_plan_k(world_lane(&w, prompt)), 4);
    world_close(&w);
}
END_TEST

/* The draft reads a long prompt in chunks; a lane with a K of its own waits for it. */
START_TEST(a_fixed_k_waits_until_the_draft_has_caught_up)
{
    world_open(&w, &large);
    begin_decoding(2, STRATEGY_FIXED, 0);
    struct sequence *seq = add(400, 50, STRATEGY_FIXED, 4);
    int n_rounds = 0, n_waited = 0;
    while (seq->n_tokens == seq->n_prompt) {
        forget_times(); /* so chunks are small */
        world_round(&w, NONE_STAYS);
        ck_assert_int_lt(++n_rounds, 20);
    }
    seq->n_draft_kv[0] = 0;
    drafter_forget(w.drafter, seq->slot);
    while (seq->n_tokens == seq->n_prompt + 1) {
        forget_times();
        plan_now();
        n_waited += !world_lane(&w, seq);
        ck_assert(!world_lane(&w, seq) || lane_plan_k(world_lane(&w, seq)) == 4);
        ck_assert(w.plan.n_lanes >= 2); /* the others do not wait */
        world_play(&w, NONE_STAYS);
        ck_assert_int_lt(++n_rounds, 40);
    }
    ck_assert_int_ge(n_waited, 2);
    world_close(&w);
}
END_TEST

/* Time in which the draft reads for one text is time that the prompts of others wait. */
START_TEST(the_draft_reads_for_half_of_the_time_of_a_step)
{
    world_open(&w, &large);
    struct sequence *seq = add(500, 50, STRATEGY_FIXED, 4);
    while (!has_begun(seq)) {
        world_round(&w, NONE_STAYS);
    }
    ck_assert_int_eq(seq->n_draft_kv[0], 0);
    plan_now();
    ck_assert(w.plan.n_lanes == 0 && w.plan.n_readings == 1); /* nobody waits for it */
    ck_assert_int_eq(w.plan.readings[0].n_tokens, 500);
    struct sequence *prompt = add(900, 10, STRATEGY_FIXED, 0);
    teach_steps(10000, 250); /* 138 ms for the 512 rows of the step */
    plan_now();
    ck_assert(tokens_of(prompt) == 512 && w.plan.n_readings == 1);
    ck_assert_int_eq(w.plan.readings[0].n_tokens, 64); /* its speed is not known */
    w.planner.models[0].read = (struct planner_time){500, 8};
    plan_now();
    ck_assert_int_ge(w.plan.readings[0].n_tokens, 128); /* whole blocks */
    ck_assert_int_le(w.plan.readings[0].n_tokens, 144);
    world_close(&w);
}
END_TEST

/* Blocks of its KV begin with the second token, because its rows are of pairs. */
START_TEST(a_head_reads_up_to_the_end_of_a_block_of_its_own)
{
    static const struct feature_wish one = {.n = 1, .boundaries = {2}};
    world_open(&w, &large);
    struct sequence *seq = add(500, 50, STRATEGY_FIXED, 4);
    while (!has_begun(seq)) {
        world_round(&w, NONE_STAYS);
    }
    w.drafter->features = &one;
    w.drafter->kv_shift = 1;
    add(900, 10, STRATEGY_FIXED, 0); /* a step with it leaves room for 64 tokens */
    teach_steps(10000, 250);
    for (int n_read = 0; n_read < 200; n_read = seq->n_draft_kv[0]) {
        plan_now();
        ck_assert(w.plan.n_readings == 1 && w.plan.readings[0].seq == seq);
        ck_assert_int_eq(w.plan.readings[0].n_tokens, n_read == 0 ? 1 + 64 : 64);
        seq->n_draft_kv[0] += w.plan.readings[0].n_tokens;
        ck_assert_int_eq((seq->n_draft_kv[0] - 1) % WORLD_BLOCK, 0);
    }
    w.drafter->features = NULL;
    w.drafter->kv_shift = 0;
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_prompts");
    TCase *tcase = tcase_create("plans");
    tcase_set_timeout(tcase, 280);
    tcase_add_test(tcase, long_prompts_take_at_most_the_room_beside_decoding_lanes);
    tcase_add_test(tcase, the_room_follows_the_measured_times);
    tcase_add_loop_test(tcase, the_room_without_decoding_lanes_follows_them_too, 0, 3);
    tcase_add_test(tcase, rest_of_a_round_makes_no_room_for_prompts);
    tcase_add_test(tcase, a_large_stretch_is_meant_for_all_steps_with_prompts);
    tcase_add_test(tcase, a_short_prompt_beside_a_long_one_is_read_at_once);
    tcase_add_loop_test(tcase, the_length_of_a_prompt_says_how_long_it_waits, 0, 2);
    tcase_add_loop_test(tcase, short_prompts_that_keep_coming_delay_long_ones_to_twice_their_time,
                        0, 2);
    tcase_add_test(tcase, prompts_of_similar_length_are_read_in_turn);
    tcase_add_loop_test(tcase, prompts_longer_than_an_even_share_do_not_wait_for_a_long_one, 0, 2);
    tcase_add_test(tcase, many_short_prompts_begin_step_by_step);
    tcase_add_test(tcase, first_token_after_a_long_prompt_is_decoded_plainly);
    tcase_add_test(tcase, a_fixed_k_waits_until_the_draft_has_caught_up);
    tcase_add_test(tcase, a_head_reads_up_to_the_end_of_a_block_of_its_own);
    tcase_add_test(tcase, the_draft_reads_for_half_of_the_time_of_a_step);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
