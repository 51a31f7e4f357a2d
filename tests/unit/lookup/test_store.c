/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* The store of finished texts: what it finds and counts is compared with a search of the texts. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lookup/store.h"
#include "tests/support/check_util.h"

enum {
    N_ROUNDS = 300,
    N_TEXTS = 6,
    TEXT_MOST = 100, /* longer than a match with its guesses */
    IDS_MOST = 20,
    SMALL = 20 * TEXT_MOST,
    LONG = 100000,
    BYTES_MOST = 64, /* per token that fits */
    SLOWEST = 20     /* times as long as the same number of other tokens */
};

static struct error err;
static struct text {
    int32_t tokens[TEXT_MOST];
    int n;
    uint64_t tenant;
} texts[N_TEXTS];

/* Small numbers without state of the C library's. */
static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

static bool is_at(const struct text *text, int at, const int32_t *part, int n)
{
    if (at + n > text->n) return false;
    for (int i = 0; i < n; i++) {
        if (text->tokens[at + i] != part[i]) return false;
    }
    return true;
}

/* Occurrences of part[n] in the tenant's texts. */
static int occurrences(uint64_t tenant, const int32_t *part, int n)
{
    int count = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        for (int at = 0; texts[t].tenant == tenant && at < texts[t].n; at++) {
            count += is_at(&texts[t], at, part, n);
        }
    }
    return count;
}

/* Returns the largest count of part[n] with a token after it. */
static int most_frequent(uint64_t tenant, int32_t *part, int n, int n_ids)
{
    int most = 0;
    for (int32_t id = 0; id < n_ids; id++) {
        part[n] = id;
        int count = occurrences(tenant, part, n + 1);
        if (count > most) most = count;
    }
    return most;
}

static void check_found(const struct store_guesses *found, uint64_t tenant, const int32_t *text,
                        int n, int n_ids)
{
    int32_t part[STORE_DEPTH + 1];
    int match = n < STORE_MATCH_MAX ? n : STORE_MATCH_MAX;
    for (; match > 0; match--) {
        memcpy(part, text + n - match, (size_t)match * sizeof *part);
        if (most_frequent(tenant, part, match, n_ids) > 0) break;
    }
    ck_assert_int_eq(found->match, match);
    for (int i = 0; i < found->n; i++) {
        int most = most_frequent(tenant, part, match + i, n_ids);
        ck_assert_int_eq(found->guesses[i].total, occurrences(tenant, part, match + i));
        ck_assert_int_eq(found->guesses[i].count, most);
        part[match + i] = found->guesses[i].token;
        ck_assert_int_eq(occurrences(tenant, part, match + i + 1), most);
    }
    if (match > 0 && found->n < DRAFT_MAX) {
        ck_assert_int_eq(most_frequent(tenant, part, match + found->n, n_ids), 0);
    }
}

/* Counts the tokens after part[n], the largest first; returns how many there are. */
static int count_next(uint64_t tenant, int32_t *part, int n, int n_ids, int *counts)
{
    int n_next = 0;
    for (int32_t id = 0; id < n_ids; id++) {
        part[n] = id;
        int count = occurrences(tenant, part, n + 1), at = n_next;
        if (count == 0) continue;
        for (n_next++; at > 0 && counts[at - 1] < count; at--) {
            counts[at] = counts[at - 1];
        }
        counts[at] = count;
    }
    return n_next;
}

static void check_next(const struct store_next *next, uint64_t tenant, int32_t *part, int n,
                       int n_ids)
{
    int counts[IDS_MOST];
    int n_next = count_next(tenant, part, n, n_ids, counts);
    ck_assert_int_eq(next->n, n_next < STORE_NEXT_MAX ? n_next : STORE_NEXT_MAX);
    ck_assert_int_eq(next->total, occurrences(tenant, part, n));
    for (int i = 0; i < next->n; i++) {
        part[n] = next->tokens[i];
        ck_assert_int_eq(next->counts[i], counts[i]);
        ck_assert_int_eq(occurrences(tenant, part, n + 1), counts[i]);
        for (int k = 0; k < i; k++) {
            ck_assert_int_ne(next->tokens[k], next->tokens[i]);
        }
    }
}

