/* ctest: labels=quick libs=base timeout=60 */
/* Trees of guesses: which paths a guess is in, where paths end, and which orders are refused. */
#include <stdbool.h>
#include <string.h>

#include "base/tree_layout.h"
#include "tests/support/check_util.h"

static struct error err;
static struct tree_layout tree;

START_TEST(the_example_of_the_header)
{
    static const int32_t parents[] = {-1, 0, 1, 0, -1};
    static const int depth[] = {0, 1, 2, 1, 0}, first[] = {0, 0, 0, 1, 2}, end[] = {2, 1, 1, 2, 3};
    CHECK_OK(tree_layout_init(&tree, parents, 5, &err));
    ck_assert_int_eq(tree.n_paths, 3);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(tree.depth[i], depth[i]);
        ck_assert_int_eq(tree.first_path[i], first[i]);
        ck_assert_int_eq(tree.end_path[i], end[i]);
    }
    ck_assert_int_eq(tree.leaf_depth[0], 2);
    ck_assert_int_eq(tree.leaf_depth[1], 1);
    ck_assert_int_eq(tree.leaf_depth[2], 0);
    ck_assert_int_eq(tree_layout_levels(&tree), 3);
    /* The first guess is at position 14: path 0 reaches position 16, which is in the next block. */
    ck_assert_int_eq(tree_layout_tail(&tree, 0, 14, 16), 2);
    ck_assert_int_eq(tree_layout_tail(&tree, 1, 14, 16), 1);
    ck_assert_int_eq(tree_layout_tails(&tree, 14, 16), 2);
    ck_assert_int_eq(tree_layout_tails(&tree, 15, 16), 3);
}
END_TEST

/* True if guess i is in a path, found by walking up from every leaf. */
static bool is_on_path(const int32_t *parents, int n, int path, int i)
{
    int leaf = -1;
    for (int node = 0, leaves = 0; node < n; node++) {
        bool is_leaf = node + 1 == n || parents[node + 1] != node;
        if (is_leaf && leaves++ == path) leaf = node;
    }
    while (leaf > i) {
        leaf = parents[leaf];
    }
    return leaf == i;
}

START_TEST(paths_are_those_of_a_walk_up_from_the_leaves)
{
    uint32_t state = 4711;
    int n_trees = 0;
    for (int round = 0; round < 2000; round++) {
        int32_t parents[TREE_NODES_MAX];
        int n = 1 + round % TREE_NODES_MAX;
        for (int i = 0; i < n; i++) {
            parents[i] = i - 1;
            for (; parents[i] >= 0; parents[i] = parents[parents[i]]) {
                state = state * 1664525u + 1013904223u;
                if ((state >> 24) % 5 > (unsigned)(round % 4)) break;
            }
        }
        if (tree_layout_init(&tree, parents, n, &err)) continue; /* too deep or too wide */
        n_trees++;
        for (int i = 0; i < n; i++) {
            for (int path = 0; path < tree.n_paths; path++) {
                bool is_in = path >= tree.first_path[i] && path < tree.end_path[i];
                ck_assert_int_eq(is_in, is_on_path(parents, n, path, i));
            }
        }
    }
    ck_assert_int_gt(n_trees, 500);
}
END_TEST

START_TEST(other_orders_and_sizes_are_refused)
{
    static const int32_t early[] = {-1, 0, -1, 1};
    int32_t chain[DRAFT_MAX + 1], star[TREE_NODES_MAX + 1];
    for (int i = 0; i <= TREE_NODES_MAX; i++) {
        star[i] = -1;
        if (i <= DRAFT_MAX) chain[i] = i - 1;
    }
    CHECK_ERR(tree_layout_init(&tree, early, 4, &err), ERR_FORMAT,
              "parents[3] is 1, which is no ancestor of guess 2");
    ck_assert_int_eq(tree.n_nodes, 0);
    CHECK_OK(tree_layout_init(&tree, early, 3, &err));
    CHECK_OK(tree_layout_init(&tree, chain, DRAFT_MAX, &err));
    CHECK_ERR(tree_layout_init(&tree, chain, DRAFT_MAX + 1, &err), ERR_FORMAT,
              "guess 16 is number 17 of its path, at most 16 are taken");
    CHECK_OK(tree_layout_init(&tree, star, TREE_PATHS_MAX, &err));
    CHECK_ERR(tree_layout_init(&tree, star, TREE_PATHS_MAX + 1, &err), ERR_FORMAT,
              "guess 32 begins path 33 of the tree");
    CHECK_ERR(tree_layout_init(&tree, star, TREE_NODES_MAX + 1, &err), ERR_FORMAT,
              "a tree of 65 guesses, must be 1 to 64");
    CHECK_ERR(tree_layout_init(&tree, star, 0, &err), ERR_FORMAT, "a tree of 0 guesses");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_layout");
    TCase *tcase = tcase_create("tree_layout");
    tcase_add_test(tcase, the_example_of_the_header);
    tcase_add_test(tcase, paths_are_those_of_a_walk_up_from_the_leaves);
    tcase_add_test(tcase, other_orders_and_sizes_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
