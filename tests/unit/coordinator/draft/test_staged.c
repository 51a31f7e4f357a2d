/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests which tokens the draft is expected to guess, and in which passes these are looked up at
 * all. Guesses are given here; test_draft_staged.c makes them with a model. */
#include <string.h>

#include "coordinator/draft/staged.h"
#include "speculation/planner/stage.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

enum { ALL = 1 << 20 };

/* After 10 11 12 the text is expected to go on with 13, 14, ... */
static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 10, 11, 12};
enum { N_TEXT = sizeof text / sizeof *text, FIRST = 3 /* of the text, that is expected */ };

struct staging {
    struct bench bench;
    struct planner planner;
    struct staged staged;
    struct sequence *seq;
    struct guess_tree draft;
    struct draft_lane lane;
};

static void open_staging(struct staging *s, enum staged_mode mode)
{
    *s = (struct staging){0};
    setup(&s->bench, "session", false);
    s->seq = place_studied(&s->bench, 0, NULL, text, N_TEXT);
    s->draft = (struct guess_tree){.base = N_TEXT};
    s->lane = (struct draft_lane){.seq = s->seq, .k = K, .ends = &no_ends, .draft = &s->draft};
    staged_begin(&s->staged, mode, &s->bench.drafters, &s->planner);
    ck_assert(s->staged.finder == s->bench.finder);
}

static void close_staging(struct staging *s)
{
    take_away(&s->bench, s->seq);
    teardown(&s->bench);
}

/* Rows cost nothing beside the pass, and the draft agrees with what is expected. */
static void teach(struct staging *s)
{
    for (int rows = 1; rows <= 32; rows++) {
        planner_curve_set(&s->planner.models[0].draft, rows, 1000 + rows, 100);
    }
    planner_curve_fit(&s->planner.models[0].draft);
    for (int i = 0; i < 200; i++) {
        planner_observe_stage(&s->planner, &s->seq->planner_state, planner_evidence_of_match(3), K,
                              K);
    }
}

/* The next pass begins: returns how many tokens are expected of it. */
static int expect(struct staging *s)
{
    struct draft_lane *lanes[] = {&s->lane};
    s->staged.base.expect(&s->staged.base, lanes, 1);
    ck_assert_int_eq(s->lane.expected.begin, s->draft.n_chain);
    return s->lane.expected.n;
}