/* A walk that goes on by any of the listed tokens. Returns the places with more than one. */
static int check_walk(const struct store *s, const struct text *end, int n_ids)
{
    int32_t part[STORE_DEPTH + 1];
    struct store_walk walk;
    struct store_next next;
    int n_branches = 0;
    if (!store_walk_begin(s, end->tenant, end->tokens, end->n, 1, &walk)) return 0;
    int n = walk.match;
    memcpy(part, end->tokens + end->n - n, (size_t)n * sizeof *part);
    for (; n < STORE_DEPTH; n++) {
        store_walk_next(&walk, STORE_NEXT_MAX, &next);
        check_next(&next, end->tenant, part, n, n_ids);
        n_branches += next.n > 1;
        if (next.n == 0) return n_branches;
        part[n] = next.tokens[below(next.n)];
        ck_assert(store_walk_step(&walk, part[n]));
    }
    store_walk_next(&walk, STORE_NEXT_MAX, &next);
    ck_assert_int_eq(next.n, 0);
    return n_branches;
}

static void make_text(struct text *text, int n_ids)
{
    *text = (struct text){.n = 1 + below(TEXT_MOST), .tenant = (uint64_t)below(2)};
    for (int i = 0; i < text->n; i++) {
        text->tokens[i] = below(8) ? text->tokens[i > 7 ? i - 7 : 0] : below(n_ids);
    }
}

START_TEST(counts_are_those_of_a_search)
{
    int n_branches = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct store *s;
        struct store_guesses found;
        struct text end;
        int n_ids = 1 + below(round % 2 ? 4 : IDS_MOST);
        CHECK_OK(store_open(&s, SMALL, &err));
        for (int t = 0; t < N_TEXTS; t++) {
            make_text(&texts[t], n_ids);
            store_add(s, texts[t].tenant, texts[t].tokens, texts[t].n);
        }
        for (int i = 0; i < 4; i++) {
            make_text(&end, n_ids);
            if (i) end = texts[i], end.n = 1 + below(end.n);
            store_find(s, end.tenant, end.tokens, end.n, 1, DRAFT_MAX, &found);
            check_found(&found, end.tenant, end.tokens, end.n, n_ids);
            n_branches += check_walk(s, &end, n_ids);
        }
        store_close(s);
    }
    ck_assert_int_gt(n_branches, N_ROUNDS);
}
END_TEST

/* Which tokens are listed changes again and again while their counts grow. */
START_TEST(a_place_lists_its_most_frequent_tokens)
{
    enum { MANY = 40 };
    struct store *s;
    struct store_walk walk;
    struct store_next next;
    static const int32_t here = MANY;
    int counts[MANY] = {0};
    CHECK_OK(store_open(&s, 20000, &err));
    for (int turn = 0; turn < 2000; turn++) {
        int most = turn < 500 ? MANY : 1 + turn % MANY;
        int32_t pair[] = {here, below(most)};
        counts[pair[1]]++;
        store_add(s, 0, pair, 2);
        if (turn % 10) continue;
        ck_assert(store_walk_begin(s, 0, &here, 1, 1, &walk));
        store_walk_next(&walk, STORE_NEXT_MAX, &next);
        ck_assert_int_eq(next.total, turn + 1);
        int n_better = 0, least = next.counts[next.n - 1];
        for (int i = 0; i < MANY; i++) {
            n_better += counts[i] > least;
        }
        ck_assert_int_lt(n_better, STORE_NEXT_MAX); /* all of them are listed */
        for (int i = 0; i < next.n; i++) {
            ck_assert_int_eq(next.counts[i], counts[next.tokens[i]]);
            ck_assert(i == 0 || next.counts[i] <= next.counts[i - 1]);
            n_better -= next.counts[i] > least;
        }
        ck_assert_int_eq(n_better, 0);
        store_walk_next(&walk, 2, &next);
        ck_assert_int_le(next.n, 2);
        ck_assert(!store_walk_step(&walk, MANY + 1));
    }
    store_close(s);
}
END_TEST

