/* ctest: labels=quick libs=coordinator timeout=60 */
/* The draft alone: its guesses, the coins they are drawn with, and what it has read. */
#include <stdio.h>
#include <string.h>

#include "coordinator/draft/options.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum { N_SEEDS = 200 };

/* Guesses with the text cut or grown to n_tokens. */
static struct guess_tree propose(struct bench *b, int n_tokens, int k)
{
    struct guess_tree draft = {.base = n_tokens};
    arena_reset(&b->arena);
    b->seq->n_tokens = n_tokens;
    propose_k(b, k, &no_ends, &draft);
    ck_assert_int_eq(draft.n_chain, k);
    return draft;
}

START_TEST(a_guess_lies_in_the_support_of_its_q)
{
    struct bench b = {0};
    setup(&b, RULE_REJECTION, 1.0f);
    struct guess_tree draft = propose(&b, N_PROMPT, K);
    for (int i = 0; i < K; i++) {
        double sum = 0;
        for (int j = 0; j < guess_q(&draft, i)->n; j++) {
            sum += (double)guess_q(&draft, i)->p[j];
        }
        ck_assert_int_eq(guess_q(&draft, i)->n, 64);
        ck_assert_double_eq_tol(sum, 1.0, 1e-5);
        ck_assert(sparse_prob(guess_q(&draft, i), guess_token(&draft, i)) > 0);
    }
    teardown(&b);
}
END_TEST

/* After a rejection the draft goes on from what it has read; the guesses are those of a draft that
 * reads everything anew. */
START_TEST(rejected_guesses_leave_no_trace)
{
    struct bench used = {0}, fresh = {0};
    setup(&used, RULE_GREEDY, 0);
    setup(&fresh, RULE_GREEDY, 0);
    propose(&used, N_PROMPT, K);
    ck_assert_int_eq(used.seq->n_draft_kv[0], N_PROMPT + K - 1);
    /* The first guess stayed; another token took the place of the second. */
    used.seq->tokens[N_PROMPT + 1] = 300;
    used.seq->n_draft_kv[0] = N_PROMPT + 1;
    memcpy(fresh.seq->tokens, used.seq->tokens, (N_PROMPT + 2) * sizeof(int32_t));
    struct guess_tree a = propose(&used, N_PROMPT + 2, K);
    struct guess_tree b = propose(&fresh, N_PROMPT + 2, K);
    ck_assert_int_eq(memcmp(a.tokens, b.tokens, K * sizeof(int32_t)), 0);
    teardown(&used);
    teardown(&fresh);
}
END_TEST

/* docs/design.md section 3.8: a position that was guessed, discarded and guessed again must not
 * see the same coins. The same prefix gives the same q; with the same coin the guess would always
 * be the same. */
START_TEST(a_position_guessed_again_sees_fresh_coins)
{
    int n_equal = 0;
    struct bench b = {0};
    setup(&b, RULE_REJECTION, 1.0f);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        b.seq->seed = (uint64_t)seed;
        b.seq->n_draft_kv[0] = 0;
        struct guess_tree early = propose(&b, N_PROMPT, 2); /* tokens[N_PROMPT] stays */
        b.seq->n_draft_kv[0] = N_PROMPT;
        struct guess_tree late = propose(&b, N_PROMPT + 1, 1);
        n_equal += guess_token(&early, 1) == guess_token(&late, 0);
    }
    printf("equal guesses of two rounds: %d of %d\n", n_equal, N_SEEDS);
    ck_assert_int_lt(n_equal, N_SEEDS * 8 / 10);
    teardown(&b);
}
END_TEST

/* COUPLED leaves the round out: its noise belongs to (seed, position, token). */
START_TEST(the_coupled_guess_of_a_position_is_the_same_in_every_round)
{
    struct bench b = {0};
    setup(&b, RULE_COUPLED, 1.0f);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        b.seq->seed = (uint64_t)seed;
        b.seq->n_draft_kv[0] = 0;
        struct guess_tree early = propose(&b, N_PROMPT, 2);
        b.seq->n_draft_kv[0] = N_PROMPT;
        struct guess_tree late = propose(&b, N_PROMPT + 1, 1);
        ck_assert_int_eq(guess_token(&early, 1), guess_token(&late, 0));
        ck_assert_int_eq(guess_q(&late, 0)->n, 1);
    }
    teardown(&b);
}
END_TEST

START_TEST(nothing_is_guessed_after_an_end_of_sequence)
{
    struct guess_tree draft = {.base = N_PROMPT};
    struct bench b = {0};
    setup(&b, RULE_GREEDY, 0);
    const struct end_ids ends = {1, {propose(&b, N_PROMPT, K).tokens[1]}};
    b.seq->n_draft_kv[0] = 0;
    propose_k(&b, K, &ends, &draft);
    ck_assert_int_eq(draft.n_chain, 2);
    ck_assert_int_eq(guess_token(&draft, 1), ends.ids[0]);
    teardown(&b);
}
END_TEST

/* As propose, with what the strategy `threshold` does. */
static struct guess_tree propose_until(struct bench *b, float threshold)
{
    struct guess_tree draft = {.base = N_PROMPT};
    arena_reset(&b->arena);
    b->seq->threshold = threshold;
    b->seq->n_draft_kv[0] = 0;
    propose_k(b, K, &no_ends, &draft);
    b->seq->threshold = 0;
    return draft;
}

