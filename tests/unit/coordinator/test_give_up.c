/* ctest: labels=quick libs=coordinator timeout=60 */
/* Where all layers have a window, a table gives back the blocks that no later row sees. */
#include <stdlib.h>

#include "coordinator/kv/prefix_cache.h"
#include "tests/support/check_util.h"

enum { TOKENS = 16, N_BLOCKS = 40, N_TEXTS = 5, WINDOW = 40, LONG = N_BLOCKS * TOKENS };

static struct block_pool pool;
static struct block_table tables[N_TEXTS];
static int32_t text[N_TEXTS][LONG];
static struct error err;

static void setup(void)
{
    CHECK_OK(block_pool_open(&pool, N_BLOCKS, TOKENS, &err));
    pool.window = WINDOW;
    for (int i = 0; i < N_TEXTS; i++) {
        CHECK_OK(block_table_open(&tables[i], N_BLOCKS, &err));
        for (int t = 0; t < LONG; t++) {
            text[i][t] = t + 1000 * i;
        }
    }
}

static void teardown(void)
{
    for (int i = 0; i < N_TEXTS; i++) {
        block_table_close(&tables[i]);
    }
    block_pool_close(&pool);
}

/* Positions up to `end` of a text have been written and committed. */
static void write_text(int i, int end)
{
    CHECK_OK(block_table_reach(&tables[i], &pool, end, &err));
    prefix_cache_publish(&tables[i], &pool, text[i], end);
}

/* The row at 100 sees from position 61 on, which is in block 3. */
START_TEST(blocks_before_the_window_are_given_back)
{
    write_text(0, 100);
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS - 7);
    block_table_give_up(&tables[0], &pool, 100);
    ck_assert_int_eq(tables[0].n, 7);
    ck_assert_int_eq(tables[0].n_given_up, 3);
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS - 4);
    block_table_give_up(&tables[0], &pool, 102); /* from position 63 on: still block 3 */
    ck_assert_int_eq(tables[0].n_given_up, 3);
    block_table_give_up(&tables[0], &pool, 103);
    ck_assert_int_eq(tables[0].n_given_up, 4);
    block_table_release(&tables[0], &pool);
    ck_assert_int_eq(tables[0].n_given_up, 0);
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS);
}
END_TEST

START_TEST(without_a_window_or_before_its_edge_no_block_is_given_up)
{
    write_text(0, 100);
    block_table_give_up(&tables[0], &pool, WINDOW + TOKENS - 2);
    ck_assert_int_eq(tables[0].n_given_up, 0);
    block_table_give_up(&tables[0], &pool, -1);
    ck_assert_int_eq(tables[0].n_given_up, 0);
    pool.window = 0;
    block_table_give_up(&tables[0], &pool, 100);
    ck_assert_int_eq(tables[0].n_given_up, 0);
}
END_TEST

/* Blocks that are not published yet stay: nobody else could find them. */
START_TEST(blocks_that_are_not_published_stay)
{
    CHECK_OK(block_table_reach(&tables[0], &pool, 200, &err));
    prefix_cache_publish(&tables[0], &pool, text[0], 40);
    block_table_give_up(&tables[0], &pool, 200);
    ck_assert_int_eq(tables[0].n_given_up, 2);
}
END_TEST

/* It goes through a pool that holds an eighth of it at once. */
START_TEST(a_text_may_be_longer_than_the_pool)
{
    int32_t *blocks = tables[0].blocks;
    ck_assert_int_eq(tables[0].capacity, N_BLOCKS);
    block_pool_close(&pool);
    CHECK_OK(block_pool_open(&pool, 5, TOKENS, &err));
    pool.window = WINDOW;
    for (int end = 1; end <= LONG; end++) {
        write_text(0, end);
        block_table_give_up(&tables[0], &pool, end);
        for (int i = tables[0].n_given_up; i < tables[0].n; i++) {
            for (int k = i + 1; k < tables[0].n; k++) {
                ck_assert_int_ne(blocks[i], blocks[k]);
            }
        }
    }
}
END_TEST

/* A text that begins alike finds what was given up, and holds it until its own rows are past it. */
START_TEST(blocks_that_were_given_up_are_found_until_they_are_forgotten)
{
    int32_t first[3];
    write_text(0, 100);
    memcpy(first, tables[0].blocks, sizeof first);
    block_table_give_up(&tables[0], &pool, 100);
    ck_assert_int_eq(prefix_cache_take(&tables[1], &pool, text[0], 100), 96);
    ck_assert_mem_eq(tables[1].blocks, first, sizeof first);
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS - 7);
    block_table_give_up(&tables[1], &pool, 96);
    ck_assert_int_eq(tables[1].n_given_up, 3);
    /* The three that nobody holds any more are taken for another text. */
    CHECK_OK(block_table_reach(&tables[2], &pool, block_pool_room(&pool) * TOKENS, &err));
    ck_assert_int_eq(block_pool_room(&pool), 0);
    ck_assert_int_eq(prefix_cache_take(&tables[3], &pool, text[0], 100), 0);
    block_table_release(&tables[0], &pool);
    block_table_release(&tables[1], &pool);
    ck_assert_int_eq(block_pool_room(&pool), 4);
}
END_TEST

/* Every block is free, cached or held as often as tables say. */
static void expect_counted(void)
{
    int n_refs[N_BLOCKS] = {0}, n_held = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        for (int b = tables[i].n_given_up; b < tables[i].n; b++) {
            n_refs[tables[i].blocks[b]]++;
        }
    }
    for (int b = 0; b < N_BLOCKS; b++) {
        n_held += n_refs[b] > 0;
        if (n_refs[b] > 0) ck_assert_int_eq(pool.blocks[b].n_refs, n_refs[b]);
    }
    ck_assert_int_eq(block_pool_room(&pool), N_BLOCKS - n_held);
}

/* Texts of which some begin alike come, grow and go. */
START_TEST(texts_that_come_and_go_lose_no_block)
{
    static int n_kv[N_TEXTS];
    srand(11);
    for (int turn = 0; turn < 20000; turn++) {
        int i = rand() % N_TEXTS;
        struct block_table *table = &tables[i];
        if (rand() % 8 == 0) {
            block_table_release(table, &pool);
            memmove(text[i], text[rand() % N_TEXTS], (size_t)(rand() % 200) * sizeof text[i][0]);
            n_kv[i] = prefix_cache_take(table, &pool, text[i], 200);
        }
        int end = n_kv[i] + rand() % 40;
        if (end > LONG || block_table_reach(table, &pool, end, &err)) continue;
        n_kv[i] = end;
        prefix_cache_publish(table, &pool, text[i], end);
        block_table_give_up(table, &pool, end);
        ck_assert_int_le(table->n_given_up * TOKENS, end > WINDOW ? end - WINDOW + 1 : 0);
        if (turn % 50 == 0) expect_counted();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("give_up");
    TCase *tcase = tcase_create("blocks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, blocks_before_the_window_are_given_back);
    tcase_add_test(tcase, without_a_window_or_before_its_edge_no_block_is_given_up);
    tcase_add_test(tcase, blocks_that_are_not_published_stay);
    tcase_add_test(tcase, a_text_may_be_longer_than_the_pool);
    tcase_add_test(tcase, blocks_that_were_given_up_are_found_until_they_are_forgotten);
    tcase_add_test(tcase, texts_that_come_and_go_lose_no_block);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