/* The token that was so frequent first comes first of those that are equally frequent. */
START_TEST(tokens_that_catch_up_come_second)
{
    static const int32_t turns[] = {5, 6, 6, 5, 5}, first[] = {5, 5, 6, 6, 5};
    struct store *s;
    struct store_guesses found;
    CHECK_OK(store_open(&s, 100, &err));
    for (int i = 0; i < 5; i++) {
        const int32_t pair[] = {1, turns[i]};
        store_add(s, 0, pair, 2);
        store_find(s, 0, pair, 1, 1, 1, &found);
        ck_assert(found.n == 1 && found.guesses[0].token == first[i]);
    }
    store_close(s);
}
END_TEST

/* 1 2 is in both generations, and 7 1 2 in the old one alone. */
START_TEST(the_longer_match_or_else_the_newer_is_found)
{
    static const int32_t old[] = {7, 1, 2, 3}, fresh[] = {1, 2, 4};
    struct store *s;
    struct store_guesses found;
    CHECK_OK(store_open(&s, 10, &err));
    store_add(s, 0, old, 4);
    store_add(s, 0, fresh, 3);
    ck_assert_int_eq(store_length(s), 7);
    store_find(s, 0, fresh, 2, 1, 1, &found);
    ck_assert(found.match == 2 && found.n == 1 && found.guesses[0].token == 4);
    store_find(s, 0, old, 3, 1, 1, &found);
    ck_assert(found.match == 3 && found.n == 1 && found.guesses[0].token == 3);
    store_close(s);
}
END_TEST

START_TEST(tenants_and_texts_are_kept_apart)
{
    static const int32_t first[] = {1, 2, 3}, second[] = {4, 5, 6};
    struct store *s;
    struct store_guesses found;
    CHECK_OK(store_open(&s, 100, &err));
    store_add(s, 1, first, 3);
    store_add(s, 1, second, 3);
    store_find(s, 1, first, 2, 1, DRAFT_MAX, &found);
    ck_assert_int_eq(found.n, 1); /* 3, and then the text ends */
    ck_assert_int_eq(found.guesses[0].token, 3);
    store_find(s, 2, first, 2, 1, DRAFT_MAX, &found);
    ck_assert_int_eq(found.match, 0);
    ck_assert_int_eq(found.n, 0);
    store_find(s, 1, first, 2, 3, DRAFT_MAX, &found); /* a longer match is asked for */
    ck_assert_int_eq(found.n, 0);
    store_close(s);
}
END_TEST

START_TEST(the_last_half_is_kept)
{
    struct store *s;
    struct store_guesses found;
    int32_t text[10];
    CHECK_OK(store_open(&s, 200, &err)); /* ten texts of ten tokens in each generation */
    for (int t = 0; t < 1000; t++) {
        for (int i = 0; i < 10; i++) {
            text[i] = 10 * t + i;
        }
        store_add(s, 0, text, 10);
        ck_assert_int_le(store_length(s), 200);
        for (int before = 0; before < 10 && before <= t; before++) {
            int32_t token = 10 * (t - before);
            store_find(s, 0, &token, 1, 1, DRAFT_MAX, &found);
            ck_assert_int_eq(found.n, 9);
        }
        int32_t token = 10 * (t - 20);
        store_find(s, 0, &token, 1, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, 0);
    }
    store_close(s);
}
END_TEST

