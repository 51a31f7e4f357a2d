/* ctest: labels=quick libs=coordinator timeout=60 */
/* Guesses from n-grams that the target has said: they follow from the rows of a trajectory, which
 * is the window, and from the text, and other texts see none of them. */
#include "lookup/trajectory.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

enum { W = TRAJECTORY_TOKENS };

static const int32_t text[] = {10, 11, 12, 13};
enum { N_TEXT = sizeof text / sizeof *text };

static void setup_lookahead(struct bench *b)
{
    setup(b, "lookahead", false);
    b->defaults.siblings_max = SIBLINGS_MAX;
}

static struct sequence *place_text(struct bench *b, int slot)
{
    return place_studied(b, slot, NULL, text, N_TEXT);
}

/* A round: `id` is committed, and the target said best[i] after before[i]; below 0: nothing is
 * known of that row. */
static void say(struct bench *b, struct sequence *seq, int32_t id, const int32_t *before,
                const int32_t *parents, const int32_t *best, int n)
{
    static const float p = 1;
    struct target_row rows[1 + TREE_NODES_MAX];
    const struct draft_rows said = {rows, before, parents, n};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct target_row){.n = best[i] >= 0, .ids = &best[i], .p = &p};
        rows[i].outside_id = -1;
    }
    seq->tokens[seq->n_tokens++] = id;
    drafters_observe_rows(&b->drafters, seq, &said);
    ck_assert_int_eq(lookup_read(b->finder, seq, 1), 0);
}

/* Checks the guesses after the text, which are what was offered. */
static void check_guesses(struct bench *b, struct sequence *seq, const int32_t *expected, int n)
{
    struct planner_offer offer = {0};
    struct draft_cost cost;
    struct guess_tree draft = {.base = seq->n_tokens};
    struct draft_lane lane = {
        .seq = seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = SIBLINGS_MAX};
    int32_t foreseen[K];
    ck_assert(lookup_offer(b->finder, seq, &offer) == (n > 0));
    ck_assert_int_eq(offer.k_max, n);
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    ck_assert_int_eq(draft.n_chain, n);
    ck_assert_int_eq(lookup_preview(b->finder, seq, foreseen, K), n);
    for (int i = 0; i < n; i++) {
        ck_assert(guess_token(&draft, i) == expected[i] && foreseen[i] == expected[i]);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->ids[0] == expected[i] &&
                  guess_q(&draft, i)->p[0] == 1);
        ck_assert_int_eq(guess_tree_siblings(&draft, i), offer.siblings[i]);
    }
}

static void check_window(struct bench *b, struct sequence *seq, const int32_t *expected, int n,
                         const struct end_ids *ends)
{
    struct guess_tree draft = {.base = seq->n_tokens};
    struct draft_lane lane = {.seq = seq, .k = K, .ends = ends, .draft = &draft};
    arena_reset(&b->arena);
    lookup_extra_rows(b->finder, &lane, &b->arena);
    ck_assert(draft.n == n && draft.n_chain == 0);
    for (int i = 0; i < n; i++) {
        ck_assert(draft.tokens[i] == expected[i] && draft.parents[i] == i - 1);
        ck_assert(draft.marks[i] == GUESS_BRANCH);
        ck_assert(draft.q[i]->n == 1 && draft.q[i]->ids[0] == expected[i]);
    }
}

#define IDS(...)      \
    (const int32_t[]) \
    {                 \
        __VA_ARGS__   \
    }

