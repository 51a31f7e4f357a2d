/* ctest: labels=quick libs=coordinator timeout=60 */
/* Guesses from the target's best tokens after the same token: rows of every kind are learned from,
 * evidence follows how often it was right, and other API keys see nothing unless that is allowed.
 */
#include "access/keys.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

static const int32_t text[] = {10, 11, 12, 13};
static const int32_t root = -1;
enum { N_TEXT = sizeof text / sizeof *text };

/* key: NULL = the request came without one. */
static struct sequence *place_text(struct bench *b, int slot, struct grant *key)
{
    return place(b, slot, key, text, N_TEXT);
}

/* After `before` the target says `id`, and nothing else is known. */
static void say(struct bench *b, const struct sequence *seq, int32_t before, int32_t id)
{
    const float p = 1;
    const struct target_row row = {.n = 1, .ids = &id, .p = &p, .outside_id = -1};
    drafters_observe_rows(&b->drafters, seq, &(struct draft_rows){&row, &before, &root, 1});
}

/* Checks the guesses after the text, which are what was offered; returns the evidence. */
static int check_guesses(struct bench *b, struct sequence *seq, const int32_t *expected, int n)
{
    struct planner_offer offer = {0};
    struct guess_tree draft;
    int32_t foreseen[K];
    ck_assert_int_eq(lookup_read(b->finder, seq, 1), 0);
    ck_assert(lookup_offer(b->finder, seq, &offer) == (n > 0));
    ck_assert_int_eq(propose_chain(b, seq, K, &no_ends, &draft), n);
    ck_assert(n == K || offer.k_max == n);
    ck_assert_int_eq(lookup_preview(b->finder, seq, foreseen, K), n);
    for (int i = 0; i < n; i++) {
        ck_assert(guess_token(&draft, i) == expected[i] && foreseen[i] == expected[i]);
        ck_assert_int_eq(draft.parents[draft.chain[i]], i > 0 ? draft.chain[i - 1] : -1);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->ids[0] == expected[i] &&
                  guess_q(&draft, i)->p[0] == 1);
    }
    return offer.evidence;
}

