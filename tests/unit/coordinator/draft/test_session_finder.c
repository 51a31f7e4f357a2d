/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests lookups in the text itself: only committed tokens count, guesses go on as the text did, and
 * after a text has lost its place lookups in it find the same as before. */
#include <string.h>

#include "coordinator/schedule/places.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

enum { ALL = 1 << 30 };

static void setup_session(struct bench *b)
{
    setup_with_room(b, "session", false, 128 * 1024);
    b->defaults.strategy = STRATEGY_FIXED;
    ck_assert(drafters_first(&b->drafters) == b->finder); /* it guesses for a K of their own, too */
}

static struct sequence *place_text(struct bench *b, int slot, const int32_t *text, int n)
{
    return place(b, slot, NULL, text, n);
}

static void commit(struct sequence *seq, const int32_t *tokens, int n)
{
    memcpy(seq->tokens + seq->n_tokens, tokens, (size_t)n * sizeof *tokens);
    seq->n_tokens += n;
}

static void check_guesses(struct bench *b, struct sequence *seq, const int32_t *expected, int n)
{
    struct planner_offer offer;
    struct guess_tree draft;
    ck_assert_int_eq(lookup_read(b->finder, seq, ALL), 0);
    ck_assert(lookup_offer(b->finder, seq, &offer) == (n > 0));
    propose_chain(b, seq, K, &no_ends, &draft);
    ck_assert_int_eq(draft.n_chain, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(guess_token(&draft, i), expected[i]);
        ck_assert_int_eq(draft.parents[draft.chain[i]], i > 0 ? draft.chain[i - 1] : -1);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->ids[0] == expected[i] &&
                  guess_q(&draft, i)->p[0] == 1);
    }
}

START_TEST(guesses_go_on_as_the_text_did)
{
    static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 10, 11, 12};
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 12);
    ck_assert(!drafters_observes(&b.drafters) && !drafters_extra_rows(&b.drafters));
    check_guesses(&b, seq, (const int32_t[]){13, 14, 15, 16, 17, 18, 10, 11}, K);
    commit(seq, (const int32_t[]){99}, 1);
    check_guesses(&b, seq, NULL, 0);
    commit(seq, (const int32_t[]){15, 16}, 2);
    check_guesses(&b, seq, (const int32_t[]){17, 18, 10, 11, 12, 99, 15, 16}, K);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* The tokens expected after guesses are those that would be guessed if they were committed, as long
 * as they do not repeat themselves: only what was committed is looked up. */
