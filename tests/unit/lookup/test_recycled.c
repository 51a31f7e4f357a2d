/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* Lists of the tokens that came after tokens: their order, that their room is bounded, and that
 * tenants never see each other's. */
#include <stdbool.h>
#include <string.h>

#include "lookup/recycled.h"
#include "tests/support/check_util.h"

enum { VOCAB = 1000, MANY = 64, RANDOM_ADDITIONS = 20000, MODEL_TOKENS = 40, FILLED = 100000 };

static struct error err;

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

static struct recycled *open_lists(int n_lists)
{
    struct recycled *r;
    CHECK_OK(recycled_open(&r, n_lists, &err));
    return r;
}

static void add(struct recycled *r, int32_t token, int32_t best)
{
    recycled_add(r, 1, token, best, &best, 1);
}

static void check_list(const struct recycled *r, int32_t token, const int32_t *expected, int n)
{
    const struct recycled_list *list = recycled_find(r, 1, token);
    ck_assert(list);
    ck_assert_int_eq(list->n, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(list->successors[i], expected[i]);
    }
}

START_TEST(new_tokens_go_to_the_front)
{
    struct recycled *r = open_lists(MANY);
    ck_assert(!recycled_find(r, 1, 5) && !recycled_find(r, 0, 0));
    add(r, 5, 10);
    add(r, 5, 11);
    check_list(r, 5, (const int32_t[]){11, 10}, 2);
    add(r, 5, 10);
    check_list(r, 5, (const int32_t[]){10, 11}, 2);
    recycled_add(r, 1, 5, 12, (const int32_t[]){12, 11, 13}, 3);
    check_list(r, 5, (const int32_t[]){12, 11, 13, 10}, 4);
    for (int i = 0; i < 5; i++) {
        add(r, 5, 20 + i);
    }
    check_list(r, 5, (const int32_t[]){24, 23, 22, 21, 20, 12, 11, 13}, RECYCLED_SUCCESSORS);
    add(r, 6, 5);
    check_list(r, 6, (const int32_t[]){5}, 1);
    recycled_close(r);
}
END_TEST

START_TEST(a_list_knows_how_often_it_was_right)
{
    struct recycled *r = open_lists(MANY);
    add(r, 5, 10);
    ck_assert_int_eq(recycled_find(r, 1, 5)->n_tested, 0);
    add(r, 5, 10);
    add(r, 5, 10);
    add(r, 5, 11); /* wrong, and so is the next one */
    add(r, 5, 10);
    ck_assert_int_eq(recycled_find(r, 1, 5)->n_tested, 4);
    ck_assert_int_eq(recycled_count_right(recycled_find(r, 1, 5)), 2);
    recycled_add(r, 1, 5, 10, (const int32_t[]){11, 10}, 2); /* right, and no more the best */
    add(r, 5, 10);
    ck_assert_int_eq(recycled_find(r, 1, 5)->n_tested, 6);
    ck_assert_int_eq(recycled_count_right(recycled_find(r, 1, 5)), 3);
    for (int i = 0; i < 100; i++) {
        add(r, 5, 10);
    }
    ck_assert_int_eq(recycled_find(r, 1, 5)->n_tested, RECYCLED_TESTS);
    ck_assert_int_eq(recycled_count_right(recycled_find(r, 1, 5)), RECYCLED_TESTS);
    recycled_close(r);
}
END_TEST

START_TEST(chains_follow_the_first_tokens)
{
    const struct recycled_list *lists[6];
    struct recycled *r = open_lists(MANY);
    add(r, 1, 2);
    add(r, 2, 9);
    add(r, 2, 3);
    add(r, 3, 800);
    ck_assert_int_eq(recycled_chain(r, 1, 1, VOCAB, lists, 6), 3);
    ck_assert(lists[0]->successors[0] == 2 && lists[2]->successors[0] == 800);
    ck_assert(lists[1]->successors[0] == 3 && lists[1]->successors[1] == 9);
    ck_assert_int_eq(recycled_chain(r, 1, 1, VOCAB, lists, 2), 2);
    ck_assert_int_eq(recycled_chain(r, 1, 1, 800, lists, 6), 2); /* the target lacks the id */
    ck_assert_int_eq(recycled_chain(r, 1, 7, VOCAB, lists, 6), 0);
    add(r, 3, 1); /* a loop */
    ck_assert_int_eq(recycled_chain(r, 1, 1, VOCAB, lists, 6), 6);
    ck_assert(lists[3] == lists[0] && lists[4] == lists[1] && lists[5] == lists[2]);
    recycled_close(r);
}
END_TEST

START_TEST(tenants_do_not_see_each_other)
{
    static const int32_t mine[] = {10}, theirs[] = {11};
    const struct recycled_list *list;
    struct recycled *r = open_lists(MANY);
    recycled_add(r, 1, 5, 10, mine, 1);
    ck_assert(!recycled_find(r, 2, 5) && !recycled_find(r, 0, 5) && !recycled_find(r, 1, 6));
    ck_assert_int_eq(recycled_chain(r, 2, 5, VOCAB, &list, 1), 0);
    recycled_add(r, 2, 5, 11, theirs, 1);
    ck_assert_int_eq(recycled_find(r, 1, 5)->successors[0], 10);
    ck_assert_int_eq(recycled_find(r, 2, 5)->successors[0], 11);
    ck_assert(recycled_find(r, 1, 5)->n == 1 && recycled_find(r, 1, 5)->n_tested == 0);
    recycled_close(r);
}
END_TEST

