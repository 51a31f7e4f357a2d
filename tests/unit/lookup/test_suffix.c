/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* The index of a text: what it finds is compared with what a search of the whole text finds. */
#include <stdbool.h>
#include <stdlib.h>

#include "lookup/suffix.h"
#include "tests/support/check_util.h"

enum { N_TEXTS = 2000, TEXT_MOST = 60, COPY = 8, LONG = 200000, BYTES_MOST = 64 };

static struct error err;

/* Small numbers without state of the C library's. */
static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

/* Tokens at the end of text[0..n) that also end at text[end]. */
static int match_at(const int32_t *text, int n, int end)
{
    int length = 0;
    while (length <= end && text[end - length] == text[n - 1 - length]) {
        length++;
    }
    return length;
}

static int longest_match(const int32_t *text, int n)
{
    int longest = 0;
    for (int end = 0; end < n - 1; end++) {
        int length = match_at(text, n, end);
        if (length > longest) longest = length;
    }
    return longest;
}

/* True if some occurrence of the last `length` tokens goes on like the copy. */
static bool goes_on(const int32_t *text, int n, int length, const int32_t *copy, int n_copied)
{
    for (int end = 0; end < n - 1; end++) {
        int i = 0;
        if (match_at(text, n, end) < length) continue;
        for (; i < n_copied; i++) {
            int at = end + 1 + i;
            if (copy[i] != (at < n ? text[at] : copy[at - n])) break;
        }
        if (i == n_copied) return true;
    }
    return false;
}

static void check_end(const struct suffix *s, const int32_t *text, int n)
{
    int32_t copy[COPY];
    struct suffix_place place = suffix_end(s);
    int longest = longest_match(text, n);
    ck_assert_int_eq(place.length, longest);
    int n_copied = suffix_copy(s, &place, copy, COPY);
    ck_assert_int_eq(n_copied, longest > 0 ? COPY : 0);
    if (longest > 0) ck_assert(goes_on(text, n, longest, copy, n_copied));
}

/* Returns how many there are. */
static int check_others(const struct suffix *s, const int32_t *text, int n)
{
    int32_t others[3], known = -1;
    struct suffix_place place = suffix_end(s);
    suffix_copy(s, &place, &known, 1);
    int n_others = suffix_others(s, &place, known, others, 3);
    for (int i = 0; i < n_others; i++) {
        ck_assert_int_ne(others[i], known);
        ck_assert(goes_on(text, n, 1, &others[i], 1));
        for (int k = 0; k < i; k++) {
            ck_assert_int_ne(others[k], others[i]);
        }
    }
    ck_assert(place.length > 0 || n_others == 0);
    ck_assert_int_le(suffix_others(s, &place, known, others, 1), 1);
    return n_others;
}

START_TEST(the_longest_match_is_found)
{
    int32_t text[TEXT_MOST];
    int n_others = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        struct suffix *s;
        int n = 1 + below(TEXT_MOST), n_ids = 1 + below(4);
        CHECK_OK(suffix_open(&s, &err));
        for (int i = 0; i < n; i++) {
            text[i] = below(n_ids);
            CHECK_OK(suffix_add(s, text[i], &err));
            check_end(s, text, i + 1);
            n_others += check_others(s, text, i + 1);
        }
        suffix_close(s);
    }
    ck_assert_int_gt(n_others, N_TEXTS);
}
END_TEST

/* The end 9 1 2 has come before 4, its own end 1 2 before 3 and 4, and 2 before 3, 4 and 5. */
START_TEST(other_tokens_came_after_shorter_ends)
{
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 4, 9, 2, 5, 9, 1, 2};
    struct suffix *s;
    int32_t copy, others[3];
    CHECK_OK(suffix_open(&s, &err));
    for (int i = 0; i < 13; i++) {
        CHECK_OK(suffix_add(s, text[i], &err));
    }
    struct suffix_place place = suffix_end(s);
    ck_assert(suffix_copy(s, &place, &copy, 1) == 1 && copy == 4);
    ck_assert_int_eq(suffix_others(s, &place, copy, others, 3), 2);
    ck_assert(others[0] == 3 && others[1] == 5);
    ck_assert(suffix_others(s, &place, copy, others, 1) == 1 && others[0] == 3);
    suffix_close(s);
}
END_TEST