START_TEST(rows_of_the_window_are_the_next_one)
{
    static const struct end_ids ends = {.n = 1, .ids = {22}};
    struct bench b;
    setup_lookahead(&b);
    struct sequence *seq = place_text(&b, 0);
    ck_assert(drafters_extra_rows(&b.drafters) == b.finder && drafters_observes(&b.drafters));
    ck_assert(!drafters_first(&b.drafters)); /* a K of its own may not depend on company */
    check_guesses(&b, seq, NULL, 0);
    check_window(&b, seq, IDS(10, 10, 10, 10, 10, 11, 12, 13), W, &no_ends);
    /* The tree has another guess first, after which something else is said. */
    say(&b, seq, 20, IDS(13, 99, 10, 10, 10, 10), IDS(-1, 0, 1, 0, 3, 4),
        IDS(20, 98, 97, 21, 22, 23), 6);
    check_window(&b, seq, IDS(21, 22, 23, 10, 11, 12, 13, 20), W, &no_ends);
    check_window(&b, seq, IDS(21, 22), 2, &ends); /* nothing after one that ends the text */
    drafters_set_vocabulary(&b.drafters, 22);
    check_window(&b, seq, IDS(21), 1, &no_ends);
    seq->n_tokens++; /* a text that nobody has told it of */
    check_window(&b, seq, NULL, 0, &no_ends);
    seq->n_tokens--;
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Tokens of the text itself are newer than what was said after other guesses, which are siblings.
 */
START_TEST(guesses_are_ngrams)
{
    struct planner_offer offer = {0};
    struct bench b;
    setup_lookahead(&b);
    struct sequence *seq = place_text(&b, 0), *other = place_text(&b, 1);
    say(&b, seq, 20, IDS(13, 10, 10, 10), IDS(-1, 0, 1, 2), IDS(20, 21, 22, 23), 4);
    check_guesses(&b, seq, NULL, 0); /* nothing was said after 20 */
    say(&b, seq, 10, IDS(20), IDS(-1), IDS(10), 1);
    check_guesses(&b, seq, IDS(11, 12, 13, 20, 10, 11, 12, 13), K);
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.siblings[0] == SIBLINGS_MAX);
    drafters_set_vocabulary(&b.drafters, 22); /* 22 and 23 are siblings no more */
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.siblings[0] == 1);
    check_guesses(&b, seq, IDS(11, 12, 13, 20, 10, 11, 12, 13), K);
    drafters_set_vocabulary(&b.drafters, VOCAB);
    check_guesses(&b, other, NULL, 0);
    take_away(&b, seq);
    seq = place_text(&b, 0); /* it begins anew */
    check_guesses(&b, seq, NULL, 0);
    check_window(&b, seq, IDS(10, 10, 10, 10, 10, 11, 12, 13), W, &no_ends);
    take_away(&b, seq);
    take_away(&b, other);
    teardown(&b);
}
END_TEST

/* A text that goes round says the same after 10, and then something else. */
START_TEST(evidence_is_how_often_it_was_right)
{
    static const int32_t round[] = {10, 11, 12, 13, 10, 99, 10};
    static const struct {
        int right, tested;
    } wanted[] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {1, 1}, {-1, -1}, {1, 2}};
    struct bench b;
    setup_lookahead(&b);
    struct sequence *seq = place_text(&b, 0);
    for (int i = 0; i < 7; i++) {
        struct planner_offer offer = {.evidence = -1};
        say(&b, seq, round[i], IDS(seq->tokens[seq->n_tokens - 1]), IDS(-1), IDS(-1), 1);
        bool is_found = lookup_offer(b.finder, seq, &offer);
        ck_assert(is_found == (wanted[i].tested >= 0));
        if (!is_found) continue;
        ck_assert_int_eq(offer.evidence,
                         planner_evidence_of_share(wanted[i].right, wanted[i].tested));
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Rows of which nothing is known, ids that do not exist for the target, and rounds whose trajectory
 * is not that of the finder. */
START_TEST(rows_that_say_nothing_are_ignored)
{
    struct bench b;
    setup_lookahead(&b);
    struct sequence *seq = place_text(&b, 0);
    say(&b, seq, 20, IDS(13, 10, 10), IDS(-1, 0, 1), IDS(-1, VOCAB, INT32_MAX), 3);
    check_window(&b, seq, IDS(10, 10, 10, 10, 11, 12, 13, 20), W, &no_ends);
    seq->n_tokens--;
    say(&b, seq, 21, IDS(13), IDS(-1), IDS(21), 1); /* more tokens follow the trajectory */
    check_window(&b, seq, IDS(10, 10, 10, 10, 11, 12, 13, 20), W, &no_ends);
    check_guesses(&b, seq, NULL, 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lookahead_finder");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, rows_of_the_window_are_the_next_one);
    tcase_add_test(tcase, guesses_are_ngrams);
    tcase_add_test(tcase, evidence_is_how_often_it_was_right);
    tcase_add_test(tcase, rows_that_say_nothing_are_ignored);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