/* The pass is over, and n tokens were guessed. */
static void guess(struct staging *s, const int32_t *tokens, int n)
{
    struct draft_lane *lanes[] = {&s->lane};
    memcpy(s->seq->tokens + N_TEXT + s->draft.n_chain, tokens, (size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) {
        guess_tree_extend(&s->draft, 0, tokens[i], NULL);
    }
    s->staged.base.compare(&s->staged.base, lanes, 1);
}

/* Nothing is expected of the last guess: no other one follows it. */
START_TEST(tokens_that_the_text_had_before_are_expected)
{
    static struct staging s;
    for (int mode = STAGED_AUTO; mode <= STAGED_ON; mode++) {
        open_staging(&s, (enum staged_mode)mode);
        for (int pass = 1; pass <= K; pass++) {
            int n = expect(&s), done = pass - 1;
            ck_assert_int_eq(n, K - pass);
            ck_assert_mem_eq(s.lane.expected.tokens, text + FIRST + done, (size_t)n * sizeof *text);
            ck_assert_int_eq(s.lane.expected.n_passes, pass);
            ck_assert_int_eq(s.lane.expected.n_fed, mode == STAGED_ON ? n : 0); /* no times */
            int evidence = planner_evidence_of_match(3 + done);
            ck_assert_int_eq(s.lane.expected.evidence, n > 0 ? evidence : 0);
            guess(&s, text + FIRST + done, 1);
        }
        close_staging(&s);
    }
}
END_TEST

START_TEST(as_much_is_read_ahead_as_pays)
{
    static struct staging s;
    open_staging(&s, STAGED_AUTO);
    teach(&s);
    ck_assert_int_eq(expect(&s), K - 1);
    ck_assert_int_eq(s.lane.expected.n_fed, K - 1);
    close_staging(&s);
}
END_TEST

/* Guesses are compared as far as something was expected, up to the first that differs. */
START_TEST(guesses_are_compared_with_what_was_expected)
{
    static const struct {
        int n_expected, n_guessed, n_right, n_tested, n_equal;
    } cases[] = {{7, 3, 3, 3, 3}, {7, 1, 0, 1, 0}, {7, 3, 1, 2, 1},
                 {2, 5, 5, 2, 2}, {7, 0, 0, 0, 0}, {0, 3, 3, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct staging s;
        int32_t guesses[K];
        open_staging(&s, STAGED_AUTO);
        const struct planner_trust *trust = &s.seq->planner_state.trust[PLANNER_STAGED];
        ck_assert_int_eq(expect(&s), K - 1);
        s.lane.expected.n = cases[i].n_expected; /* what follows those must not be looked at */
        for (int g = 0; g < cases[i].n_guessed; g++) {
            guesses[g] = g < cases[i].n_right ? text[FIRST + g] : 99;
        }
        guess(&s, guesses, cases[i].n_guessed);
        ck_assert_int_eq(s.lane.expected.n_equal, cases[i].n_equal);
        ck_assert(trust->tested == (float)cases[i].n_tested);
        ck_assert(trust->accepted == (float)cases[i].n_equal);
        close_staging(&s);
    }
}
END_TEST

/* The second pass of a round. Where the draft differs from what is expected and seldom agrees, and
 * where reading ahead has not paid, nobody looks again, unless all is to be read. */
static void check_second_look(enum staged_mode mode, bool agrees, bool is_likely, int n_fed,
                              bool is_used, bool is_looked_up)
{
    static struct staging s;
    open_staging(&s, mode);
    for (int i = 0; i < 50; i++) {
        planner_observe_stage(&s.planner, &s.seq->planner_state, 1, 1, is_likely ? 1 : 0);
    }
    s.planner.stage_unused = is_used ? 0 : 1;
    ck_assert_int_eq(expect(&s), K - 1); /* in the first pass always */
    s.lane.expected.n_fed = n_fed;
    guess(&s, &(int32_t){agrees ? text[FIRST] : 11}, 1); /* after 11, too, the text goes on */
    ck_assert_msg((expect(&s) == K - 2) == is_looked_up && (s.lane.expected.n > 0) == is_looked_up,
                  "mode %d: %d tokens, agrees %d, likely %d, %d fed, used %d", mode,
                  s.lane.expected.n, agrees, is_likely, n_fed, is_used);
    close_staging(&s);
}

START_TEST(expectations_are_looked_up_again_where_that_may_help)
{
    for (int is_likely = 0; is_likely <= 1; is_likely++) {
        for (int agrees = 0; agrees <= 1; agrees++) {
            for (int way = 0; way < 4; way++) {
                int n_fed = way % 2 * 3, is_used = way / 2;
                bool is_looked_up = (agrees || is_likely) && (n_fed > 0 || is_used);
                check_second_look(STAGED_AUTO, agrees, is_likely, n_fed, is_used, is_looked_up);
                check_second_look(STAGED_ON, agrees, is_likely, n_fed, is_used, true);
            }
        }
    }
}
END_TEST

/* Only what is known has a chance, and of a text that was not read nothing is known. */
START_TEST(chances_cover_only_known_tokens)
{
    static struct staging s;
    float chances[DRAFT_MAX];
    open_staging(&s, STAGED_AUTO);
    teach(&s);
    s.staged.base.predict(&s.staged.base, s.seq, chances);
    ck_assert(chances[0] == 0 && chances[1] > 0.5f && chances[DRAFT_MAX - 1] > 0.2f);
    drafters_set_vocabulary(&s.bench.drafters, 16); /* 13, 14 and 15 */
    s.staged.base.predict(&s.staged.base, s.seq, chances);
    ck_assert(chances[3] > 0.5f && chances[4] == 0);
    s.seq->tokens[s.seq->n_tokens++] = 13;
    s.staged.base.predict(&s.staged.base, s.seq, chances);
    ck_assert(chances[1] == 0);
    close_staging(&s);
}
END_TEST

/* Lanes of one pass are looked up each by itself. */
START_TEST(each_lane_has_its_own_expectations)
{
    static struct staging s;
    static const int32_t other_text[] = {30, 31, 32, 33, 30, 31};
    struct guess_tree draft = {.base = 6};
    open_staging(&s, STAGED_ON);
    struct sequence *other = place_studied(&s.bench, 1, NULL, other_text, 6);
    struct draft_lane lane = {.seq = other, .k = 3, .ends = &no_ends, .draft = &draft};
    struct draft_lane *lanes[] = {&s.lane, &lane};
    s.staged.base.expect(&s.staged.base, lanes, 2);
    ck_assert(s.lane.expected.n == K - 1 && s.lane.expected.n_fed == K - 1);
    ck_assert(lane.expected.n == 2 && lane.expected.n_fed == 2);
    ck_assert(lane.expected.tokens[0] == 32 && lane.expected.tokens[1] == 33);
    take_away(&s.bench, other);
    close_staging(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("staged");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, tokens_that_the_text_had_before_are_expected);
    tcase_add_test(tcase, as_much_is_read_ahead_as_pays);
    tcase_add_test(tcase, guesses_are_compared_with_what_was_expected);
    tcase_add_test(tcase, expectations_are_looked_up_again_where_that_may_help);
    tcase_add_test(tcase, chances_cover_only_known_tokens);
    tcase_add_test(tcase, each_lane_has_its_own_expectations);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
