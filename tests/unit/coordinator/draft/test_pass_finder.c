/* ctest: labels=quick libs=coordinator timeout=60 */
/* Guesses at look-ahead tokens: they are the best tokens of the rows after which the text ended,
 * for the next round alone; where the tokens are put follows from how the text's guesses fared, and
 * a target whose workers hold other embeddings is refused. */
#include <math.h>

#include "model/look_ahead.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"
#include "tests/support/look_ahead_folder.h"

enum { N_AHEAD = 3, WIDTH = 4, TOP = 1 + SIBLINGS_MAX };

static const int32_t text[] = {10, 11, 12, 13};
enum { N_TEXT = sizeof text / sizeof *text };

static char dir[LOOK_AHEAD_DIR_BYTES];
static struct bench b;

static void setup_pass(void)
{
    static float rows[N_AHEAD * WIDTH] = {1, 2, 3};
    look_ahead_make(dir, rows, N_AHEAD, WIDTH);
    bench_look_ahead = dir;
    setup(&b, "none", false);
    ck_assert_str_eq(b.finder->row->name, "pass");
    b.defaults.siblings_max = SIBLINGS_MAX;
}

static void teardown_pass(void)
{
    teardown(&b);
    look_ahead_remove(dir);
}

/* A round of n_accepted of k guesses and `id` after them; best[n][TOP] are the best tokens of the
 * rows, the first of which has the probability p. */
static void say(struct sequence *seq, int k, int n_accepted, int32_t id, int32_t (*best)[TOP],
                int n, float p)
{
    struct target_row rows[DRAFT_MAX];
    const float logprobs[TOP] = {logf(p), -9, -9, -9};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct target_row){
            .n_top = TOP, .top_ids = best[i], .top_logprobs = logprobs, .outside_id = -1};
    }
    for (int i = 0; i < n_accepted; i++) {
        seq->tokens[seq->n_tokens++] = 900;
    }
    seq->tokens[seq->n_tokens++] = id;
    const struct look_ahead_said said = {k, n_accepted, rows, n};
    drafters_observe_look_ahead(&b.drafters, seq, &said);
    ck_assert_int_eq(lookup_read(b.finder, seq, 1), 0);
}

/* Checks the guesses after the text; returns their evidence. */
static int check_guesses(struct sequence *seq, const int32_t *expected, int n, int n_siblings)
{
    struct planner_offer offer = {0};
    struct guess_tree draft;
    int32_t foreseen[K];
    ck_assert(lookup_offer(b.finder, seq, &offer) == (n > 0) && offer.k_max == n);
    ck_assert_int_eq(propose_chain(&b, seq, K, &no_ends, &draft), n);
    ck_assert_int_eq(lookup_preview(b.finder, seq, foreseen, K), n);
    for (int i = 0; i < n; i++) {
        ck_assert(guess_token(&draft, i) == expected[i] && foreseen[i] == expected[i]);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->p[0] == 1);
        ck_assert_int_eq(offer.siblings[i], n_siblings);
    }
    ck_assert_int_eq(propose_chain(&b, seq, 1, &no_ends, &draft), n > 0 ? 1 : 0);
    return offer.evidence;
}

START_TEST(the_rows_of_a_round_are_guesses_of_the_next)
{
    int32_t best[N_AHEAD][TOP] = {{20, 21, 22, 23}, {30, 31, 32, 33}, {40, 41, 42, 43}};
    int32_t later[1][TOP] = {{50, 51, VOCAB, 53}};
    struct sequence *seq = place(&b, 0, NULL, text, N_TEXT), *other = place(&b, 1, NULL, text, 4);
    check_guesses(seq, NULL, 0, 0);
    say(seq, 0, 0, 14, best, N_AHEAD, 0.25f);
    int low = check_guesses(seq, (const int32_t[]){20, 30, 40}, N_AHEAD, SIBLINGS_MAX);
    check_guesses(other, NULL, 0, 0);
    say(seq, 3, 1, 21, later, 1, 0.75f);
    int high = check_guesses(seq, (const int32_t[]){50}, 1, 2); /* one id is beyond the target's */
    ck_assert_int_gt(high, low);
    say(seq, 1, 0, 15, NULL, 0, 0); /* the text ended where there were none */
    check_guesses(seq, NULL, 0, 0);
    take_away(&b, seq);
    take_away(&b, other);
}
END_TEST

