/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests where drafting ahead is worth it, with a real draft and rounds that take as long as the
 * case says. */
#include <stdio.h>

#include "coordinator/draft/ahead.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum { N_ROUNDS = 1024 };

/* Opens the draft and what drafts ahead with it. */
static struct ahead *open_ahead(struct bench *b, enum ahead_mode mode)
{
    struct error err;
    struct ahead *ahead;
    setup(b, RULE_GREEDY, 0);
    CHECK_OK(ahead_open(&ahead, mode, b->drafter, &err));
    return ahead;
}

static void close_ahead(struct bench *b, struct ahead *ahead)
{
    ahead_close(ahead);
    teardown(b);
}

/* Microseconds: longer by far than the draft really takes, so that it is never too late. */
struct world {
    int64_t verify, verify_beside; /* without and with the draft at work */
    int64_t draft, draft_after;    /* of a round after one that did not, and that did work ahead */
    int64_t reading_every; /* rounds; such a round reads a prompt and takes ten times as long */
};

/* Share of the later half of the rounds that drafted ahead. The text does not grow, so every round
 * is the same one. */
static double share_ahead(enum ahead_mode mode, const struct world *world)
{
    struct bench b = {0};
    int n_ahead = 0;
    bool did_work = false;
    struct ahead *ahead = open_ahead(&b, mode);
    for (int i = 0; i < N_ROUNDS; i++) {
        bool is_reading = world->reading_every && i % world->reading_every == 0;
        struct guess_tree draft = {.base = b.seq->n_tokens};
        struct ahead_times times = {.is_plain = !is_reading,
                                    .draft_us = did_work ? world->draft_after : world->draft};
        arena_reset(&b.arena);
        propose_k(&b, K, &no_ends, &draft);
        ahead_begin(ahead, b.seq, &draft, K, &no_ends);
        did_work = ahead_work(ahead);
        times.verify_us = did_work ? world->verify_beside : world->verify;
        times.verify_us *= is_reading ? 10 : 1;
        times.step_us = times.verify_us;
        ahead_end(ahead, b.seq, &times);
        n_ahead += i >= N_ROUNDS / 2 && did_work;
    }
    close_ahead(&b, ahead);
    return n_ahead / (N_ROUNDS / 2.0);
}

START_TEST(drafting_ahead_is_kept_where_rounds_become_shorter)
{
    const struct world world = {1000000, 1000000, 400000, 200000, 0};
    double share = share_ahead(AHEAD_AUTO, &world);
    printf("pays: %.3f of the rounds\n", share);
    ck_assert_double_ge(share, 0.95);
}
END_TEST

START_TEST(drafting_ahead_stops_where_the_target_loses_more_than_is_gained)
{
    const struct world world = {1000000, 1300000, 400000, 200000, 0};
    double share = share_ahead(AHEAD_AUTO, &world);
    printf("does not pay: %.3f of the rounds\n", share);
    ck_assert_double_le(share, 0.05);
}
END_TEST

/* Rounds that read prompts must not count for either kind. */
START_TEST(prompts_are_not_counted)
{
    const struct world pays = {1000000, 1000000, 400000, 300000, 7};
    const struct world does_not = {1000000, 1100000, 400000, 350000, 7};
    ck_assert_double_ge(share_ahead(AHEAD_AUTO, &pays), 0.95);
    ck_assert_double_le(share_ahead(AHEAD_AUTO, &does_not), 0.05);
}
END_TEST

START_TEST(modes_on_and_off_ignore_what_was_measured)
{
    const struct world world = {1000000, 1300000, 400000, 200000, 0};
    ck_assert_double_eq(share_ahead(AHEAD_ON, &world), 1);
    ck_assert_double_eq(share_ahead(AHEAD_OFF, &world), 0);
}
END_TEST

/* Another group answers in other times, so both kinds must be tried again. */
START_TEST(measurements_can_be_forgotten)
{
    struct bench b = {0};
    const struct ahead_times long_one = {true, 400000, 1300000, 1300000},
                             short_one = {true, 400000, 1000000, 1000000};
    int n_after = 0;
    struct ahead *ahead = open_ahead(&b, AHEAD_AUTO);
    for (int i = 0; i < 2 * 64; i++) {
        struct guess_tree draft = {.base = b.seq->n_tokens};
        if (i == 64) ahead_forget(ahead);
        arena_reset(&b.arena);
        propose_k(&b, K, &no_ends, &draft);
        ahead_begin(ahead, b.seq, &draft, K, &no_ends);
        bool did_work = ahead_work(ahead);
        ahead_end(ahead, b.seq, did_work ? &long_one : &short_one);
        n_after += i >= 64 && did_work;
    }
    ck_assert_int_ge(n_after, 8);
    close_ahead(&b, ahead);
}
END_TEST

