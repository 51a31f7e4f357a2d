/* ctest: labels=quick,memory libs=replay timeout=60 */
/* First places of the last few tokens: those that a search of the whole text finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/replay/first_places.h"
#include "tests/support/check_util.h"

enum { N_TEXTS = 60, N_TOKENS = 1500, N_KINDS = 4 };

static struct error err;
static int32_t text[N_TOKENS];

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

/* Kind 0: all tokens differ, nearly; 1: a few tokens by chance; 2: a part again and again; 3: parts
 * of the text so far, with changes. */
static void make_text(int kind)
{
    int part = 1 + below(60), from = 0;
    for (int i = 0; i < N_TOKENS; i++) {
        text[i] = kind == 0 ? below(1 << 30) - (1 << 29) : below(kind == 1 ? 6 : 500);
        if (kind == 2 && i >= part) text[i] = text[i - part];
        if (kind != 3 || i < part) continue;
        if (i % part == 0) from = below(i);
        if (below(10)) text[i] = text[from++];
    }
}

static int32_t search(int n_tokens, int n)
{
    for (int at = 0; at + n < n_tokens; at++) {
        if (memcmp(text + at, text + n_tokens - n, (size_t)n * sizeof *text) == 0) return at;
    }
    return -1;
}

START_TEST(places_are_those_of_a_search)
{
    int n_found = 0, n_new = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        struct first_places *places;
        CHECK_OK(first_places_open(&places, &err));
        make_text(t % N_KINDS);
        for (int i = 0; i <= N_TOKENS; i++) {
            for (int n = FIRST_PLACES_LEAST; n <= FIRST_PLACES_MOST; n++) {
                int32_t place = first_places_find(places, n);
                ck_assert_int_eq(place, search(i, n));
                n_found += place >= 0;
                n_new += place < 0;
            }
            ck_assert_uint_eq(first_places_length(places), (size_t)i);
            if (i < N_TOKENS) CHECK_OK(first_places_add(places, text[i], &err));
        }
        first_places_close(places);
    }
    ck_assert(n_found > 10000 && n_new > 10000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("first_places");
    TCase *tests = tcase_create("places");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, places_are_those_of_a_search);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
