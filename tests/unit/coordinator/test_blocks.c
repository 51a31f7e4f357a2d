/* ctest: labels=quick libs=coordinator timeout=60 */
/* The pool of KV blocks: every block belongs to one text at a time, all of them can be had, and a
 * text's blocks are neighbours as long as there is room. */
#include <stdbool.h>
#include <stdlib.h>

#include "coordinator/kv/blocks.h"
#include "tests/support/check_util.h"

enum { TOKENS = 16, N_BLOCKS = 150, N_TEXTS = 7 }; /* the last group is not whole */

static struct block_pool pool;
static struct block_table tables[N_TEXTS];
static struct error err;

static void setup(void)
{
    ck_assert_int_eq(block_pool_open(&pool, N_BLOCKS, TOKENS, &err), 0);
    for (int i = 0; i < N_TEXTS; i++) {
        ck_assert_int_eq(block_table_open(&tables[i], N_BLOCKS, &err), 0);
    }
}

static void teardown(void)
{
    for (int i = 0; i < N_TEXTS; i++) {
        block_table_close(&tables[i]);
    }
    block_pool_close(&pool);
}

static void expect_each_once(void)
{
    bool seen[N_BLOCKS] = {false};
    int n = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        for (int b = 0; b < tables[i].n; b++, n++) {
            int block = tables[i].blocks[b];
            ck_assert_msg(block >= 0 && block < N_BLOCKS && !seen[block], "block %d", block);
            seen[block] = true;
        }
    }
    ck_assert_int_eq(n + pool.n_free, N_BLOCKS);
    ck_assert_int_eq(block_pool_room(&pool), pool.n_free);
}

static int count_breaks(const struct block_table *table)
{
    int n = 0;
    for (int b = 1; b < table->n; b++) {
        n += table->blocks[b] != table->blocks[b - 1] + 1;
    }
    return n;
}

START_TEST(one_text_has_the_whole_pool_in_order)
{
    for (int again = 0; again < 3; again++) {
        ck_assert_int_eq(block_table_reach(&tables[0], &pool, N_BLOCKS * TOKENS, &err), 0);
        ck_assert_int_eq(tables[0].n, N_BLOCKS);
        ck_assert_int_eq(tables[0].blocks[0], 0);
        ck_assert_int_eq(count_breaks(&tables[0]), 0);
        ck_assert_int_eq(pool.n_free, 0);
        ck_assert_int_eq(block_table_reach(&tables[1], &pool, 1, &err), ERR_EXHAUSTED);
        block_table_release(&tables[0], &pool);
        ck_assert_int_eq(pool.n_free, N_BLOCKS);
    }
}
END_TEST

/* Texts that grow in turn, one block at a time, keep groups of neighbours. */
START_TEST(texts_side_by_side_do_not_interleave)
{
    enum { TEXTS = 3, LONG = 2 * BLOCK_GROUP };
    for (int n = 1; n <= LONG; n++) {
        for (int i = 0; i < TEXTS; i++) {
            ck_assert_int_eq(block_table_reach(&tables[i], &pool, n * TOKENS, &err), 0);
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        ck_assert_int_le(count_breaks(&tables[i]), 1);
        for (int b = 0; b < LONG; b++) {
            int first = tables[i].blocks[b / BLOCK_GROUP * BLOCK_GROUP];
            ck_assert_int_eq(tables[i].blocks[b], first + b % BLOCK_GROUP);
        }
    }
    expect_each_once();
}
END_TEST

START_TEST(every_block_can_be_had_when_no_group_is_whole)
{
    for (int i = 0; i < N_TEXTS; i++) {
        ck_assert_int_eq(block_table_reach(&tables[i], &pool, TOKENS, &err), 0);
    }
    int n = pool.n_free + 1;
    ck_assert_int_eq(block_table_reach(&tables[0], &pool, n * TOKENS, &err), 0);
    ck_assert_int_eq(pool.n_free, 0);
    expect_each_once();
    ck_assert_int_eq(block_table_reach(&tables[1], &pool, 2 * TOKENS, &err), ERR_EXHAUSTED);
    ck_assert_int_eq(tables[1].n, 1);
}
END_TEST

START_TEST(blocks_that_a_table_lacks_are_counted)
{
    static const int cases[][2] = {{0, 0}, {1, 1}, {TOKENS, 1}, {TOKENS + 1, 2}, {5 * TOKENS, 5}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        ck_assert_int_eq(block_table_lacks(&tables[0], &pool, cases[i][0]), cases[i][1]);
    }
    ck_assert_int_eq(block_table_reach(&tables[0], &pool, 2 * TOKENS, &err), 0);
    ck_assert_int_eq(block_table_lacks(&tables[0], &pool, TOKENS), 0);
    ck_assert_int_eq(block_table_lacks(&tables[0], &pool, 5 * TOKENS), 3);
    CHECK_ERR(block_table_reach(&tables[0], &pool, (N_BLOCKS + 1) * TOKENS, &err), ERR_EXHAUSTED,
              "149 KV blocks are wanted up to position 2416, 148 can be had");
    ck_assert_int_eq(tables[0].n, 2);
}
END_TEST

START_TEST(texts_that_come_and_go_share_the_pool)
{
    srand(7);
    for (int turn = 0; turn < 20000; turn++) {
        struct block_table *table = &tables[rand() % N_TEXTS];
        if (rand() % 4 == 0) {
            block_table_release(table, &pool);
            continue;
        }
        int want = table->n + rand() % 20, free_before = pool.n_free, had = table->n;
        int rc = block_table_reach(table, &pool, want * TOKENS, &err);
        bool fits = want - had <= free_before;
        ck_assert_int_eq(rc, fits ? 0 : ERR_EXHAUSTED);
        ck_assert_int_eq(table->n, fits ? want : had); /* all of them or none */
        if (turn % 50 == 0) expect_each_once();
    }
    block_pool_reset(&pool);
    ck_assert_int_eq(pool.n_free, N_BLOCKS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tests = tcase_create("blocks");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, one_text_has_the_whole_pool_in_order);
    tcase_add_test(tests, texts_side_by_side_do_not_interleave);
    tcase_add_test(tests, every_block_can_be_had_when_no_group_is_whole);
    tcase_add_test(tests, blocks_that_a_table_lacks_are_counted);
    tcase_add_test(tests, texts_that_come_and_go_share_the_pool);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