/* Guesses are taken only after the text that was assumed: every token of it counts, not only how
 * many there are and the last one. */
START_TEST(guesses_after_another_text_are_not_taken)
{
    const struct ahead_times times = {true, 1000, 1000, 1000};
    struct bench b = {0};
    struct ahead *ahead = open_ahead(&b, AHEAD_ON);
    struct guess_tree draft = {.base = b.seq->n_tokens}, taken = {.base = 0};
    propose_k(&b, K, &no_ends, &draft);
    ahead_begin(ahead, b.seq, &draft, K, &no_ends);
    while (ahead_work(ahead)) {
    }
    ahead_end(ahead, b.seq, &times);
    ck_assert_int_eq(draft.n_chain, K);
    b.seq->n_tokens += K + 1; /* after the text come the guesses and the token that was predicted */
    ck_assert_int_eq(ahead_count(ahead, b.seq), K);
    for (int i = 0; i <= K; i++) {
        int32_t *token = &b.seq->tokens[draft.base + i];
        *token ^= 1;
        ck_assert_int_eq(ahead_count(ahead, b.seq), 0);
        *token ^= 1;
    }
    b.seq->n_tokens--;
    ck_assert_int_eq(ahead_count(ahead, b.seq), 0);
    b.seq->n_tokens++;
    b.seq->id++;
    ck_assert_int_eq(ahead_count(ahead, b.seq), 0);
    b.seq->id--;
    struct draft_lane lane = {.seq = b.seq, .k = K, .draft = &taken};
    ahead_take(ahead, &lane);
    ck_assert_int_eq(taken.n_chain, K);
    ck_assert_int_eq(ahead_count(ahead, b.seq), 0);
    close_ahead(&b, ahead);
}
END_TEST

/* How many siblings a guess has that was made ahead is said by the plan of the round that takes it,
 * and which ones they are by the draft; the rest of the draft goes on after them. */
START_TEST(taken_guesses_have_the_siblings_of_the_plan)
{
    static const uint8_t siblings[] = {2, 0, 3, 1};
    const struct ahead_times times = {true, 1000, 1000, 1000};
    struct bench b = {0};
    struct ahead *ahead = open_ahead(&b, AHEAD_ON);
    struct guess_tree draft = {.base = b.seq->n_tokens}, taken, drawn, plan;
    struct draft_cost cost;
    b.seq->siblings_max = SIBLINGS_MAX;
    propose_k(&b, K, &no_ends, &draft);
    ahead_begin(ahead, b.seq, &draft, 3, &no_ends);
    while (ahead_work(ahead)) {
    }
    ahead_end(ahead, b.seq, &times);
    b.seq->n_tokens += K + 1;
    guess_tree_begin(&taken, b.seq->n_tokens);
    guess_tree_begin(&drawn, b.seq->n_tokens);
    growth_plan(4, siblings, NULL, &plan);
    struct draft_lane lane = {
        .seq = b.seq, .k = 4, .ends = &no_ends, .draft = &taken, .plan = &plan};
    ahead_take(ahead, &lane);
    ck_assert(taken.n_chain == 3 && taken.n == 3 + 2 + 3);
    drafter_propose(b.drafter, &lane, 1, &b.arena, &cost);
    ck_assert(lane.err.code == 0 && cost.n_passes == 1);
    b.seq->n_draft_kv = 0;
    lane.draft = &drawn;
    drafter_propose(b.drafter, &lane, 1, &b.arena, &cost);
    ck_assert(lane.err.code == 0 && drawn.n_chain == 4 && drawn.n == plan.n && taken.n == plan.n);
    for (int i = 0; i < plan.n; i++) {
        ck_assert_int_eq(taken.tokens[i], drawn.tokens[i]);
        ck_assert(taken.parents[i] == plan.parents[i] && taken.marks[i] == plan.marks[i]);
    }
    close_ahead(&b, ahead);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ahead");
    TCase *tests = tcase_create("tales");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, drafting_ahead_is_kept_where_rounds_become_shorter);
    tcase_add_test(tests, drafting_ahead_stops_where_the_target_loses_more_than_is_gained);
    tcase_add_test(tests, prompts_are_not_counted);
    tcase_add_test(tests, modes_on_and_off_ignore_what_was_measured);
    tcase_add_test(tests, measurements_can_be_forgotten);
    tcase_add_test(tests, guesses_after_another_text_are_not_taken);
    tcase_add_test(tests, taken_guesses_have_the_siblings_of_the_plan);
    return check_main(suite);
}
