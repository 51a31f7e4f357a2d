/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* N-grams by their first token: their order, that one takes the place of its beginning, and that
 * the room is bounded. Trajectories: the predictions of rows go on after the text, whatever was
 * committed and whatever was said. */
#include <string.h>

#include "lookup/trajectory.h"
#include "tests/support/check_util.h"

enum { VOCAB = 1000, MANY = 5000, STEPS = 20000, W = TRAJECTORY_TOKENS };

static struct error err;

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

static struct ngrams *open_pool(int n_lists)
{
    struct ngrams *pool;
    CHECK_OK(ngrams_open(&pool, n_lists, &err));
    return pool;
}

static void check_ngram(const struct ngrams *pool, int32_t token, int i, const int32_t *expected,
                        int n)
{
    const struct ngram_list *list = ngrams_find(pool, token);
    ck_assert(list && i < list->n);
    ck_assert_int_eq(list->ngrams[i].n, n);
    ck_assert_mem_eq(list->ngrams[i].tokens, expected, (size_t)n * sizeof *expected);
}

#define IDS(...)      \
    (const int32_t[]) \
    {                 \
        __VA_ARGS__   \
    }

START_TEST(the_newest_is_first)
{
    struct ngrams *pool = open_pool(64);
    ck_assert(!ngrams_find(pool, 1) && !ngrams_find(pool, 0));
    ngrams_add(pool, 1, IDS(2, 3), 2);
    ngrams_add(pool, 1, IDS(4), 1);
    check_ngram(pool, 1, 0, IDS(4), 1);
    check_ngram(pool, 1, 1, IDS(2, 3), 2);
    ngrams_add(pool, 1, IDS(2), 1); /* is the beginning of one */
    check_ngram(pool, 1, 0, IDS(2, 3), 2);
    ck_assert_int_eq(ngrams_find(pool, 1)->n, 2);
    ngrams_add(pool, 1, IDS(4, 5, 6, 7), 4); /* goes on from one */
    check_ngram(pool, 1, 0, IDS(4, 5, 6, 7), 4);
    check_ngram(pool, 1, 1, IDS(2, 3), 2);
    ck_assert_int_eq(ngrams_find(pool, 1)->n, 2);
    for (int i = 0; i < 2 * NGRAMS_KEPT; i++) {
        ngrams_add(pool, 1, IDS(100 + i), 1);
    }
    ck_assert_int_eq(ngrams_find(pool, 1)->n, NGRAMS_KEPT);
    check_ngram(pool, 1, NGRAMS_KEPT - 1, IDS(100 + NGRAMS_KEPT), 1);
    ngrams_close(pool);
}
END_TEST

START_TEST(wrong_ids_and_lengths_are_not_added)
{
    struct ngrams *pool = open_pool(64);
    ngrams_add(pool, -1, IDS(2), 1);
    ngrams_add(pool, 1, IDS(2, -1), 2);
    ngrams_add(pool, 1, IDS(2), 0);
    ngrams_add(pool, 1, IDS(2, 3, 4, 5, 6), NGRAMS_TOKENS + 1);
    ck_assert(!ngrams_find(pool, 1) && !ngrams_find(pool, -1));
    ngrams_add(pool, INT32_MAX, IDS(INT32_MAX), 1);
    check_ngram(pool, INT32_MAX, 0, IDS(INT32_MAX), 1);
    ngrams_close(pool);
    CHECK_ERR(ngrams_open(&pool, NGRAMS_LISTS_MIN - 1, &err), ERR_ARGUMENT, "lists");
    CHECK_ERR(ngrams_open(&pool, NGRAMS_LISTS_MAX + 1, &err), ERR_ARGUMENT, "lists");
    ngrams_close(NULL);
}
END_TEST