START_TEST(a_new_tenant_and_the_end_of_a_long_text_find_room)
{
    struct store *s;
    struct store_guesses found;
    static int32_t text[1000];
    CHECK_OK(store_open(&s, 1000, &err));
    for (int i = 0; i < 1000; i++) {
        text[i] = i;
    }
    store_add(s, 5, text, 1000);
    store_find(s, 5, text + 498, 1, 1, DRAFT_MAX, &found);
    ck_assert_int_eq(found.n, 0);
    store_find(s, 5, text + 500, 1, 1, DRAFT_MAX, &found);
    ck_assert_int_eq(found.n, DRAFT_MAX);
    for (uint64_t tenant = 0; tenant < 10 * STORE_TENANTS_MAX; tenant++) {
        store_add(s, tenant, text, 2);
        store_find(s, tenant, text, 1, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, 1);
    }
    struct store *none;
    CHECK_ERR(store_open(&none, 1, &err), ERR_ARGUMENT, "2 to");
    store_close(s);
}
END_TEST

/* ---- generations ---- */

enum { ROOM = 150, KEPT_MAX = ROOM };

/* Texts of a generation, in their order. */
struct generation_texts {
    struct text texts[KEPT_MAX];
    int n, n_tokens;
};

/* As store_add chooses the generation. Returns whether a new one has begun. */
static bool keep(struct generation_texts *fresh, struct generation_texts *old,
                 const struct text *text)
{
    bool begins = ROOM - fresh->n_tokens < text->n;
    if (begins) {
        *old = *fresh;
        fresh->n = fresh->n_tokens = 0;
    }
    fresh->texts[fresh->n++] = *text;
    fresh->n_tokens += text->n;
    return begins;
}

static void add_all(struct store *s, const struct generation_texts *kept)
{
    for (int i = 0; i < kept->n; i++) {
        store_add(s, kept->texts[i].tenant, kept->texts[i].tokens, kept->texts[i].n);
    }
}

static void expect_equal(const struct store *s, const struct store *other, const struct text *end)
{
    struct store_guesses found, expected;
    memset(&found, 0, sizeof found);
    memset(&expected, 0, sizeof expected);
    store_find(s, end->tenant, end->tokens, end->n, 1, DRAFT_MAX, &found);
    store_find(other, end->tenant, end->tokens, end->n, 1, DRAFT_MAX, &expected);
    ck_assert_int_eq(found.match, expected.match);
    ck_assert_int_eq(found.n, expected.n);
    for (int i = 0; i < found.n; i++) {
        ck_assert_int_eq(found.guesses[i].token, expected.guesses[i].token);
        ck_assert_int_eq(found.guesses[i].count, expected.guesses[i].count);
        ck_assert_int_eq(found.guesses[i].total, expected.guesses[i].total);
    }
}

/* A store that has forgotten many generations knows what a new one does that gets the texts of the
 * last two: long generations and short ones, which end with a text that needs the whole room. */
START_TEST(nothing_is_known_of_former_generations)
{
    static struct generation_texts fresh, old;
    struct store *s, *again;
    int n_generations = 0;
    CHECK_OK(store_open(&s, 2 * ROOM, &err));
    fresh.n = fresh.n_tokens = old.n = old.n_tokens = 0;
    for (int turn = 0; turn < 4000; turn++) {
        struct text text, end;
        int kind = turn / 200 % 4;
        make_text(&text, 6);
        if (kind == 1) text.n = 1 + text.n % 4;
        if (kind == 2 && turn % 2) text.n = TEXT_MOST;
        n_generations += keep(&fresh, &old, &text);
        store_add(s, text.tenant, text.tokens, text.n);
        if (turn % 7) continue;
        CHECK_OK(store_open(&again, 2 * ROOM, &err));
        add_all(again, &old);
        add_all(again, &fresh);
        ck_assert_int_eq(store_length(s), store_length(again));
        for (int i = 0; i < 10; i++) {
            make_text(&end, 6);
            expect_equal(s, again, &end);
        }
        store_close(again);
    }
    ck_assert_int_gt(n_generations, 500);
    store_close(s);
}
END_TEST

