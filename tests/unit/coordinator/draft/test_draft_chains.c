/* ctest: labels=full libs=coordinator timeout=300 */
/* Independent chains of a draft model: the first guesses are drawn from one q with replacement,
 * each chain goes on by itself and as far as the others, and chains of equal tokens have equal
 * q's, or all chains where the draft makes all guesses in one pass. */
#include <math.h>

#include "coordinator/draft/trees_option.h"
#include "tests/support/draft_growth.h"
#include "tests/support/parallel_draft.h"

enum { TEXTS = 400, CHAINS = 3, LENGTH = 3 };

static const struct tree_widths widths = {
    .n = LENGTH, .widths = {CHAINS, 1, 1}, .is_independent = true};

/* The draft of a text whose seed is this one; sorted. */
static void draw_chains(struct bench *b, uint64_t seed, bool is_independent,
                        const struct end_ids *ends, struct guess_tree *draft)
{
    struct guess_tree plan;
    struct draft_cost cost;
    b->seq->seed = seed;
    b->seq->n_draft_kv[0] = 0;
    arena_reset(&b->arena);
    guess_tree_begin(draft, b->seq->n_tokens);
    tree_widths_plan(&widths, LENGTH, &plan);
    plan.is_independent = is_independent;
    struct draft_lane lane = {.seq = b->seq,
                              .k = LENGTH,
                              .ends = ends,
                              .draft = draft,
                              .siblings_max = CHAINS - 1,
                              .plan = &plan};
    drafter_propose(b->drafter, &lane, 1, &b->arena, &cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
    guess_tree_sort(draft);
}

/* Chain and level of a node, in sorted order and with the coins of the draft: the chain's own, and
 * after siblings those of their places. */
static uint32_t coin_of(const struct guess_tree *draft, int chain, int level)
{
    if (level == 0) return (uint32_t)guess_tree_rank(draft, chain * LENGTH);
    return chain == 0 ? 0 : (uint32_t)(SIBLINGS_MAX + chain);
}

START_TEST(each_chain_is_drawn_by_itself)
{
    struct bench b = {0};
    struct guess_tree draft;
    struct error err;
    int n_equal = 0, n_pairs = 0, n_long = 0;
    double wanted = 0, variance = 0;
    bool is_parallel = _i == 1;
    if (is_parallel) {
        setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    } else {
        setup(&b, RULE_REJECTION, 1);
    }
    for (uint64_t seed = 1; seed <= TEXTS; seed++) {
        draw_chains(&b, seed, true, &no_ends, &draft);
        ck_assert(draft.is_independent && tree_is_chains(&draft));
        ck_assert_int_eq(draft.n, CHAINS * LENGTH);
        CHECK_OK(tree_check(&draft, tokenizer_vocab_size(b.tok), &err));
        for (int i = 0; i < draft.n; i++) {
            int level = i % LENGTH;
            const struct rng_address at = {seed, (uint32_t)(draft.base + level),
                                           (uint32_t)draft.base};
            double u = rng_uniform(&at, RNG_DRAFT, coin_of(&draft, i / LENGTH, level));
            ck_assert_int_eq(draft.tokens[i], sparse_draw(draft.q[i], u));
        }
        double equal = 0;
        for (int i = 0; i < draft.q[0]->n; i++) {
            equal += (double)draft.q[0]->p[i] * (double)draft.q[0]->p[i];
        }
        for (int a = 0; a < CHAINS; a++) {
            ck_assert(draft.q[a * LENGTH] == draft.q[0]);
            for (int c = a + 1; c < CHAINS; c++, n_pairs++) {
                int at = a * LENGTH, other = c * LENGTH;
                wanted += equal;
                variance += equal * (1 - equal);
                n_equal += draft.tokens[at] == draft.tokens[other];
                for (int i = 1; i < LENGTH; i++) {
                    bool agrees = guess_tree_agree(&draft, at + i - 1, other + i - 1);
                    if (!agrees && !is_parallel) break;
                    check_equal_q(draft.q[at + i], draft.q[other + i]);
                    n_long++;
                }
            }
        }
    }
    /* Pairs of one text share a chain, which adds to the variance, but less than threefold. */
    ck_assert_msg(fabs(n_equal - wanted) < 5 * sqrt(3 * variance), "%d of %d pairs, %.1f expected",
                  n_equal, n_pairs, wanted);
    ck_assert_int_gt(n_equal, 20);
    ck_assert_int_gt(n_long, n_equal);
    teardown(&b);
}
END_TEST

/* Which chains end the text must not show in the shape. */
START_TEST(an_end_of_the_text_ends_no_chain)
{
    struct bench b = {0};
    struct guess_tree plain, draft;
    setup(&b, RULE_BLOCK, 1);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        draw_chains(&b, seed, true, &no_ends, &plain);
        const struct end_ids ends = {2, {plain.tokens[0], plain.tokens[LENGTH]}};
        draw_chains(&b, seed, true, &ends, &draft);
        ck_assert_int_eq(draft.n, plain.n);
        ck_assert_int_eq(memcmp(draft.tokens, plain.tokens, (size_t)plain.n * sizeof(int32_t)), 0);
        ck_assert(!draft.is_over);
    }
    teardown(&b);
}
END_TEST

/* Rules that match tokens have the best ones, which differ. */
START_TEST(where_tokens_are_matched_the_first_guesses_differ)
{
    static const struct {
        enum accept_rule rule;
        float temperature;
    } matching[] = {{RULE_GREEDY, 0}, {RULE_COUPLED, 1}, {RULE_NAIVE, 1}};
    struct bench b = {0};
    struct guess_tree draft;
    setup(&b, matching[_i].rule, matching[_i].temperature);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        draw_chains(&b, seed, false, &no_ends, &draft);
        ck_assert(!draft.is_independent && draft.n == CHAINS * LENGTH);
        for (int a = 0; a < CHAINS; a++) {
            for (int c = 0; c < a; c++) {
                ck_assert_int_ne(draft.tokens[a * LENGTH], draft.tokens[c * LENGTH]);
            }
        }
    }
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_chains");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 180);
    tcase_add_loop_test(tcase, each_chain_is_drawn_by_itself, 0, 2);
    tcase_add_test(tcase, an_end_of_the_text_ends_no_chain);
    tcase_add_loop_test(tcase, where_tokens_are_matched_the_first_guesses_differ, 0, 3);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