START_TEST(a_chain_follows_the_newest_ngrams)
{
    struct ngrams *pool = open_pool(64);
    const struct ngram_list *lists[8];
    int32_t tokens[8], others[3];
    int at[8];
    ngrams_add(pool, 1, IDS(8, 9), 2);
    ngrams_add(pool, 1, IDS(8, 7), 2);
    ngrams_add(pool, 1, IDS(2, 4), 2);
    ngrams_add(pool, 1, IDS(2, 3), 2);
    ngrams_add(pool, 3, IDS(5, VOCAB), 2);
    ck_assert_int_eq(ngrams_chain(pool, 1, VOCAB, tokens, lists, at, 8), 3);
    ck_assert(tokens[0] == 2 && tokens[1] == 3 && tokens[2] == 5);
    ck_assert(at[0] == 0 && at[1] == 1 && at[2] == 0 && lists[1] == lists[0]);
    ck_assert(ngrams_others(lists[0], 0, others, 3) == 1 && others[0] == 8);
    ck_assert(ngrams_others(lists[1], 1, others, 3) == 1 && others[0] == 4);
    ck_assert_int_eq(ngrams_chain(pool, 1, VOCAB, tokens, lists, at, 2), 2);
    ck_assert_int_eq(ngrams_chain(pool, 7, VOCAB, tokens, lists, at, 8), 0);
    ngrams_add(pool, 6, IDS(6), 1);
    ck_assert_int_eq(ngrams_chain(pool, 6, VOCAB, tokens, lists, at, 8), 8);
    ngrams_close(pool);
}
END_TEST

START_TEST(a_list_counts_its_last_tests)
{
    struct ngrams *pool = open_pool(64);
    ngrams_test(pool, 1, 2); /* nothing to test */
    ngrams_add(pool, 1, IDS(2), 1);
    for (int i = 0; i < 2 * NGRAMS_TESTS; i++) {
        ngrams_test(pool, 1, i % 4 ? 3 : 2);
    }
    ck_assert_int_eq(ngrams_find(pool, 1)->n_tested, NGRAMS_TESTS);
    ck_assert_int_eq(ngrams_count_right(ngrams_find(pool, 1)), NGRAMS_TESTS / 4);
    ngrams_close(pool);
}
END_TEST

/* The pool learns from a step that 5 comes after 1, but before the step it would have said 7. */
START_TEST(a_step_is_tested_before_it_is_learned_from)
{
    static const int32_t said[1 + W] = {5, -1, -1, -1, -1, -1, -1, -1, -1}, text[] = {1, 5};
    struct ngrams *pool = open_pool(64);
    struct trajectory t = {0};
    ngrams_add(pool, 1, IDS(7), 1);
    trajectory_begin(&t, pool, text, 1);
    trajectory_advance(&t, pool, said, text, 2);
    check_ngram(pool, 1, 0, IDS(5), 1);
    ck_assert_int_eq(ngrams_find(pool, 1)->n_tested, 1);
    ck_assert_int_eq(ngrams_count_right(ngrams_find(pool, 1)), 0);
    ngrams_close(pool);
}
END_TEST

/* The oldest lists of a full set go, and the newest is always there. */
START_TEST(room_is_bounded)
{
    struct ngrams *pool = open_pool(16);
    int n_known = 0;
    for (int i = 0; i < MANY; i++) {
        ngrams_add(pool, i, IDS(i + 1, i + 2), 2);
        check_ngram(pool, i, 0, IDS(i + 1, i + 2), 2);
    }
    for (int i = 0; i < MANY; i++) {
        n_known += ngrams_find(pool, i) != NULL;
    }
    ck_assert(n_known > 8 && n_known <= 16);
    ngrams_close(pool);
    pool = open_pool(NGRAMS_WAYS); /* one set */
    for (int i = 0; i < NGRAMS_WAYS; i++) {
        ngrams_add(pool, i, IDS(100 + i), 1);
    }
    for (int i = 0; i < NGRAMS_WAYS; i++) {
        check_ngram(pool, i, 0, IDS(100 + i), 1);
    }
    ngrams_add(pool, 0, IDS(50), 1);
    ngrams_add(pool, 9, IDS(51), 1);
    ck_assert(ngrams_find(pool, 0) && ngrams_find(pool, 9) && !ngrams_find(pool, 1));
    ngrams_close(pool);
}
END_TEST

