/* ctest: labels=quick libs=coordinator timeout=60 */
/* Guesses after those of the draft: what followed them earlier in the text, one-hot, up to an end,
 * and no more than there is room for. */
#include "coordinator/draft/appended.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum { ROOM = PLANNER_APPEND_MAX, ALL = 1 << 20 };

/* The draft is said to have guessed 13, 14, after which the text goes on with 15, 16, ... */
static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 99};
static const int32_t guesses[] = {13, 14};
enum { N_TEXT = sizeof text / sizeof *text, N_GUESSES = 2 };

struct appending {
    struct bench bench;
    struct planner planner;
    struct appended appended;
    struct guess_tree draft;
    struct draft_lane lane;
};

static void open_appending(struct appending *a, enum append_mode mode)
{
    struct error err;
    *a = (struct appending){0};
    setup(&a->bench, RULE_REJECTION, 1.0f);
    take_away(&a->bench, a->bench.seq);
    const struct lookup_options lookups = {.lookup = "session", .n_sequences = SLOTS};
    CHECK_OK(drafters_open(&a->bench.drafters, a->bench.drafter, &lookups, &err));
    drafters_set_vocabulary(&a->bench.drafters, 4096);
    a->bench.seq = place_text(&a->bench, 0, text, N_TEXT);
    struct drafter *finder = a->bench.drafters.finders[0];
    ck_assert_int_eq(lookup_read(finder, a->bench.seq, ALL), 0);
    appended_begin(&a->appended, mode, &a->bench.drafters, &a->planner);
}

static void close_appending(struct appending *a)
{
    take_away(&a->bench, a->bench.seq);
    a->bench.seq = NULL;
    drafters_close(&a->bench.drafters);
    teardown(&a->bench);
}

/* Adds up to n_max guesses after the draft's; returns how many there are then. */
static int add(struct appending *a, int n_max, const struct end_ids *ends)
{
    const struct planner_append_load load = {
        .n_rows = 1 + N_GUESSES, .n_wanted = 1 + N_GUESSES, .n_lanes = 1, .draft_us = 1000};
    struct sequence *seq = a->bench.seq;
    a->draft = (struct guess_tree){.base = N_TEXT};
    for (int i = 0; i < N_GUESSES; i++) {
        guess_tree_extend(&a->draft, 0, guesses[i], NULL);
    }
    memcpy(seq->tokens + N_TEXT, guesses, sizeof guesses);
    a->draft.is_over = end_ids_have(ends, guesses[N_GUESSES - 1]);
    a->lane = (struct draft_lane){.seq = seq, .k = N_GUESSES, .ends = ends, .draft = &a->draft};
    struct append_lane lane = {&a->lane, 0, n_max, 0};
    arena_reset(&a->bench.arena);
    appended_add(&a->appended, &lane, 1, &load, &a->bench.arena);
    ck_assert_int_eq(a->lane.err.code, 0);
    ck_assert_int_eq(a->draft.n_chain, N_GUESSES + guess_tree_count(&a->draft, GUESS_APPENDED));
    for (int i = N_GUESSES; i < a->draft.n_chain; i++) {
        const struct sparse_dist *q = guess_q(&a->draft, i);
        int32_t id = text[5 + i - N_GUESSES];
        ck_assert_int_eq(guess_token(&a->draft, i), id);
        ck_assert_int_eq(seq->tokens[N_TEXT + i], id);
        ck_assert(q->n == 1 && q->ids[0] == id && q->p[0] == 1);
        ck_assert_int_eq(guess_tree_siblings(&a->draft, i), 0);
    }
    return guess_tree_count(&a->draft, GUESS_APPENDED);
}

START_TEST(tokens_that_followed_the_guesses_in_the_text_are_added)
{
    static struct appending a;
    open_appending(&a, APPEND_ON);
    for (int n_max = 1; n_max <= ROOM; n_max++) {
        ck_assert_int_eq(add(&a, n_max, &no_ends), n_max);
        ck_assert(!a.draft.is_over);
    }
    close_appending(&a);
}
END_TEST

/* The draft has guessed nothing, because it is not sure or has failed; after the text itself there
 * would be something to find. */