START_TEST(guesses_follow_what_the_target_said)
{
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    check_guesses(&b, seq, NULL, 0);
    say(&b, seq, 13, 20);
    check_guesses(&b, seq, (const int32_t[]){20}, 1);
    say(&b, seq, 20, 21);
    say(&b, seq, 21, 10);
    say(&b, seq, 10, 13);
    check_guesses(&b, seq, (const int32_t[]){20, 21, 10, 13, 20, 21, 10, 13}, K);
    say(&b, seq, 20, 22); /* the newest counts */
    check_guesses(&b, seq, (const int32_t[]){20, 22}, 2);
    ck_assert(drafters_observes(&b.drafters) && b.finder->row->source == LOOKUP_MADE_TEXTS);
    ck_assert(!drafters_extra_rows(&b.drafters));
    ck_assert(!drafters_first(&b.drafters)); /* a K of its own may not depend on other texts */
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

static void say_many(struct bench *b, const struct sequence *seq, int32_t before,
                     const int32_t *best, int n)
{
    const float p = 1;
    const struct target_row row = {
        .n = 1, .ids = best, .p = &p, .outside_id = -1, .n_best = n, .best_ids = best};
    drafters_observe_rows(&b->drafters, seq, &(struct draft_rows){&row, &before, &root, 1});
}

/* As many as a lane may have, without those that the target lacks. */
START_TEST(other_successors_are_siblings)
{
    struct planner_offer offer = {0};
    struct draft_cost cost;
    struct guess_tree draft = {0};
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    say_many(&b, seq, 13, (const int32_t[]){20, 21, VOCAB, 22, 23, 24}, 6);
    say_many(&b, seq, 20, (const int32_t[]){30, 31}, 2);
    say_many(&b, seq, 30, (const int32_t[]){VOCAB, 40}, 2);
    lookup_read(b.finder, seq, 1);
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.k_max == 2);
    ck_assert(offer.siblings[0] == SIBLINGS_MAX && offer.siblings[1] == 1);
    for (int most = 0; most <= SIBLINGS_MAX; most++) {
        struct draft_lane lane = {
            .seq = seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = most};
        draft = (struct guess_tree){.base = seq->n_tokens};
        arena_reset(&b.arena);
        drafter_propose(b.finder, &lane, 1, &b.arena, &cost);
        ck_assert(draft.n_chain == 2 && guess_token(&draft, 0) == 20 &&
                  guess_token(&draft, 1) == 30);
        ck_assert_int_eq(guess_tree_siblings(&draft, 0), most);
        ck_assert_int_eq(guess_tree_siblings(&draft, 1), most > 0);
        for (int s = 0; s < most; s++) {
            const struct sparse_dist *q = sibling_q(&draft, 0, s);
            ck_assert_int_eq(sibling_token(&draft, 0, s), 21 + s);
            ck_assert(q->n == 1 && q->ids[0] == 21 + s && q->p[0] == 1);
        }
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* As they come from the merge: all of one step together. */
START_TEST(rows_of_every_kind_are_learned_from)
{
    static const int32_t ids[] = {3, 5, 7}, none[] = {-1};
    static const float p[] = {0.1f, 0.6f, 0.3f}, small[] = {0.1f, 0.2f, 0.05f};
    static const float one[] = {1};
    static const int32_t before[] = {40, 41, 42, 43, 44, 45, 46};
    static const int32_t parents[] = {-1, 0, 1, 2, 3, 4, 5};
    const struct target_row rows[] = {
        {.n = 3, .ids = ids, .p = p, .outside_id = -1},
        {.n = 3, .ids = ids, .p = small, .outside_mass = 0.65, .outside_id = 9},
        {.outside_mass = 1, .outside_id = 8},
        {.outside_id = -1}, /* nobody has merged it */
        {.n = 1, .ids = ids, .p = one, .outside_id = -1, .n_best = 3, .best_ids = ids},
        {.n = 1, .ids = ids, .p = one, .outside_id = -1, .n_top = 2, .top_ids = ids + 1},
        {.n = 1, .ids = none, .p = one, .outside_id = -1}};
    static const int32_t first[] = {5, 9, 8, -1, 3, 5, -1};
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    drafters_observe_rows(&b.drafters, seq, &(struct draft_rows){rows, before, parents, 7});
    for (int i = 0; i < 7; i++) {
        seq->tokens[N_TEXT - 1] = before[i];
        check_guesses(&b, seq, &first[i], first[i] < 0 ? 0 : 1);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(evidence_is_how_often_it_was_right)
{
    const int32_t guess = 20;
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    say(&b, seq, 13, 20);
    int untested = check_guesses(&b, seq, &guess, 1);
    for (int i = 0; i < 20; i++) {
        say(&b, seq, 13, 20);
    }
    int always = check_guesses(&b, seq, &guess, 1);
    for (int i = 0; i < 20; i++) {
        say(&b, seq, 13, 21 + i);
    }
    say(&b, seq, 13, 20);
    int never = check_guesses(&b, seq, &guess, 1);
    ck_assert(0 <= never && never < untested && untested < always && always < PLANNER_EVIDENCE);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* The token that came is the one that a row says, which need not be its best one, where noise is
 * shared; or else the best one, also where that is not the one that it lists. */
START_TEST(row_teaches_the_token_that_came)
{
    static const int32_t listed = 3, outside = 9, before = 13, best[] = {30, 9};
    static const float p = 0.2f;
    const struct target_row row = {
        .n = 1, .ids = &listed, .p = &p, .outside_mass = 0.8, .outside_id = outside};
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    say(&b, seq, 13, outside);
    drafters_observe_rows(&b.drafters, seq, &(struct draft_rows){&row, &before, &root, 1});
    ck_assert_int_eq(check_guesses(&b, seq, &outside, 1), planner_evidence_of_share(1, 1));
    static const float one = 1;
    const struct target_row chosen = {
        .n = 1, .ids = &outside, .p = &one, .outside_id = -1, .n_best = 2, .best_ids = best};
    drafters_observe_rows(&b.drafters, seq, &(struct draft_rows){&chosen, &before, &root, 1});
    ck_assert_int_eq(check_guesses(&b, seq, best, 1), planner_evidence_of_share(2, 2));
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Guesses that were found are kept for a text, but not when that has grown. */
START_TEST(guesses_are_those_of_the_whole_text)
{
    struct planner_offer offer;
    int32_t foreseen[K];
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    say(&b, seq, 13, 20);
    say(&b, seq, 14, 30);
    lookup_read(b.finder, seq, 1);
    ck_assert(lookup_offer(b.finder, seq, &offer));
    seq->tokens[seq->n_tokens++] = 14;
    ck_assert_int_eq(lookup_preview(b.finder, seq, foreseen, K), 1);
    ck_assert_int_eq(foreseen[0], 30);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(guesses_stop_at_ends_and_at_the_vocabulary)
{
    const struct end_ids ends = {.n = 1, .ids = {21}};
    struct planner_offer offer;
    struct guess_tree draft;
    struct bench b;
    setup(&b, "recycled", false);
    struct sequence *seq = place_text(&b, 0, NULL);
    say(&b, seq, 13, 20);
    say(&b, seq, 20, 21);
    say(&b, seq, 21, 22);
    lookup_read(b.finder, seq, 1);
    ck_assert(propose_chain(&b, seq, K, &ends, &draft) == 2 && draft.is_over);
    ck_assert(propose_chain(&b, seq, 1, &no_ends, &draft) == 1 && !draft.is_over);
    drafters_set_vocabulary(&b.drafters, 22);
    ck_assert_int_eq(propose_chain(&b, seq, K, &no_ends, &draft), 2); /* nobody has looked */
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.k_max == 2);
    ck_assert_int_eq(propose_chain(&b, seq, K, &no_ends, &draft), 2);
    drafters_set_vocabulary(&b.drafters, 20);
    ck_assert(!lookup_offer(b.finder, seq, &offer));
    ck_assert_int_eq(propose_chain(&b, seq, K, &no_ends, &draft), 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Lists are the key's and not the text's: they outlive it, and its other texts have them. */
START_TEST(keys_do_not_see_each_other)
{
    static struct grant alice = {.name = "alice", .n_refs = 1}, bob = {.name = "bob", .n_refs = 1};
    const int32_t hers = 20, his = 21;
    for (int is_shared = 0; is_shared <= 1; is_shared++) {
        struct bench b;
        setup(&b, "recycled", is_shared);
        struct sequence *a = place_text(&b, 0, &alice), *c = place_text(&b, 1, &bob);
        say(&b, a, 13, hers);
        check_guesses(&b, a, &hers, 1);
        check_guesses(&b, c, &hers, is_shared);
        say(&b, c, 13, his);
        check_guesses(&b, a, is_shared ? &his : &hers, 1);
        check_guesses(&b, c, &his, 1);
        take_away(&b, a);
        take_away(&b, c);
        struct sequence *other = place_text(&b, 1, &alice), *nobody = place_text(&b, 0, NULL);
        check_guesses(&b, other, is_shared ? &his : &hers, 1);
        check_guesses(&b, nobody, &his, is_shared);
        take_away(&b, other);
        take_away(&b, nobody);
        teardown(&b);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recycled_finder");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, guesses_follow_what_the_target_said);
    tcase_add_test(tcase, other_successors_are_siblings);
    tcase_add_test(tcase, rows_of_every_kind_are_learned_from);
    tcase_add_test(tcase, evidence_is_how_often_it_was_right);
    tcase_add_test(tcase, row_teaches_the_token_that_came);
    tcase_add_test(tcase, guesses_are_those_of_the_whole_text);
    tcase_add_test(tcase, guesses_stop_at_ends_and_at_the_vocabulary);
    tcase_add_test(tcase, keys_do_not_see_each_other);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
