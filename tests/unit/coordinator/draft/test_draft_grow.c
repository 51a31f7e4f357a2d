/* ctest: labels=quick libs=coordinator timeout=200 */
/* Guesses after siblings: each comes from the q that a draft has which was given its path as its
 * text, with a coin that no other guess of the round has, and the chain and its siblings are what
 * they are without them, bit for bit. */
#include <stdio.h>
#include <string.h>

#include "coordinator/draft/model_draft.h"
#include "tests/support/draft_growth.h"
#include "tests/support/draws.h"

enum { TEXTS = 6 };

/* After both siblings of the first guess and one of the second, three deep and with siblings, and
 * deeper than the chain. */
static const struct growth plan = {
    .n = 9,
    .parents = {-1, -1, -2,  /* place 1: after siblings 0 and 1 of guess 0 */
                0, 0, 1, -4, /* place 2: after the first two of these, and sibling 0 of guess 1 */
                3, 7}};      /* places 3 and 4 */

/* The beginning of a text, so that guesses lie before, after and across the end of a block. */
static const int lengths[TEXTS] = {5, 9, 10, 11, 12, 13};

enum { OF_NOTHING = GROWN_MAX };

/* The parent of a guess of a plan in the draft, as a growth names it; OF_NOTHING: that is not
 * there, or ends the text. made[i]: the guess of the draft that is guess i of the plan; -1: it is
 * not there. */
static int parent_in(const struct draft_view *draft, int parent, const int *made,
                     const struct end_ids *ends)
{
    if (parent >= 0) {
        int at = made[parent];
        return at < 0 || end_ids_have(ends, draft->grown_tokens[at]) ? OF_NOTHING : at;
    }
    int guess = growth_guess(parent), sibling = growth_sibling(parent);
    bool is_there = guess < draft->n && sibling < draft->n_siblings[guess] &&
                    !end_ids_have(ends, draft->siblings[guess][sibling]);
    return is_there ? parent : OF_NOTHING;
}

/* All of the plan that has something to follow, in its order. The coin of a guess is its number
 * among those of its place in the plan, counted from the first that follows something. */
static void check_growth_to_ends(struct bench *b, const struct growth *wanted,
                                 const struct draft_view *draft, const struct end_ids *ends)
{
    int made[GROWN_MAX], first_at[DRAFT_MAX], n = 0;
    memset(first_at, -1, sizeof first_at);
    for (int i = 0; i < wanted->n; i++) {
        int place = growth_place(wanted, i);
        int parent = parent_in(draft, wanted->parents[i], made, ends);
        made[i] = -1;
        if (parent == OF_NOTHING) continue;
        if (first_at[place] < 0) first_at[place] = i;
        ck_assert_int_lt(n, draft->grown.n);
        ck_assert_int_eq(draft->grown.parents[n], parent);
        if (growth_first(wanted, i) == i) {
            check_group(b, draft, n, 1 + SIBLINGS_MAX + i - first_at[place]);
        }
        made[i] = n++;
    }
    ck_assert_int_eq(draft->grown.n, n);
}

/* Nothing of the plan was left out. */
static void check_growth(struct bench *b, const struct growth *wanted,
                         const struct draft_view *draft)
{
    ck_assert_int_eq(draft->grown.n, wanted->n);
    ck_assert_int_eq(memcmp(draft->grown.parents, wanted->parents, (size_t)wanted->n), 0);
    check_growth_to_ends(b, wanted, draft, &no_ends);
}

START_TEST(each_guess_is_that_of_a_draft_with_its_path_as_text)
{
    struct bench b = {0};
    setup_way(&b, _i);
    for (int t = 0; t < TEXTS; t++) {
        struct draft_view without, with;
        struct draft_cost cost;
        b.seq->seed = (uint64_t)(7 + t);
        b.seq->n_tokens = lengths[t];
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        propose(&b, b.seq, no_growth, &no_ends, &without, &cost);
        ck_assert(cost.n_passes == K && cost.pass_expected[1] == 0 && without.grown.n == 0);
        b.seq->n_draft_kv[0] = 0;
        int n_blocks = count_blocks(&b);
        propose(&b, b.seq, &plan, &no_ends, &with, &cost);
        ck_assert_int_eq(cost.n_passes, K + 1); /* the growth is deeper than the chain */
        ck_assert_int_eq(count_blocks(&b), n_blocks);
        check_equal_chain(&without, &with);
        check_growth(&b, &plan, &with);
        /* Both siblings of guess 0, and the chain after it. */
        ck_assert_int_eq(cost.pass_expected[1], 3);
    }
    teardown(&b);
}
END_TEST

