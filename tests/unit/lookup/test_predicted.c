/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* A text is followed through the one that was predicted for it: from its first token on, and again
 * after tokens that were added, left out, replaced or moved. */
#include <stdlib.h>
#include <string.h>

#include "lookup/predicted.h"
#include "tests/support/check_util.h"

enum { N = 400, MOST = 2 * N, COPY = 16, N_TEXTS = 300, LONG = 100000 };

static struct error err;

/* Small numbers without state of the C library's. */
static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

/* Counts the tokens of the text that are the first guess after those before them. */
static int count_right(const int32_t *expected, int n_expected, const int32_t *text, int n)
{
    struct predicted *p;
    struct predicted_place place = predicted_begin();
    int n_right = 0;
    CHECK_OK(predicted_open(&p, expected, n_expected, &err));
    for (int i = 0; i < n; i++) {
        int32_t guess;
        n_right += predicted_copy(p, &place, &guess, 1) == 1 && guess == text[i];
        predicted_follow(p, &place, text, i + 1);
    }
    predicted_close(p);
    return n_right;
}

static void count_up(int32_t *text, int n)
{
    for (int i = 0; i < n; i++) {
        text[i] = 10 + i;
    }
}

START_TEST(a_text_that_was_predicted_is_known_from_its_first_token_on)
{
    int32_t text[N], copied[COPY];
    struct predicted *p;
    struct predicted_place place = predicted_begin();
    count_up(text, N);
    ck_assert_int_eq(count_right(text, N, text, N), N);
    CHECK_OK(predicted_open(&p, text, N, &err));
    for (int i = 0; i <= N; i++) {
        int n = predicted_copy(p, &place, copied, COPY);
        ck_assert_int_eq(n, N - i < COPY ? N - i : COPY);
        ck_assert_mem_eq(copied, text + i, (size_t)n * sizeof *copied);
        ck_assert_int_eq(place.lost, 0);
        if (i < N) predicted_follow(p, &place, text, i + 1);
    }
    predicted_close(p);
}
END_TEST

/* The change of n_out tokens at `at` into n_in others costs as many guesses as there are new
 * tokens, and two more at most. */
static void check_change(int at, int n_out, int n_in)
{
    int32_t expected[N], text[MOST];
    int n = 0;
    count_up(expected, N);
    for (int i = 0; i < at; i++) {
        text[n++] = expected[i];
    }
    for (int i = 0; i < n_in; i++) {
        text[n++] = 5000 + i;
    }
    for (int i = at + n_out; i < N; i++) {
        text[n++] = expected[i];
    }
    int n_right = count_right(expected, N, text, n);
    ck_assert_msg(n_right >= n - n_in - 2, "%d for %d at %d: %d of %d", n_in, n_out, at, n_right,
                  n);
}

START_TEST(a_text_is_found_again_after_a_change)
{
    static const int places[] = {0, 1, 100, N - 40};
    static const int sizes[] = {0, 1, 2, 3, 7, 30};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                check_change(places[p], sizes[i], sizes[k]);
            }
        }
    }
}
END_TEST

/* The nearer of two equal parts is taken: the text goes on after the change, and not where a line
 * like this was before. */
START_TEST(a_replaced_token_among_equal_lines_keeps_its_place)
{
    int32_t expected[N], text[N];
    for (int i = 0; i < N; i++) {
        expected[i] = text[i] = i % 10 == 9 ? 100 + i : i % 10;
    }
    for (int i = 14; i < N; i += 30) {
        text[i] = 7000 + i;
    }
    int n_changed = (N - 14 + 29) / 30;
    ck_assert_int_eq(count_right(expected, N, text, N), N - n_changed);
}
END_TEST

START_TEST(parts_in_another_order_are_found_anywhere)
{
    int32_t *expected = malloc(LONG * sizeof *expected), text[N];
    count_up(expected, LONG);
    for (int part = 0; part < 4; part++) {
        memcpy(text + 100 * part, expected + 20000 * (4 - part), 100 * sizeof *text);
    }
    int n_right = count_right(expected, LONG, text, N);
    ck_assert_int_ge(n_right, N - 4 * 4);
    free(expected);
}
END_TEST

START_TEST(nothing_is_expected_of_another_text)
{
    int32_t expected[N], text[N];
    struct predicted *p;
    struct predicted_place place = predicted_begin();
    count_up(expected, N);
    CHECK_OK(predicted_open(&p, expected, N, &err));
    for (int i = 0; i < N; i++) {
        int32_t copied[COPY];
        text[i] = 5000 + i;
        predicted_follow(p, &place, text, i + 1);
        ck_assert_int_eq(predicted_copy(p, &place, copied, COPY), i == 0 ? COPY : 0);
    }
    predicted_close(p);
}
END_TEST

/* Whatever the two texts are, places stay within the predicted one, and following the tokens again
 * gives the same. */
START_TEST(places_stay_within_the_predicted_text)
{
    for (int t = 0; t < N_TEXTS; t++) {
        int32_t expected[60], text[60], copied[COPY];
        int n = 1 + below(60), n_text = 1 + below(60), n_kinds = 1 + below(5);
        struct predicted *p;
        struct predicted_place place = predicted_begin(), again = predicted_begin();
        for (int i = 0; i < 60; i++) {
            expected[i] = below(n_kinds);
            text[i] = below(n_kinds);
        }
        CHECK_OK(predicted_open(&p, expected, n, &err));
        ck_assert_uint_gt(predicted_bytes(p), (size_t)n * sizeof *expected);
        for (int i = 0; i < n_text; i++) {
            predicted_follow(p, &place, text, i + 1);
            ck_assert_int_ge(place.next, 0);
            ck_assert_int_le(place.next, n);
            int n_copied = predicted_copy(p, &place, copied, COPY);
            for (int k = 0; k < n_copied; k++) {
                ck_assert_int_eq(copied[k], expected[place.next + place.lost + k]);
            }
        }
        for (int i = 0; i < n_text; i++) {
            predicted_follow(p, &again, text, i + 1);
        }
        ck_assert_mem_eq(&place, &again, sizeof place);
        predicted_close(p);
    }
    ck_assert_uint_eq(predicted_bytes(NULL), 0);
    predicted_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("predicted");
    TCase *tcase = tcase_create("predicted");
    tcase_add_test(tcase, a_text_that_was_predicted_is_known_from_its_first_token_on);
    tcase_add_test(tcase, a_text_is_found_again_after_a_change);
    tcase_add_test(tcase, a_replaced_token_among_equal_lines_keeps_its_place);
    tcase_add_test(tcase, parts_in_another_order_are_found_anywhere);
    tcase_add_test(tcase, nothing_is_expected_of_another_text);
    tcase_add_test(tcase, places_stay_within_the_predicted_text);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
