/* ctest: labels=quick libs=coordinator timeout=60 */
/* Blocks for the paths of a tree: an accepted path's tail becomes the end of the table, everything
 * else goes back, and no block is ever in two places. */
#include <stdbool.h>
#include <stdlib.h>

#include "coordinator/kv/block_tails.h"
#include "tests/support/check_util.h"

enum { TOKENS = 16, N_BLOCKS = 90 };

static struct block_pool pool;
static struct block_table table;
static struct block_tails tails;
static struct tree_layout tree;
static struct error err;

static void setup(void)
{
    CHECK_OK(block_pool_open(&pool, N_BLOCKS, TOKENS, &err));
    CHECK_OK(block_table_open(&table, N_BLOCKS, &err));
    tails = (struct block_tails){0};
}

static void teardown(void)
{
    block_table_close(&table);
    block_pool_close(&pool);
}

static void expect_each_once(void)
{
    bool seen[N_BLOCKS] = {false};
    const int32_t *const lists[] = {table.blocks, tails.blocks};
    const int counts[] = {table.n, tails.n};
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < counts[l]; i++) {
            int block = lists[l][i];
            ck_assert_msg(block >= 0 && block < N_BLOCKS && !seen[block], "block %d", block);
            seen[block] = true;
        }
    }
    ck_assert_int_eq(table.n + tails.n + pool.n_free, N_BLOCKS);
}

/* Path 0 has five guesses, path 1 three of which the first is shared, path 2 one. */
static const int32_t parents[] = {-1, 0, 1, 2, 3, 0, 5, -1};

static void reserve_at(int first)
{
    CHECK_OK(tree_layout_init(&tree, parents, 8, &err));
    CHECK_OK(block_table_reach(&table, &pool, first + tree.leaf_depth[0] + 1, &err));
    CHECK_OK(block_tails_reserve(&tails, &pool, &table, &tree, first, &err));
    expect_each_once();
}

START_TEST(an_accepted_tail_enters_the_table)
{
    reserve_at(30); /* path 0 reaches position 34, path 1 position 32, path 2 position 30 */
    ck_assert_int_eq(table.n, 3);
    ck_assert_int_eq(tails.n, 3);
    ck_assert_int_eq(tails.first_block, 1);
    ck_assert_int_eq(tails.ends[1], 2);
    ck_assert_int_eq(tails.ends[2], 3);
    int32_t first = table.blocks[0], last = table.blocks[2], tail[3];
    for (int i = 0; i < 3; i++) {
        tail[i] = tails.blocks[i];
    }
    ck_assert_int_eq(block_tails_accept(&tails, &table, &pool, 1), 1);
    ck_assert_int_eq(table.n, 3);
    ck_assert_int_eq(table.blocks[0], first);
    ck_assert_int_eq(table.blocks[1], tail[0]);
    ck_assert_int_eq(table.blocks[2], tail[1]);
    ck_assert_int_eq(tails.n, 0);
    expect_each_once();
    ck_assert(pool.free[last / BLOCK_GROUP] >> last % BLOCK_GROUP & 1);
    ck_assert(pool.free[tail[2] / BLOCK_GROUP] >> tail[2] % BLOCK_GROUP & 1);
}
END_TEST

START_TEST(path_0_leaves_the_table_as_it_is)
{
    reserve_at(30);
    int32_t before[3] = {table.blocks[0], table.blocks[1], table.blocks[2]};
    ck_assert_int_eq(block_tails_accept(&tails, &table, &pool, 0), 3);
    ck_assert_mem_eq(before, table.blocks, sizeof before);
    expect_each_once();
    reserve_at(30);
    block_tails_release(&tails, &pool);
    ck_assert_mem_eq(before, table.blocks, sizeof before);
    ck_assert_int_eq(tails.n, 0);
    expect_each_once();
}
END_TEST

/* Path 1 is longer than what the table reaches for path 0. */
START_TEST(a_longer_tail_makes_the_table_grow)
{
    static const int32_t short_first[] = {-1, -1, 1, 2};
    CHECK_OK(tree_layout_init(&tree, short_first, 4, &err));
    CHECK_OK(block_table_reach(&table, &pool, 32, &err));
    CHECK_OK(block_tails_reserve(&tails, &pool, &table, &tree, 31, &err));
    ck_assert_int_eq(tails.n, 2);
    int32_t tail[2] = {tails.blocks[0], tails.blocks[1]};
    ck_assert_int_eq(block_tails_accept(&tails, &table, &pool, 1), 1);
    ck_assert_int_eq(table.n, 3);
    ck_assert_mem_eq(tail, table.blocks + 1, sizeof tail);
    expect_each_once();
}
END_TEST

START_TEST(tails_that_do_not_all_fit_take_no_block)
{
    CHECK_OK(tree_layout_init(&tree, parents, 8, &err));
    CHECK_OK(block_table_reach(&table, &pool, (N_BLOCKS - 2) * TOKENS, &err));
    CHECK_ERR(block_tails_reserve(&tails, &pool, &table, &tree, 30, &err), ERR_EXHAUSTED,
              "3 KV blocks are wanted for a tree of 3 paths at position 30, 2 can be had");
    ck_assert_int_eq(tails.n, 0);
    expect_each_once();
    CHECK_OK(block_tails_reserve(&tails, &pool, &table, &tree, 16, &err)); /* no end is crossed */
    ck_assert_int_eq(tails.n, 2);
    expect_each_once();
}
END_TEST

/* A long text in rounds with trees of any shape, of which any path is accepted or none. */
START_TEST(rounds_of_a_long_text)
{
    srand(11);
    int n_changed = 0;
    for (int turn = 0; turn < 3000; turn++) {
        int32_t random[TREE_NODES_MAX];
        int n = 1 + rand() % 30, n_tokens = 1 + rand() % ((N_BLOCKS - 60) * TOKENS);
        for (int i = 0; i < n; i++) {
            random[i] = i - 1;
            while (random[i] >= 0 && rand() % 3 == 0) {
                random[i] = random[random[i]];
            }
        }
        if (tree_layout_init(&tree, random, n, &err)) continue;
        block_table_release(&table, &pool);
        CHECK_OK(block_table_reach(&table, &pool, n_tokens + tree.leaf_depth[0] + 1, &err));
        CHECK_OK(block_tails_reserve(&tails, &pool, &table, &tree, n_tokens, &err));
        ck_assert_int_eq(tails.n, tree_layout_tails(&tree, n_tokens, TOKENS));
        expect_each_once();
        int path = rand() % tree.n_paths, had = table.n;
        int32_t first = path ? tails.blocks[tails.ends[path - 1]] : -1;
        int from = block_tails_accept(&tails, &table, &pool, path);
        ck_assert_int_eq(from, path ? n_tokens / TOKENS : had);
        if (path) ck_assert_int_eq(table.blocks[from], first);
        ck_assert_int_ge(table.n * TOKENS, n_tokens + tree.leaf_depth[path] + 1);
        expect_each_once();
        n_changed += path > 0;
    }
    ck_assert_int_gt(n_changed, 500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_tails");
    TCase *tests = tcase_create("tails");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, an_accepted_tail_enters_the_table);
    tcase_add_test(tests, path_0_leaves_the_table_as_it_is);
    tcase_add_test(tests, a_longer_tail_makes_the_table_grow);
    tcase_add_test(tests, tails_that_do_not_all_fit_take_no_block);
    tcase_add_test(tests, rounds_of_a_long_text);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