/* Growths as large and as deep as can be, after chains of 1 to DRAFT_MAX guesses. */
START_TEST(any_growth_is_made_as_planned)
{
    enum { GROWTHS = DRAWS_ARE_FEW ? 20 : 40 };
    struct bench b = {0};
    int largest = 0, deepest = 0;
    setup_way(&b, _i);
    for (int i = 0; i < GROWTHS; i++) {
        struct draft_view draft;
        struct draft_cost cost;
        int k = i % DRAFT_MAX + 1;
        const struct growth growth = any_growth(k);
        b.seq->seed = (uint64_t)i;
        b.seq->n_tokens = 2 + dice(N_PROMPT - 2);
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        int n_blocks = count_blocks(&b);
        propose_many(&b, b.seq, k, &growth, NULL, &no_ends, &draft, &cost);
        ck_assert_int_eq(draft.n, k);
        ck_assert_int_eq(count_blocks(&b), n_blocks);
        check_growth(&b, &growth, &draft);
        int depth = growth.n ? growth_place(&growth, growth.n - 1) : 0;
        largest = growth.n > largest ? growth.n : largest;
        deepest = depth > deepest ? depth : deepest;
    }
    printf("up to %d guesses after siblings, for places up to %d\n", largest, deepest);
    ck_assert(largest >= 20 && deepest >= 12);
    teardown(&b);
}
END_TEST

/* Rounds of one text. end: the guess of the chain that is an end of the text; -1: none is. Where it
 * does not stay the text goes on. */
static const struct {
    bool grows;
    int n_stay, end;
} rounds[] = {{true, 1, -1},  {false, 0, -1}, {true, K, -1}, {true, 0, 1},  {true, 1, 2},
              {false, K, -1}, {true, 0, 0},   {true, K, -1}, {true, 2, -1}, {false, 1, -1}};

/* Commits what a round ends with: n_stay guesses of the chain and another token. The draft's KV is
 * as coordinator/round/commit.c leaves it. */
static void commit(struct sequence *seq, int n_stay, int32_t token)
{
    int read = seq->n_tokens + n_stay;
    seq->tokens[read] = token;
    seq->n_tokens = read + 1;
    if (seq->n_draft_kv[0] > read) seq->n_draft_kv[0] = read;
}

/* After a round with a growth the draft has the KV that it has after one without, and the last
 * guess of its chain too where the growth is deeper than that. */
START_TEST(growth_leaves_no_trace_in_the_next_round)
{
    struct bench b = {0}, other = {0};
    setup(&b, RULE_REJECTION, 1);
    setup(&other, RULE_REJECTION, 1);
    b.seq->seed = other.seq->seed = 3;
    int n_deeper = 0;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct draft_view one, two;
        struct draft_cost cost;
        struct end_ids ends = {0};
        int n_read = other.seq->n_draft_kv[0], base = b.seq->n_tokens;
        propose(&other, other.seq, no_growth, &no_ends, &two, &cost);
        if (rounds[i].end >= 0) ends = (struct end_ids){1, {two.tokens[rounds[i].end]}};
        other.seq->n_draft_kv[0] = n_read;
        propose(&other, other.seq, no_growth, &ends, &two, &cost);
        propose(&b, b.seq, rounds[i].grows ? &plan : no_growth, &ends, &one, &cost);
        check_equal_chain(&two, &one);
        ck_assert(one.is_over == (rounds[i].end >= 0) && one.n >= rounds[i].n_stay);
        ck_assert_int_eq(other.seq->n_draft_kv[0], base + one.n - 1);
        int deepest = one.grown.n > 0 ? growth_place(&one.grown, one.grown.n - 1) : 0;
        ck_assert_int_eq(b.seq->n_draft_kv[0], base + one.n - (deepest < one.n ? 1 : 0));
        n_deeper += deepest >= one.n ? 1 : 0;
        commit(b.seq, rounds[i].n_stay, 300 + (int)i);
        commit(other.seq, rounds[i].n_stay, 300 + (int)i);
    }
    ck_assert_int_ge(n_deeper, 5);
    teardown(&b);
    teardown(&other);
}
END_TEST