/* After the end 1 2 3 4 5 came 10, and after each shorter end of it another token. */
START_TEST(other_tokens_are_looked_for_at_four_lengths)
{
    static const int32_t text[] = {1, 2,  3, 4, 5,  10, 2,  3, 4, 5, 11, 3, 4,
                                   5, 12, 4, 5, 13, 5,  14, 1, 2, 3, 4,  5};
    int32_t copy, others[5];
    struct suffix *s;
    CHECK_OK(suffix_open(&s, &err));
    for (int i = 0; i < 25; i++) {
        CHECK_OK(suffix_add(s, text[i], &err));
    }
    struct suffix_place place = suffix_end(s);
    ck_assert(suffix_copy(s, &place, &copy, 1) == 1 && copy == 10);
    ck_assert_int_eq(suffix_others(s, &place, copy, others, 5), 3);
    ck_assert(others[0] == 11 && others[1] == 12 && others[2] == 13);
    suffix_close(s);
}
END_TEST

START_TEST(the_last_token_of_a_text_is_another_one)
{
    static const int32_t text[] = {1, 2, 9, 1, 3};
    int32_t others[3];
    struct suffix *s;
    struct suffix_place place = {0};
    CHECK_OK(suffix_open(&s, &err));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(suffix_add(s, text[i], &err));
    }
    suffix_follow(s, &place, 1);
    ck_assert(suffix_others(s, &place, 2, others, 3) == 1 && others[0] == 3);
    suffix_close(s);
}
END_TEST

/* Another text, followed token by token: the longest end of it that the text contains. */
START_TEST(another_text_is_followed)
{
    int32_t both[2 * TEXT_MOST];
    for (int t = 0; t < N_TEXTS; t++) {
        struct suffix *s;
        struct suffix_place place = {0};
        int n = 1 + below(TEXT_MOST), n_ids = 1 + below(4);
        CHECK_OK(suffix_open(&s, &err));
        for (int i = 0; i < n; i++) {
            both[i] = below(n_ids);
            CHECK_OK(suffix_add(s, both[i], &err));
        }
        both[n] = -1;
        for (int i = n + 1; i < n + TEXT_MOST; i++) {
            int longest = 0;
            both[i] = below(n_ids + 1);
            suffix_follow(s, &place, both[i]);
            for (int end = 0; end < n; end++) {
                int length = match_at(both, i + 1, end);
                if (length > longest) longest = length;
            }
            ck_assert_int_eq(place.length, longest);
        }
        suffix_close(s);
    }
}
END_TEST

/* Some tokens after a text that does not have them yet: the copy is how the longest end of both
 * went on somewhere in both. */
START_TEST(a_copy_after_followed_tokens_goes_on_with_them)
{
    int32_t both[TEXT_MOST + COPY];
    int n_copies = 0, n_after_all = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        struct suffix *s;
        int n = 1 + below(TEXT_MOST), n_after = below(COPY), n_ids = 1 + below(4), longest = 0;
        int32_t copy[COPY];
        CHECK_OK(suffix_open(&s, &err));
        for (int i = 0; i < n + n_after; i++) {
            both[i] = i < 6 || below(8) == 0 ? below(n_ids) : both[i - 5];
            if (i < n) CHECK_OK(suffix_add(s, both[i], &err));
        }
        struct suffix_place place = suffix_end(s);
        for (int i = 0; i < n_after; i++) {
            suffix_follow(s, &place, both[n + i]);
        }
        for (int end = 0; end < n - (n_after == 0 ? 1 : 0); end++) {
            int length = match_at(both, n + n_after, end);
            if (length > longest) longest = length;
        }
        ck_assert_int_eq(place.length, longest);
        int n_copied = suffix_copy_after(s, &place, both + n, n_after, copy, COPY);
        ck_assert_int_eq(n_copied, longest > 0 ? COPY : 0);
        if (n_copied) ck_assert(goes_on(both, n + n_after, longest, copy, n_copied));
        n_copies += n_copied > 0 ? 1 : 0;
        n_after_all += n_copied > 0 && n_after > 0 ? 1 : 0;
        suffix_close(s);
    }
    ck_assert(n_copies > N_TEXTS / 2 && n_after_all > N_TEXTS / 4);
}
END_TEST