static void check_tokens(const struct trajectory *t, const int32_t *expected, int n)
{
    int32_t tokens[W];
    ck_assert_int_eq(trajectory_tokens(t, VOCAB, tokens, n), n);
    ck_assert_mem_eq(tokens, expected, (size_t)n * sizeof *tokens);
}

START_TEST(a_trajectory_goes_on_after_the_committed_tokens)
{
    struct ngrams *pool = open_pool(64);
    struct trajectory t = {0};
    int32_t text[16] = {10, 11, 12};
    int32_t said[1 + W] = {20, 21, 22, 23, 24, 25, 26, 27, 28};
    ck_assert_int_eq(trajectory_tokens(&t, VOCAB, text + 8, 4), 0); /* there is none yet */
    trajectory_begin(&t, pool, text, 3);
    check_tokens(&t, IDS(10, 10, 10, 10, 10, 10, 11, 12), W); /* the end of the text */
    text[3] = 20;
    trajectory_advance(&t, pool, said, text, 4);
    check_tokens(&t, IDS(21, 22, 23, 24, 25, 26, 27, 28), W);
    trajectory_begin(&t, pool, text, 4); /* it is there already */
    check_tokens(&t, IDS(21, 22, 23, 24, 25, 26, 27, 28), W);
    check_ngram(pool, 12, 0, IDS(20), 1); /* of the text */
    check_ngram(pool, 11, 0, IDS(12, 20), 2);
    check_ngram(pool, 10, 0, IDS(11, 12, 20), 3);
    /* Three tokens more, and rows 1, 2 and from 4 on are not known: the later tokens are old, and
     * new at the end. */
    const int32_t next[1 + W] = {21, -1, -1, 33, -1, -1, -1, -1, -1};
    memcpy(text + 4, IDS(21, 40, 41), 3 * sizeof *text);
    trajectory_advance(&t, pool, next, text, 7);
    check_tokens(&t, IDS(33, 25, 26, 27, 28), 5);
    trajectory_begin(&t, pool, text, 6); /* the text is another one */
    check_tokens(&t, IDS(41, 10), 2);    /* the pool knows what follows 40 */
    ngrams_close(pool);
}
END_TEST

/* So many steps of a text that begins with the token 1. In each the target says 100, 101, ... of
 * the window, 100 more than in the step before, and the first of them is committed. silent: the
 * place at which it says nothing in the second step; -1: none. */
static struct ngrams *say_hundreds(int n_steps, int silent)
{
    struct ngrams *pool = open_pool(256);
    struct trajectory t = {0};
    int32_t text[16] = {1};
    trajectory_begin(&t, pool, text, 1);
    for (int step = 0; step < n_steps; step++) {
        int32_t said[1 + W];
        for (int i = 0; i <= W; i++) {
            said[i] = step == 1 && i == silent ? -1 : 100 * (step + 1) + i;
        }
        text[1 + step] = said[0];
        trajectory_advance(&t, pool, said, text, 2 + step);
    }
    return pool;
}

/* A token, the one that was said after it, and the one that was said after that a step later. */
START_TEST(ngrams_are_read_along_the_diagonal)
{
    struct ngrams *pool = say_hundreds(5, -1);
    check_ngram(pool, 103, 0, IDS(203, 303, 403, 503), 4);
    check_ngram(pool, 100 + W, 0, IDS(200 + W, 300 + W, 400 + W, 500 + W), 4); /* the last row */
    check_ngram(pool, 305, 0, IDS(405, 505), 2);
    ck_assert_int_eq(ngrams_find(pool, 103)->n, 1);
    ngrams_close(pool);
}
END_TEST