START_TEST(other_lanes_change_no_guess)
{
    static const struct growth *const growths[N_LANES] = {&plan, NULL, &plan};
    static const uint8_t *const planned[N_LANES] = {NULL};
    struct bench b = {0};
    struct draft_view alone[N_LANES];
    int n_read[N_LANES];
    setup(&b, RULE_REJECTION, 1);
    check_company(&b, growths, planned, alone, n_read);
    for (int i = 0; i < N_LANES; i++) {
        ck_assert_int_eq(alone[i].grown.n, growths[i] ? plan.n : 0);
    }
    teardown(&b);
}
END_TEST

/* After an end of the text nothing is guessed, whether it is a sibling, a guess after one or of the
 * chain; the guesses that would follow a guess that is left out are left out, too. */
START_TEST(nothing_is_guessed_after_an_end)
{
    struct bench b = {0};
    struct draft_view all, some;
    struct draft_cost cost;
    setup(&b, RULE_GREEDY, 0);
    propose(&b, b.seq, &plan, &no_ends, &all, &cost);
    const int32_t ends[] = {all.siblings[0][0], all.grown_tokens[0], all.tokens[0]};
    for (int e = 0; e < 3; e++) {
        const struct end_ids end = {1, {ends[e]}};
        b.seq->n_draft_kv[0] = 0;
        propose(&b, b.seq, &plan, &end, &some, &cost);
        ck_assert_int_lt(some.grown.n, plan.n);
        ck_assert(some.grown.n > 0 && (e < 2 || some.n == 1));
        for (int i = 0; i < some.grown.n; i++) {
            int32_t path[DRAFT_MAX];
            int n = write_path(&some, some.grown.parents[i], path);
            ck_assert_int_lt(growth_place(&some.grown, i), DRAFT_MAX);
            ck_assert_int_eq(growth_place(&some.grown, i), n);
            for (int t = 0; t < n; t++) {
                ck_assert_int_ne(path[t], ends[e]);
            }
        }
    }
    teardown(&b);
}
END_TEST

/* With a small support there are fewer siblings than planned, and nothing after those that are not
 * there. */
START_TEST(siblings_that_q_cannot_give_are_left_out)
{
    struct bench b = {0};
    struct draft_view draft;
    struct draft_cost cost;
    setup_support(&b, RULE_REJECTION, 1, 2);
    propose(&b, b.seq, &plan, &no_ends, &draft, &cost);
    ck_assert(draft.n_siblings[0] == 1 && draft.grown.n > 0 && draft.grown.n < plan.n);
    for (int i = 0; i < draft.grown.n; i++) {
        int parent = draft.grown.parents[i];
        ck_assert(parent >= 0 || growth_sibling(parent) == 0);
        ck_assert_int_lt(parent, i);
    }
    check_growth_to_ends(&b, &plan, &draft, &no_ends);
    teardown(&b);
}
END_TEST

/* A sequence that is banned is looked for in the path of each guess: after sibling 0 of the first
 * guess another token is guessed than without the ban, and where the ban begins with the chain's
 * guess for the place, the same one. */