START_TEST(nothing_goes_beyond_the_end_of_a_text)
{
    static const int32_t first[] = {1, 2, 3}, second[] = {2, 3, 4, 2, 3};
    struct suffix *s;
    struct suffix_place place = {0};
    int32_t copy[COPY];
    CHECK_OK(suffix_open(&s, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(suffix_add(s, first[i], &err));
    }
    CHECK_OK(suffix_add_end(s, &err));
    suffix_follow(s, &place, 2);
    suffix_follow(s, &place, 3);
    ck_assert_int_eq(place.length, 2);
    ck_assert_int_eq(suffix_copy(s, &place, copy, COPY), 0); /* the text ended there */
    for (int i = 0; i < 5; i++) {
        CHECK_OK(suffix_add(s, second[i], &err));
    }
    CHECK_OK(suffix_add_end(s, &err));
    ck_assert_int_eq(suffix_end(s).length, 0);
    ck_assert_int_eq(suffix_length(s), 10);
    place = (struct suffix_place){0};
    suffix_follow(s, &place, 4);
    ck_assert_int_eq(suffix_copy(s, &place, copy, COPY), 2); /* 2, 3, and then the end */
    ck_assert(copy[0] == 2 && copy[1] == 3);
    suffix_close(s);
}
END_TEST

/* "b" and "a b" end at the same places until "b" comes elsewhere. A place from before then must not
 * be taken for the longer one. */
START_TEST(a_place_stays_right_while_the_text_grows)
{
    static const int32_t first[] = {7, 1, 2}, second[] = {8, 1, 2, 3};
    struct suffix *s;
    struct suffix_place place = {0};
    CHECK_OK(suffix_open(&s, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(suffix_add(s, first[i], &err));
    }
    suffix_follow(s, &place, 9);
    suffix_follow(s, &place, 2);
    ck_assert_int_eq(place.length, 1);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(suffix_add(s, second[i], &err));
    }
    suffix_follow(s, &place, 3);
    ck_assert_int_eq(place.length, 2); /* 2, 3 */
    suffix_close(s);
}
END_TEST

/* A text that repeats one token, one that nothing repeats in, and one of words that come again. */
START_TEST(long_texts_stay_small)
{
    for (int kind = 0; kind < 3; kind++) {
        struct suffix *s;
        CHECK_OK(suffix_open(&s, &err));
        for (int i = 0; i < LONG; i++) {
            int word = below(1000) * below(1000) / 1000;
            int32_t token = kind == 0 ? 7 : kind == 1 ? i : word;
            CHECK_OK(suffix_add(s, token, &err));
        }
        ck_assert_uint_le(suffix_bytes(s), (size_t)BYTES_MOST * LONG);
        suffix_close(s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("suffix");
    TCase *tests = tcase_create("suffix");
    tcase_add_test(tests, the_longest_match_is_found);
    tcase_add_test(tests, other_tokens_came_after_shorter_ends);
    tcase_add_test(tests, other_tokens_are_looked_for_at_four_lengths);
    tcase_add_test(tests, the_last_token_of_a_text_is_another_one);
    tcase_add_test(tests, another_text_is_followed);
    tcase_add_test(tests, a_copy_after_followed_tokens_goes_on_with_them);
    tcase_add_test(tests, nothing_goes_beyond_the_end_of_a_text);
    tcase_add_test(tests, a_place_stays_right_while_the_text_grows);
    tcase_add_test(tests, long_texts_stay_small);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