/* Clearing or sweeping the table of so large a store at once would take longer. A table that is not
 * swept by and by has to be swept when the numbers of its epochs are used up: at its seventh new
 * epoch, and then at every sixth. The two tables begin new epochs by turns, so such pauses come
 * back after PERIOD turns. The shortest of the turns that are so far apart is what each takes
 * without disturbances. */
START_TEST(a_new_generation_takes_no_pause)
{
    enum { LARGE = 1 << 23, PERIOD = 12, PERIODS = 6, TURNS = PERIODS * PERIOD, PAUSE_US = 1000 };
    struct store *s;
    static const int32_t text[] = {1, 2};
    int64_t shortest_us[PERIOD];
    int length = 0, n_turns = 0;
    memset(shortest_us, 0x7f, sizeof shortest_us);
    CHECK_OK(store_open(&s, LARGE, &err));
    for (uint64_t tenant = 0; tenant < (TURNS + 1) * STORE_TENANTS_MAX; tenant++) {
        int64_t start_us = clock_now_us();
        store_add(s, tenant, text, 2);
        int64_t us = clock_now_us() - start_us;
        length = store_length(s);
        if (tenant == 0 || tenant % STORE_TENANTS_MAX > 0) continue;
        int64_t *shortest = &shortest_us[n_turns++ % PERIOD];
        ck_assert_int_eq(length, 2 * (STORE_TENANTS_MAX + 1));
        if (n_turns > PERIOD && us < *shortest) *shortest = us;
    }
    ck_assert_int_eq(length, 4 * STORE_TENANTS_MAX);
    ck_assert_int_eq(n_turns, TURNS);
    for (int i = 0; i < PERIOD; i++) {
        ck_assert_int_le(shortest_us[i], PAUSE_US);
    }
    store_close(s);
}
END_TEST

/* Microseconds to add a text. 0: one token again and again; 1: each token once; 2: words that come
 * again; 3: a coin. */
static int64_t add_long(int kind)
{
    static int32_t text[LONG];
    struct store *s;
    CHECK_OK(store_open(&s, 2 * LONG, &err));
    for (int i = 0; i < LONG; i++) {
        int word = below(1000) * below(1000) / 1000;
        text[i] = kind == 0 ? 7 : kind == 1 ? i : kind == 2 ? word : below(2);
    }
    int64_t start = clock_now_us();
    for (int turn = 0; turn < 4; turn++) { /* both generations are full, and begun again */
        store_add(s, 0, text, LONG);
    }
    int64_t us = clock_now_us() - start;
    ck_assert_int_eq(store_length(s), 2 * LONG);
    ck_assert_uint_le(store_bytes(s), (size_t)BYTES_MOST * 2 * LONG);
    store_close(s);
    return us;
}

START_TEST(long_texts_stay_small_and_fast)
{
    int64_t other_us = add_long(1);
    for (int kind = 0; kind < 4; kind++) {
        ck_assert_int_le(add_long(kind), SLOWEST * other_us);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tests = tcase_create("store");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, counts_are_those_of_a_search);
    tcase_add_test(tests, a_place_lists_its_most_frequent_tokens);
    tcase_add_test(tests, tenants_and_texts_are_kept_apart);
    tcase_add_test(tests, tokens_that_catch_up_come_second);
    tcase_add_test(tests, the_longer_match_or_else_the_newer_is_found);
    tcase_add_test(tests, the_last_half_is_kept);
    tcase_add_test(tests, a_new_tenant_and_the_end_of_a_long_text_find_room);
    tcase_add_test(tests, nothing_is_known_of_former_generations);
    tcase_add_test(tests, a_new_generation_takes_no_pause);
    tcase_add_test(tests, long_texts_stay_small_and_fast);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