START_TEST(nothing_is_left_where_a_place_or_a_group_is_given_up)
{
    int32_t best[1][TOP] = {{20, 21, 22, 23}};
    const struct error failed = {ERR_INTERNAL, "no numbers"};
    struct sequence *seq = place(&b, 0, NULL, text, N_TEXT);
    say(seq, 0, 0, 14, best, 1, 0.5f);
    check_guesses(seq, (const int32_t[]){20}, 1, SIBLINGS_MAX);
    drafters_set_vocabulary(&b.drafters, VOCAB);
    check_guesses(seq, NULL, 0, 0);
    say(seq, 0, 0, 14, best, 1, 0.5f);
    drafters_forget(&b.drafters, 0);
    check_guesses(seq, NULL, 0, 0);
    const struct target_row rows[] = {{.failure = &failed}};
    drafters_observe_look_ahead(&b.drafters, seq, &(struct look_ahead_said){0, 0, rows, 1});
    check_guesses(seq, NULL, 0, 0);
    take_away(&b, seq);
}
END_TEST

static struct look_ahead_wish wish_of(const struct sequence *seq, int k)
{
    struct look_ahead_wish wish;
    b.finder->row->lookup->extra.look_ahead(b.finder, seq, k, &wish);
    ck_assert_int_eq(wish.length, N_AHEAD);
    for (int i = 0; i <= k; i++) {
        for (int other = 0; other < i; other++) {
            ck_assert(wish.places[i] <= k && wish.places[i] != wish.places[other]);
        }
    }
    return wish;
}

/* First after the text where guesses do not stay, and first after the last guess where they do. */
START_TEST(tokens_are_put_where_the_text_most_likely_ends)
{
    struct sequence *seq = place(&b, 0, NULL, text, N_TEXT);
    int32_t best[1][TOP] = {{900, 1, 2, 3}};
    struct look_ahead_wish wish;
    ck_assert(wish_of(seq, 0).places[0] == 0);
    for (int i = 0; i < 20; i++) {
        say(seq, 4, 0, 14, best, 1, 0.5f); /* and the guess is wrong each time */
    }
    wish = wish_of(seq, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(wish.places[i], i);
    }
    float low = wish.worth;
    ck_assert(low > 0 && low < 0.1f);
    for (int i = 0; i < 20; i++) {
        say(seq, 4, 4, 900, best, 1, 0.5f);
    }
    wish = wish_of(seq, 4);
    ck_assert_int_eq(wish.places[0], 4);
    ck_assert(wish.worth > 4 * low && wish.worth < 1);
    take_away(&b, seq);
}
END_TEST

START_TEST(other_embeddings_at_the_target_are_refused)
{
    struct error err;
    struct look_ahead l;
    CHECK_OK(look_ahead_open(&l, dir, &err));
    struct look_ahead_key held = {l.digest, l.n};
    CHECK_OK(drafters_check_look_ahead(&b.drafters, &held, &err));
    held.digest++;
    CHECK_ERR(drafters_check_look_ahead(&b.drafters, &held, &err), ERR_UNSUPPORTED,
              "start both with the same --head");
    CHECK_ERR(drafters_check_look_ahead(&b.drafters, &(struct look_ahead_key){0}, &err),
              ERR_UNSUPPORTED,
              "the target's workers have none: start each of them with --head /tmp");
    const struct drafters none = {0};
    CHECK_OK(drafters_check_look_ahead(&none, &held, &err));
    look_ahead_close(&l);
}
END_TEST

START_TEST(a_folder_that_makes_no_sense_is_refused)
{
    struct drafters drafters;
    struct error err;
    const struct lookup_options options = {
        .lookup = "none", .n_sequences = 1, .tok = b.tok, .look_ahead = "/nowhere"};
    CHECK_ERR(drafters_open(&drafters, NULL, &options, &err), ERR_NOT_FOUND, "/nowhere");
    ck_assert(drafters_first(&b.drafters) == b.finder && drafters_any(&b.drafters));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_finder");
    TCase *tcase = tcase_create("pass_finder");
    tcase_add_checked_fixture(tcase, setup_pass, teardown_pass);
    tcase_add_test(tcase, the_rows_of_a_round_are_guesses_of_the_next);
    tcase_add_test(tcase, nothing_is_left_where_a_place_or_a_group_is_given_up);
    tcase_add_test(tcase, tokens_are_put_where_the_text_most_likely_ends);
    tcase_add_test(tcase, other_embeddings_at_the_target_are_refused);
    tcase_add_test(tcase, a_folder_that_makes_no_sense_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