START_TEST(nothing_is_added_without_a_guess)
{
    static const int32_t known[] = {10, 11, 12, 13, 14, 15, 16, 17, 10, 11, 12};
    enum { N_KNOWN = sizeof known / sizeof *known };
    static struct appending a;
    const struct planner_append_load load = {
        .n_rows = 1, .n_wanted = 1, .n_lanes = 1, .draft_us = 1000};
    int32_t tokens[ROOM];
    int evidence;
    open_appending(&a, APPEND_ON);
    struct drafter *finder = a.bench.drafters.finders[0];
    struct sequence *seq = place_text(&a.bench, 1, known, N_KNOWN);
    ck_assert_int_eq(lookup_read(finder, seq, ALL), 0);
    memcpy(seq->tokens + N_KNOWN, guesses, sizeof guesses);
    for (int n = 0; n <= N_GUESSES; n += N_GUESSES) {
        a.draft = (struct guess_tree){.base = N_KNOWN};
        for (int i = 0; i < n; i++) {
            guess_tree_extend(&a.draft, 0, guesses[i], NULL);
        }
        a.lane = (struct draft_lane){.seq = seq, .k = N_GUESSES, .ends = &no_ends};
        a.lane.draft = &a.draft;
        if (n > 0) a.lane.err.code = ERR_EXHAUSTED;
        struct append_lane lane = {&a.lane, 0, ROOM, 0};
        ck_assert_int_eq(lookup_continue_from(finder, seq, N_KNOWN + n, tokens, ROOM, &evidence),
                         ROOM);
        arena_reset(&a.bench.arena);
        appended_add(&a.appended, &lane, 1, &load, &a.bench.arena);
        ck_assert(a.draft.n_chain == n && guess_tree_count(&a.draft, GUESS_APPENDED) == 0);
    }
    take_away(&a.bench, seq);
    close_appending(&a);
}
END_TEST

START_TEST(nothing_is_added_after_an_end)
{
    static const struct end_ids guessed = {1, {14}}, found = {1, {17}};
    static struct appending a;
    open_appending(&a, APPEND_ON);
    ck_assert_int_eq(add(&a, ROOM, &guessed), 0);
    ck_assert_int_eq(add(&a, ROOM, &found), 3);
    ck_assert(a.draft.is_over);
    close_appending(&a);
}
END_TEST

/* Without times nothing is predicted; where rows cost nothing all that is found is added, until it
 * has turned out to be wrong. */
START_TEST(the_planner_says_how_many_are_worth_it)
{
    static struct appending a;
    open_appending(&a, APPEND_AUTO);
    ck_assert_int_eq(add(&a, ROOM, &no_ends), 0);
    for (int rows = 1; rows <= 32; rows++) {
        planner_curve_set(&a.planner.step, rows, 4000 + 200 * rows, 100);
        planner_curve_set(&a.planner.rest, rows, 100, 100);
    }
    planner_curve_fit(&a.planner.step);
    planner_curve_fit(&a.planner.rest);
    for (int i = 0; i < 100; i++) {
        planner_observe_append(&a.planner, &a.bench.seq->planner_state,
                               planner_evidence_of_match(2), ROOM, ROOM);
        planner_observe_lane(&a.planner, &a.bench.seq->planner_state, 0, N_GUESSES, N_GUESSES);
    }
    planner_prior_of(&a.planner.models[0].counts, PLANNER_FIRST_ALPHA, &a.planner.models[0].prior);
    ck_assert_int_eq(add(&a, ROOM, &no_ends), ROOM);
    struct planner_sequence state = a.bench.seq->planner_state;
    struct planner planner = a.planner;
    for (int i = 0; i < 400; i++) { /* the draft's second guess never stays */
        planner_observe_lane(&a.planner, &a.bench.seq->planner_state, 0, N_GUESSES, 1);
    }
    planner_prior_of(&a.planner.models[0].counts, PLANNER_FIRST_ALPHA, &a.planner.models[0].prior);
    ck_assert_int_eq(add(&a, ROOM, &no_ends), 0);
    a.bench.seq->planner_state = state;
    a.planner = planner;
    for (int i = 0; i < 400; i++) {
        planner_observe_append(&a.planner, &a.bench.seq->planner_state,
                               planner_evidence_of_match(2), ROOM, 0);
    }
    ck_assert_int_eq(add(&a, ROOM, &no_ends), 0);
    close_appending(&a);
}
END_TEST

START_TEST(without_a_finder_or_a_model_nothing_is_added)
{
    static struct planner planner;
    struct appended appended;
    struct drafters none = {0};
    struct error err;
    appended_begin(&appended, APPEND_ON, &none, &planner);
    ck_assert(!appended.finder);
    const struct lookup_options lookups = {.lookup = "session", .n_sequences = SLOTS};
    CHECK_OK(drafters_open(&none, NULL, &lookups, &err));
    appended_begin(&appended, APPEND_ON, &none, &planner);
    ck_assert(!appended.finder);
    drafters_close(&none);
    static struct appending a;
    open_appending(&a, APPEND_OFF);
    ck_assert(!a.appended.finder);
    close_appending(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("appended");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, tokens_that_followed_the_guesses_in_the_text_are_added);
    tcase_add_test(tcase, nothing_is_added_without_a_guess);
    tcase_add_test(tcase, nothing_is_added_after_an_end);
    tcase_add_test(tcase, the_planner_says_how_many_are_worth_it);
    tcase_add_test(tcase, without_a_finder_or_a_model_nothing_is_added);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
