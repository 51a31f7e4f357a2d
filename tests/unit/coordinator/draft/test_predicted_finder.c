/* ctest: labels=quick libs=coordinator timeout=60 */
/* The tokens that a request predicts are guessed from the first token of its answer on, as far as
 * they exist for the target, and a text that lost its place is followed as if nothing had
 * happened. */
#include <string.h>

#include "lookup/predicted.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

enum { ALL = 1 << 30, N_PROMPT = 3 };

static const int32_t prompt[N_PROMPT] = {1, 2, 3};
static const int32_t answer[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
enum { N_ANSWER = sizeof answer / sizeof *answer };

static void open_bench(struct bench *b)
{
    struct error err;
    setup(b, "session", false);
    drafters_close(&b->drafters);
    const struct lookup_options options = {
        .lookup = "none", .n_sequences = SLOTS, .reads_predictions = true, .tok = b->tok};
    CHECK_OK(drafters_open(&b->drafters, NULL, &options, &err));
    drafters_set_vocabulary(&b->drafters, VOCAB);
    b->finder = b->drafters.finders[0];
    ck_assert(b->drafters.n_finders == 1 && b->finder->row->is_of_request);
    ck_assert(!drafters_any(&b->drafters) && !drafters_first(&b->drafters));
}

static struct sequence *place_predicted(struct bench *b, int slot, const int32_t *predicted, int n)
{
    struct error err;
    struct sequence *seq = place(b, slot, NULL, prompt, N_PROMPT);
    if (n) CHECK_OK(predicted_open(&seq->job->predicted, predicted, n, &err));
    return seq;
}

static void commit(struct sequence *seq, const int32_t *tokens, int n)
{
    memcpy(seq->tokens + seq->n_tokens, tokens, (size_t)n * sizeof *tokens);
    seq->n_tokens += n;
}

/* Studies the text; its guesses are expected[n], each with a one-hot q. */
static int check_guesses(struct bench *b, struct sequence *seq, const int32_t *expected, int n)
{
    struct planner_offer offer;
    struct guess_tree draft;
    int32_t foreseen[K];
    ck_assert_int_eq(lookup_read(b->finder, seq, ALL), 0);
    ck_assert(!drafters_brought(&b->drafters, seq, &offer) == (n == 0));
    ck_assert_int_eq(lookup_preview(b->finder, seq, foreseen, K), n);
    propose_chain(b, seq, K, &no_ends, &draft);
    ck_assert_int_eq(draft.n_chain, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(guess_token(&draft, i), expected[i]);
        ck_assert_int_eq(foreseen[i], expected[i]);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->ids[0] == expected[i] &&
                  guess_q(&draft, i)->p[0] == 1);
    }
    return offer.evidence;
}

START_TEST(guesses_follow_the_answer_through_the_prediction)
{
    struct bench b;
    open_bench(&b);
    struct sequence *seq = place_predicted(&b, 0, answer, N_ANSWER);
    int first = check_guesses(&b, seq, answer, K);
    commit(seq, answer, 4);
    int later = check_guesses(&b, seq, answer + 4, N_ANSWER - 4);
    ck_assert_int_gt(first, 0);
    ck_assert_int_ge(later, first);
    commit(seq, (const int32_t[]){99}, 1); /* in place of 14 */
    ck_assert_int_eq(check_guesses(&b, seq, answer + 5, N_ANSWER - 5), 0);
    commit(seq, (const int32_t[]){98}, 1);
    check_guesses(&b, seq, NULL, 0);
    commit(seq, answer + 6, 2);
    check_guesses(&b, seq, answer + 8, N_ANSWER - 8);
    commit(seq, answer + 8, N_ANSWER - 8);
    check_guesses(&b, seq, NULL, 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(nothing_is_guessed_that_does_not_exist_or_was_not_predicted)
{
    struct bench b;
    open_bench(&b);
    struct sequence *seq = place_predicted(&b, 0, answer, N_ANSWER);
    struct sequence *other = place_predicted(&b, 1, NULL, 0);
    drafters_set_vocabulary(&b.drafters, 13);
    check_guesses(&b, seq, answer, 3);
    check_guesses(&b, other, NULL, 0);
    take_away(&b, other);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* The text is read in parts, and nothing is guessed after a part that was not read yet. */
START_TEST(a_text_that_lost_its_place_is_followed_again)
{
    struct bench b;
    open_bench(&b);
    struct sequence *seq = place_predicted(&b, 0, answer, N_ANSWER);
    check_guesses(&b, seq, answer, K);
    commit(seq, answer, 2);
    commit(seq, (const int32_t[]){97}, 1);
    commit(seq, answer + 2, 3);
    check_guesses(&b, seq, answer + 5, N_ANSWER - 5);
    drafters_forget(&b.drafters, 0);
    int32_t guess;
    ck_assert_int_eq(lookup_read(b.finder, seq, 2), 4);
    ck_assert_int_eq(lookup_preview(b.finder, seq, &guess, 1), 0);
    check_guesses(&b, seq, answer + 5, N_ANSWER - 5);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("predicted_finder");
    TCase *tcase = tcase_create("predicted_finder");
    tcase_add_test(tcase, guesses_follow_the_answer_through_the_prediction);
    tcase_add_test(tcase, nothing_is_guessed_that_does_not_exist_or_was_not_predicted);
    tcase_add_test(tcase, a_text_that_lost_its_place_is_followed_again);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