START_TEST(bans_see_the_path)
{
    struct bench b = {0};
    struct draft_view plain, banned;
    struct draft_cost cost;
    struct error err;
    setup(&b, RULE_GREEDY, 0);
    propose(&b, b.seq, &plan, &no_ends, &plain, &cost);
    for (int of_chain = 0; of_chain < 2; of_chain++) {
        int32_t first = of_chain ? plain.tokens[0] : plain.siblings[0][0];
        const int32_t ids[] = {first, plain.grown_tokens[0]};
        const struct edit_ban ban = {2, ids};
        struct edit_rules rules;
        edit_rules_init(&rules);
        rules.n_bans = 1;
        rules.bans = &ban;
        struct sequence *seq = place_text(&b, 1, prompt, N_PROMPT);
        follow(seq, RULE_GREEDY, 0);
        CHECK_OK(edits_open(&seq->edits, &rules, tokenizer_vocab_size(b.tok), prompt, N_PROMPT,
                            CAPACITY, &err));
        struct guess_tree tree, wanted;
        guess_tree_begin(&tree, seq->n_tokens);
        growth_plan(K, NULL, &plan, &wanted);
        struct draft_lane lane = {
            .seq = seq, .k = K, .ends = &no_ends, .draft = &tree, .plan = &wanted};
        drafter_propose(b.drafter, &lane, 1, &b.arena, &cost);
        ck_assert_int_eq(lane.err.code, 0);
        banned = view_draft(&tree);
        ck_assert_int_eq(banned.tokens[0], plain.tokens[0]);
        ck_assert_int_eq(banned.siblings[0][0], plain.siblings[0][0]);
        /* The next best takes its place. */
        int32_t next = plain.grown_tokens[of_chain ? 0 : 1];
        ck_assert_int_eq(plain.grown.parents[1], plain.grown.parents[0]);
        ck_assert_int_eq(banned.grown_tokens[0], next);
        ck_assert_int_ne(plain.grown_tokens[0], plain.grown_tokens[1]);
        take_away(&b, seq);
    }
    teardown(&b);
}
END_TEST

/* Without blocks for the paths the chain and its siblings are made, and nothing after these. */
START_TEST(without_blocks_there_is_no_growth)
{
    struct bench b = {0};
    struct draft_view without, with;
    struct draft_cost cost;
    setup(&b, RULE_REJECTION, 1);
    propose(&b, b.seq, no_growth, &no_ends, &without, &cost);
    struct taken_blocks taken;
    take_all_blocks(&b, &taken);
    b.seq->n_draft_kv[0] = 0;
    propose(&b, b.seq, &plan, &no_ends, &with, &cost);
    check_equal_chain(&without, &with);
    ck_assert(with.grown.n == 0 && cost.n_passes == K && cost.pass_expected[1] == 0);
    give_back_blocks(&b, &taken);
    teardown(&b);
}
END_TEST

/* Where a sibling ends the text, the guesses after it are left out, and the others of the place
 * keep their own coins: the first of the place is left out, one between others, or the last. */
START_TEST(coins_after_a_gap_are_those_of_the_plan)
{
    static const struct growth wide = {.n = 12,
                                       .parents = {-1, -1, -2, -2, -3, -3, 0, 1, 2, 3, 4, -4}};
    struct bench b = {0};
    int n_gaps = 0;
    setup_way(&b, _i);
    for (int t = 0; t < TEXTS * SIBLINGS_MAX; t++) {
        struct draft_view all, some;
        struct draft_cost cost;
        b.seq->seed = (uint64_t)(70 + t);
        b.seq->n_tokens = lengths[t / SIBLINGS_MAX];
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        propose(&b, b.seq, &wide, &no_ends, &all, &cost);
        const struct end_ids end = {1, {all.siblings[0][t % SIBLINGS_MAX]}};
        b.seq->n_draft_kv[0] = 0;
        propose(&b, b.seq, &wide, &end, &some, &cost);
        ck_assert_int_lt(some.grown.n, wide.n);
        check_growth_to_ends(&b, &wide, &some, &end);
        n_gaps += some.grown.n > 0 ? 1 : 0;
    }
    ck_assert_int_eq(n_gaps, TEXTS * SIBLINGS_MAX);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_grow");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 180);
    tcase_add_loop_test(tcase, each_guess_is_that_of_a_draft_with_its_path_as_text, 0, N_WAYS);
    tcase_add_loop_test(tcase, any_growth_is_made_as_planned, 0, N_WAYS);
    tcase_add_test(tcase, growth_leaves_no_trace_in_the_next_round);
    tcase_add_test(tcase, other_lanes_change_no_guess);
    tcase_add_test(tcase, nothing_is_guessed_after_an_end);
    tcase_add_test(tcase, siblings_that_q_cannot_give_are_left_out);
    tcase_add_test(tcase, bans_see_the_path);
    tcase_add_test(tcase, without_blocks_there_is_no_growth);
    tcase_add_loop_test(tcase, coins_after_a_gap_are_those_of_the_plan, 0, N_WAYS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