/* docs/design.md section 5: the guess that was looked at is sent. */
START_TEST(a_guess_below_the_threshold_is_the_last_and_stays)
{
    int n_short = 0;
    struct bench b = {0};
    setup(&b, RULE_REJECTION, 1.0f);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        b.seq->seed = (uint64_t)seed;
        b.seq->n_draft_kv[0] = 0;
        int wanted = 0;
        struct guess_tree all = propose(&b, N_PROMPT, K);
        while (wanted < K &&
               sparse_prob(guess_q(&all, wanted), guess_token(&all, wanted)) >= 0.1f) {
            wanted++;
        }
        wanted = wanted < K ? wanted + 1 : K;
        struct guess_tree some = propose_until(&b, 0.1f);
        ck_assert_int_eq(some.n_chain, wanted);
        ck_assert_int_eq(memcmp(some.tokens, all.tokens, (size_t)wanted * sizeof(int32_t)), 0);
        n_short += wanted < K;
    }
    ck_assert_int_gt(n_short, 0);
    ck_assert_int_lt(n_short, N_SEEDS);
    teardown(&b);
}
END_TEST

/* q is one-hot there, but the threshold looks at what the draft gave. */
START_TEST(greedy_and_coupled_drafts_stop_at_the_threshold_too)
{
    static const enum accept_rule rules[] = {RULE_GREEDY, RULE_COUPLED};
    for (int i = 0; i < 2; i++) {
        struct bench b = {0};
        setup(&b, rules[i], i ? 1.0f : 0.0f);
        b.seq->seed = 7;
        struct guess_tree all = propose(&b, N_PROMPT, K), sure = propose_until(&b, 1.0f),
                          any = propose_until(&b, 1e-9f);
        ck_assert_int_eq(sure.n_chain, 1);
        ck_assert_int_eq(any.n, K);
        ck_assert_int_eq(guess_token(&sure, 0), guess_token(&all, 0));
        ck_assert_int_eq(memcmp(any.tokens, all.tokens, K * sizeof(int32_t)), 0);
        ck_assert_int_eq(guess_q(&sure, 0)->n, 1);
        teardown(&b);
    }
}
END_TEST

/* Siblings are further tokens of q, or of the row, and change no guess. */
START_TEST(siblings_are_other_tokens)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_GREEDY, RULE_COUPLED};
    static const int supports[] = {64, 3, 2, 1};
    enum accept_rule rule = rules[_i % 3];
    int support = supports[_i / 3];
    struct draft_cost cost;
    struct bench b;
    setup_support(&b, rule, rule == RULE_GREEDY ? 0 : 1.2f, support);
    struct guess_tree alone = propose(&b, N_PROMPT, K);
    int32_t expected[DRAFT_MAX];
    ck_assert_int_eq(chain_tokens(&alone, expected), K);
    ck_assert(guess_tree_siblings(&alone, 0) == 0);
    struct guess_tree draft = {.base = N_PROMPT};
    struct draft_lane lane = {
        .seq = b.seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = SIBLINGS_MAX};
    b.seq->n_draft_kv[0] = 0;
    arena_reset(&b.arena);
    drafter_propose(b.drafter, &lane, 1, &b.arena, &cost);
    int most = rule == RULE_GREEDY || support > SIBLINGS_MAX ? SIBLINGS_MAX : support - 1;
    for (int i = 0; i < K; i++) {
        ck_assert_int_eq(guess_token(&draft, i), expected[i]);
        ck_assert_int_eq(guess_tree_siblings(&draft, i), most);
        for (int s = 0; s < guess_tree_siblings(&draft, i); s++) {
            int32_t id = sibling_token(&draft, i, s);
            ck_assert(id != guess_token(&draft, i));
            ck_assert(rule != RULE_REJECTION || sparse_prob(guess_q(&draft, i), id) > 0);
            for (int t = 0; t < s; t++) {
                ck_assert(id != sibling_token(&draft, i, t));
            }
        }
    }
    teardown(&b);
}
END_TEST

START_TEST(another_token_table_is_refused)
{
    struct error err;
    struct tokenizer *tok;
    struct drafter *drafter;
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .support = 64,
        .kv_tokens = CAPACITY};
    CHECK_OK(tokenizer_open_bytes(&tok, 4096, &err));
    CHECK_ERR(drafter_open(&drafter, &options, tok, &err), ERR_ARGUMENT,
              "draft and target must share one token table");
    ck_assert_ptr_null(drafter);
    tokenizer_close(tok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drafter");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 280);
    tcase_add_test(tcase, a_guess_lies_in_the_support_of_its_q);
    tcase_add_test(tcase, rejected_guesses_leave_no_trace);
    tcase_add_test(tcase, a_position_guessed_again_sees_fresh_coins);
    tcase_add_test(tcase, the_coupled_guess_of_a_position_is_the_same_in_every_round);
    tcase_add_test(tcase, nothing_is_guessed_after_an_end_of_sequence);
    tcase_add_test(tcase, a_guess_below_the_threshold_is_the_last_and_stays);
    tcase_add_test(tcase, greedy_and_coupled_drafts_stop_at_the_threshold_too);
    tcase_add_loop_test(tcase, siblings_are_other_tokens, 0, 12);
    tcase_add_test(tcase, another_token_table_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