START_TEST(expectations_follow_the_guesses)
{
    static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 10, 11, 12};
    static const int32_t guesses[] = {13, 14, 99, 15, 16, 17, 98, 10, 11};
    int32_t expected[DRAFT_MAX];
    int evidence = -1;
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 12), *other;
    ck_assert_int_eq(lookup_continue_from(b.finder, seq, 12, expected, K, &evidence), 0);
    memcpy(seq->tokens + 12, guesses, sizeof guesses);
    for (int n = 0; n <= 9; n++) {
        struct guess_tree draft;
        struct planner_offer offer = {0};
        int32_t whole[21];
        memcpy(whole, text, sizeof text);
        memcpy(whole + 12, guesses, (size_t)n * sizeof *guesses);
        other = place_text(&b, 1, whole, 12 + n);
        lookup_read(b.finder, seq, ALL);
        lookup_read(b.finder, other, ALL);
        lookup_offer(b.finder, other, &offer);
        propose_chain(&b, other, K, &no_ends, &draft);
        int n_found = lookup_continue_from(b.finder, seq, 12 + n, expected, K, &evidence);
        ck_assert_int_eq(n_found, draft.n_chain);
        ck_assert_mem_eq(expected, draft.tokens, (size_t)n_found * sizeof *expected);
        if (n_found) ck_assert_int_eq(evidence, offer.evidence);
        take_away(&b, other);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Tokens that were committed and not read yet could be anything, and ids that the target lacks are
 * not expected. */
START_TEST(nothing_is_expected_that_is_not_known)
{
    static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 10, 11, 12};
    int32_t expected[K];
    int evidence;
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 12);
    lookup_read(b.finder, seq, ALL);
    ck_assert_int_eq(lookup_continue_from(b.finder, seq, 12, expected, K, &evidence), K);
    drafters_set_vocabulary(&b.drafters, 15);
    ck_assert_int_eq(lookup_continue_from(b.finder, seq, 12, expected, K, &evidence), 2);
    commit(seq, (const int32_t[]){13}, 1);
    ck_assert_int_eq(lookup_continue_from(b.finder, seq, 13, expected, K, &evidence), 0);
    lookup_read(b.finder, seq, ALL);
    ck_assert_int_eq(lookup_continue_from(b.finder, seq, 13, expected, K, &evidence), 1);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(a_longer_match_is_better_evidence)
{
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7};
    struct planner_offer before, after;
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 10);
    lookup_read(b.finder, seq, ALL);
    ck_assert(lookup_offer(b.finder, seq, &before));
    for (int i = 10; i < 15; i++, before = after) {
        commit(seq, &text[i], 1);
        lookup_read(b.finder, seq, ALL);
        ck_assert(lookup_offer(b.finder, seq, &after));
        ck_assert_int_gt(after.evidence, before.evidence);
        ck_assert_int_lt(after.evidence, PLANNER_EVIDENCE);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* After 1 2, the text has gone on with 3 and with 4, and after 4 with 9 alone. The guesses are
 * those that the offer names, no more than a lane may have, and of ids that the target has. */
START_TEST(siblings_are_other_tokens_that_came)
{
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 4, 9, 8, 1, 2};
    struct guess_tree draft;
    struct draft_cost cost;
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 11);
    lookup_read(b.finder, seq, ALL);
    for (int most = 0; most <= SIBLINGS_MAX; most++) {
        struct planner_offer offer = {0};
        struct draft_lane lane = {
            .seq = seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = most};
        draft = (struct guess_tree){.base = seq->n_tokens};
        seq->siblings_max = most;
        ck_assert(lookup_offer(b.finder, seq, &offer));
        arena_reset(&b.arena);
        drafter_propose(b.finder, &lane, 1, &b.arena, &cost);
        ck_assert(draft.n_chain == K && guess_token(&draft, 0) == 4 && guess_token(&draft, 1) == 9);
        for (int i = 0; i < K; i++) {
            ck_assert_int_eq(guess_tree_siblings(&draft, i), offer.siblings[i]);
        }
        ck_assert_int_eq(guess_tree_siblings(&draft, 0), most > 0);
        ck_assert_int_eq(guess_tree_siblings(&draft, 1), 0);
        ck_assert_int_eq(guess_tree_siblings(&draft, 2),
                         most > 0); /* after 9: 8, and before that 1 */
        if (most == 0) continue;
        ck_assert(sibling_token(&draft, 0, 0) == 3 && sibling_token(&draft, 2, 0) == 1);
        ck_assert(sibling_q(&draft, 0, 0)->n == 1 && sibling_q(&draft, 0, 0)->ids[0] == 3);
        ck_assert(sibling_q(&draft, 0, 0)->p[0] == 1);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Each of 1 to 5 was followed by something else, too, and the first four guesses have that as a
 * sibling, if the target has it. */
START_TEST(the_first_four_guesses_have_siblings)
{
    static const int32_t text[] = {1, 90, 2, 91, 3, 92, 4, 93, 5, 94, 1, 2, 3, 4, 5, 6, 7, 8, 1};
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 19);
    seq->siblings_max = SIBLINGS_MAX;
    lookup_read(b.finder, seq, ALL);
    for (int n_vocab = 92; n_vocab <= 94; n_vocab++) {
        struct planner_offer offer = {0};
        struct draft_cost cost;
        struct guess_tree draft = {.base = seq->n_tokens};
        struct draft_lane lane = {
            .seq = seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = SIBLINGS_MAX};
        drafters_set_vocabulary(&b.drafters, n_vocab);
        ck_assert(lookup_offer(b.finder, seq, &offer));
        arena_reset(&b.arena);
        drafter_propose(b.finder, &lane, 1, &b.arena, &cost);
        ck_assert_int_eq(draft.n_chain, K);
        for (int i = 0; i < K; i++) {
            int n_siblings = i < 4 && 90 + i < n_vocab ? 1 : 0;
            ck_assert_int_eq(guess_tree_siblings(&draft, i), n_siblings);
            ck_assert_int_eq(offer.siblings[i], n_siblings);
            if (n_siblings) ck_assert_int_eq(sibling_token(&draft, i, 0), 90 + i);
        }
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* After an end of the text nothing is guessed, and ids that the target lacks are not guessed. */
START_TEST(guesses_stop_at_ends_and_at_the_vocabulary)
{
    static const int32_t text[] = {5, 6, 7, 8, 9, 5, 6};
    static const int32_t ends_at[] = {8};
    const struct end_ids ends = {.n = 1, .ids = {8}};
    struct planner_offer offer;
    struct guess_tree draft;
    struct bench b;
    setup_session(&b);
    struct sequence *seq = place_text(&b, 0, text, 7);
    lookup_read(b.finder, seq, ALL);
    propose_chain(&b, seq, K, &ends, &draft);
    ck_assert(draft.n_chain == 2 && draft.is_over && guess_token(&draft, 1) == ends_at[0]);
    drafters_set_vocabulary(&b.drafters, 8);
    propose_chain(&b, seq, K, &no_ends, &draft);
    ck_assert(draft.n_chain == 1 && !draft.is_over);
    drafters_set_vocabulary(&b.drafters, 7);
    ck_assert(!lookup_offer(b.finder, seq, &offer));
    propose_chain(&b, seq, K, &no_ends, &draft);
    ck_assert_int_eq(draft.n_chain, 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(texts_in_other_slots_are_not_seen)
{
    static const int32_t first[] = {1, 2, 3, 4, 5, 6}, second[] = {1, 2, 3, 9, 1, 2, 3};
    struct bench b;
    setup_session(&b);
    struct sequence *a = place_text(&b, 0, first, 6), *c = place_text(&b, 2, second, 7);
    check_guesses(&b, a, NULL, 0);
    check_guesses(&b, c, (const int32_t[]){9, 1, 2, 3, 9, 1, 2, 3}, K);
    take_away(&b, c);
    struct sequence *d = place_text(&b, 2, first, 6);
    check_guesses(&b, d, NULL, 0);
    take_away(&b, a);
    take_away(&b, d);
    teardown(&b);
}
END_TEST

/* A text is read in parts, guesses begin when all of it was read, and what is guessed does not
 * depend on the parts or on a place that was lost. */
START_TEST(parts_and_lost_places_change_nothing)
{
    enum { N = 5000 };
    static int32_t text[N];
    struct planner_offer whole, parts;
    struct guess_tree from_whole, from_parts;
    struct error err;
    struct bench b;
    uint32_t x = 7;
    setup_session(&b);
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (int32_t)(x >> 24) % 6;
    }
    struct sequence *seq = place_text(&b, 1, text, N);
    lookup_read(b.finder, seq, ALL);
    ck_assert(lookup_offer(b.finder, seq, &whole));
    propose_chain(&b, seq, K, &no_ends, &from_whole);
    places_withdraw(seq, &b.pool, &b.drafters);
    CHECK_OK(places_give(seq, 0, &b.pool, &b.drafters, &err));
    for (int left = N; left > 0; left = lookup_read(b.finder, seq, 37)) {
        ck_assert(!lookup_offer(b.finder, seq, &parts));
        propose_chain(&b, seq, K, &no_ends, &from_parts);
        ck_assert_int_eq(from_parts.n_chain, 0);
    }
    ck_assert(lookup_offer(b.finder, seq, &parts));
    propose_chain(&b, seq, K, &no_ends, &from_parts);
    ck_assert(parts.evidence == whole.evidence && from_parts.n_chain == from_whole.n_chain);
    for (int i = 0; i < from_whole.n_chain; i++) {
        ck_assert_int_eq(guess_token(&from_parts, i), guess_token(&from_whole, i));
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* One token again and again is the text whose index is the deepest. */
START_TEST(a_long_text_of_one_token)
{
    enum { N = 100000 };
    static int32_t text[N];
    int32_t expected[K];
    struct bench b;
    setup_session(&b);
    for (int i = 0; i < N; i++) {
        text[i] = 42;
    }
    for (int i = 0; i < K; i++) {
        expected[i] = 42;
    }
    struct sequence *seq = place_text(&b, 0, text, N);
    check_guesses(&b, seq, expected, K);
    for (int i = 0; i < 100; i++) {
        commit(seq, expected, K);
        check_guesses(&b, seq, expected, K);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(unknown_names_are_refused)
{
    struct error err;
    CHECK_OK(drafters_check("none", &err));
    CHECK_OK(drafters_check("session", &err));
    CHECK_OK(drafters_check("datastore=/a/b=c,session,lookahead,recycled,store", &err));
    static const char *const wrong[] = {
        "",        "session,ngrams", "session,",        "none,session",
        "store=4", "datastore",      "session,session", "datastore=,store"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(drafters_check(wrong[i], &err), ERR_ARGUMENT, wrong[i]);
        CHECK_ERR(drafters_check(wrong[i], &err), ERR_ARGUMENT,
                  "names from: session, store, datastore=FILE, recycled, lookahead");
    }
    CHECK_ERR(drafters_check("session,session", &err), ERR_ARGUMENT,
              "--lookup session,session: session is named twice; expected none or");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("session_finder");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, guesses_go_on_as_the_text_did);
    tcase_add_test(tcase, expectations_follow_the_guesses);
    tcase_add_test(tcase, nothing_is_expected_that_is_not_known);
    tcase_add_test(tcase, a_longer_match_is_better_evidence);
    tcase_add_test(tcase, siblings_are_other_tokens_that_came);
    tcase_add_test(tcase, the_first_four_guesses_have_siblings);
    tcase_add_test(tcase, guesses_stop_at_ends_and_at_the_vocabulary);
    tcase_add_test(tcase, texts_in_other_slots_are_not_seen);
    tcase_add_test(tcase, parts_and_lost_places_change_nothing);
    tcase_add_test(tcase, a_long_text_of_one_token);
    tcase_add_test(tcase, unknown_names_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