/* In the second step nothing was said after 103, so 104 takes the place after it, which nobody said
 * there. */
START_TEST(ngrams_end_where_nothing_was_said)
{
    struct ngrams *pool = say_hundreds(3, 3);
    check_ngram(pool, 102, 0, IDS(202, 302), 2);
    ck_assert(!ngrams_find(pool, 103));
    check_ngram(pool, 104, 1, IDS(303), 1);
    ngrams_close(pool);
}
END_TEST

/* 200 was said after 1 100, but 250 was committed, which was not said: what is said after that does
 * not go on from 100. */
START_TEST(ngrams_end_at_a_token_that_was_not_said)
{
    static const int32_t said_first[] = {100, 200, 300}, committed[] = {100, 250, 350};
    struct ngrams *pool = open_pool(256);
    struct trajectory t = {0};
    int32_t text[16] = {1};
    trajectory_begin(&t, pool, text, 1);
    for (int step = 0; step < 3; step++) {
        int32_t said[1 + W];
        for (int i = 0; i <= W; i++) {
            said[i] = i == 0 ? said_first[step] : -1;
        }
        text[1 + step] = committed[step];
        trajectory_advance(&t, pool, said, text, 2 + step);
    }
    check_ngram(pool, 1, 0, IDS(100, 250, 350), 3);
    check_ngram(pool, 1, 1, IDS(100, 200), 2);
    check_ngram(pool, 100, 0, IDS(250, 350), 2);
    check_ngram(pool, 100, 1, IDS(200), 1);
    ck_assert_int_eq(ngrams_find(pool, 100)->n, 2);
    check_ngram(pool, 250, 0, IDS(350), 1);
    check_ngram(pool, 250, 1, IDS(300), 1);
    ngrams_close(pool);
}
END_TEST

/* Whatever was said and committed, the trajectory has tokens that exist or ends. */
START_TEST(a_trajectory_has_only_tokens_of_the_vocabulary)
{
    static int32_t text[STEPS * 4 + 1];
    struct ngrams *pool = open_pool(64);
    struct trajectory t = {0};
    int32_t tokens[W];
    int n_text = 1;
    for (int step = 0; step < STEPS; step++) {
        int32_t said[1 + W];
        trajectory_begin(&t, pool, text, n_text);
        for (int i = 0; i <= W; i++) {
            said[i] = below(3) == 0 ? -1 : below(10) == 0 ? INT32_MAX - below(3) : below(20);
        }
        int n = below(40) == 0 ? 4 : 1 + below(3);
        for (int i = 0; i < n; i++) {
            text[n_text++] = below(20);
        }
        if (below(20) == 0) t = (struct trajectory){0}; /* the text lost its place */
        if (t.levels[0].base > 0) trajectory_advance(&t, pool, said, text, n_text);
        int n_known = trajectory_tokens(&t, 20, tokens, W);
        for (int i = 0; i < n_known; i++) {
            ck_assert(tokens[i] >= 0 && tokens[i] < 20);
        }
    }
    ngrams_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ngrams");
    TCase *tcase = tcase_create("pool");
    tcase_add_test(tcase, the_newest_is_first);
    tcase_add_test(tcase, wrong_ids_and_lengths_are_not_added);
    tcase_add_test(tcase, a_chain_follows_the_newest_ngrams);
    tcase_add_test(tcase, a_list_counts_its_last_tests);
    tcase_add_test(tcase, room_is_bounded);
    tcase_add_test(tcase, a_trajectory_goes_on_after_the_committed_tokens);
    tcase_add_test(tcase, ngrams_are_read_along_the_diagonal);
    tcase_add_test(tcase, a_step_is_tested_before_it_is_learned_from);
    tcase_add_test(tcase, ngrams_end_where_nothing_was_said);
    tcase_add_test(tcase, ngrams_end_at_a_token_that_was_not_said);
    tcase_add_test(tcase, a_trajectory_has_only_tokens_of_the_vocabulary);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