/* Tokens that two tenants with neighbouring numbers share would collide in a hash of their sum. */
START_TEST(tenants_with_equal_tokens_keep_their_own_lists)
{
    int n_seen = 0;
    struct recycled *r = open_lists(1 << 14);
    for (uint64_t tenant = 0; tenant < 64; tenant++) {
        for (int32_t token = 0; token < 64; token++) {
            int32_t best = (int32_t)tenant * 64 + token;
            recycled_add(r, tenant, token, best, &best, 1);
        }
    }
    for (uint64_t tenant = 0; tenant < 64; tenant++) {
        for (int32_t token = 0; token < 64; token++) {
            const struct recycled_list *list = recycled_find(r, tenant, token);
            if (!list) continue; /* its set was full */
            n_seen++;
            ck_assert(list->n == 1 && list->successors[0] == (int32_t)tenant * 64 + token);
        }
    }
    ck_assert_int_gt(n_seen, 64 * 64 * 98 / 100); /* the room is four times as large */
    recycled_close(r);
}
END_TEST

/* In one set the list that was not added to for the longest time gives its place. */
START_TEST(the_room_is_bounded)
{
    struct recycled *r = open_lists(RECYCLED_WAYS);
    size_t bytes = recycled_bytes(r);
    for (int i = 0; i < RECYCLED_WAYS; i++) {
        add(r, i, 100 + i);
    }
    add(r, 0, 50);
    add(r, 9, 51);
    ck_assert(!recycled_find(r, 1, 1));
    check_list(r, 0, (const int32_t[]){50, 100}, 2);
    check_list(r, 9, (const int32_t[]){51}, 1);
    ck_assert_int_eq(recycled_find(r, 1, 9)->n_tested, 0);
    for (int i = 0; i < FILLED; i++) {
        add(r, below(VOCAB), below(VOCAB));
    }
    int n = 0;
    for (int i = 0; i < VOCAB; i++) {
        n += recycled_find(r, 1, i) != NULL;
    }
    ck_assert_int_eq(n, RECYCLED_WAYS);
    ck_assert_uint_eq(recycled_bytes(r), bytes);
    recycled_close(r);
    r = open_lists(1 << 10);
    ck_assert_uint_le(recycled_bytes(r), 64 << 10);
    recycled_close(r);
}
END_TEST

START_TEST(ids_that_are_no_tokens_are_ignored)
{
    static const int32_t hostile[] = {-1, INT32_MIN, 7, 7, -1, INT32_MAX, 7};
    const struct recycled_list *list;
    struct recycled *r = open_lists(MANY);
    recycled_add(r, 1, 5, -1, hostile, 7);
    check_list(r, 5, (const int32_t[]){7, INT32_MAX}, 2);
    recycled_add(r, 1, 6, 7, hostile, 2);
    recycled_add(r, 1, 6, 7, hostile, 0);
    recycled_add(r, 1, -1, 7, hostile + 2, 1);
    recycled_add(r, 1, INT32_MIN, 7, hostile + 2, 1);
    ck_assert(!recycled_find(r, 1, 6) && !recycled_find(r, 1, -1));
    ck_assert(!recycled_find(r, 1, INT32_MIN));
    recycled_add(r, 1, INT32_MAX, 7, hostile + 5, 1);
    ck_assert_int_eq(recycled_chain(r, 1, INT32_MAX, VOCAB, &list, 1), 0);
    recycled_close(r);
}
END_TEST

/* Against lists that are kept in the plainest way. */
START_TEST(lists_equal_those_that_are_kept_plainly)
{
    static int32_t model[MODEL_TOKENS][RECYCLED_SUCCESSORS * 4];
    static int n_model[MODEL_TOKENS];
    struct recycled *r = open_lists(1 << 12);
    for (int i = 0; i < RANDOM_ADDITIONS; i++) {
        int32_t token = below(MODEL_TOKENS), best[3], list[RECYCLED_SUCCESSORS * 4];
        int n = 1 + below(3), n_list = 0;
        for (int b = 0; b < n; b++) {
            best[b] = below(15) - 1;
        }
        recycled_add(r, 1, token, best[0], best, n);
        int32_t *old = model[token];
        for (int b = 0; b < n + n_model[token]; b++) {
            int32_t id = b < n ? best[b] : old[b - n];
            bool is_new = id >= 0 && n_list < RECYCLED_SUCCESSORS;
            for (int l = 0; l < n_list; l++) {
                is_new = is_new && list[l] != id;
            }
            if (is_new) list[n_list++] = id;
        }
        memcpy(old, list, (size_t)n_list * sizeof *list);
        n_model[token] = n_list;
        if (n_list) check_list(r, token, old, n_list);
    }
    recycled_close(r);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    struct recycled *r;
    CHECK_ERR(recycled_open(&r, RECYCLED_LISTS_MIN - 1, &err), ERR_ARGUMENT, "4 to");
    CHECK_ERR(recycled_open(&r, RECYCLED_LISTS_MAX + 1, &err), ERR_ARGUMENT, "16777216");
    ck_assert(!r);
    recycled_close(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recycled");
    TCase *tcase = tcase_create("lists");
    tcase_add_test(tcase, new_tokens_go_to_the_front);
    tcase_add_test(tcase, a_list_knows_how_often_it_was_right);
    tcase_add_test(tcase, chains_follow_the_first_tokens);
    tcase_add_test(tcase, tenants_do_not_see_each_other);
    tcase_add_test(tcase, tenants_with_equal_tokens_keep_their_own_lists);
    tcase_add_test(tcase, the_room_is_bounded);
    tcase_add_test(tcase, ids_that_are_no_tokens_are_ignored);
    tcase_add_test(tcase, lists_equal_those_that_are_kept_plainly);
    tcase_add_test(tcase, impossible_sizes_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
