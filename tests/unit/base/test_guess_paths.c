/* ctest: labels=quick libs=base timeout=60 */
/* Paths through trees of guesses, branches beside the chain and guesses after siblings: where they
 * are in the tree, what is counted of a path, and that no part of a plan needs more KV blocks. */
#include "base/guess_tree.h"
#include "base/tree_layout.h"
#include "tests/support/check_util.h"
#include "tests/support/guess_tables.h"

enum { N_TOKENS = 2, END = 9 };

/* A q for each token, as of what was found. */
static const struct sparse_dist *one_hot(int32_t token)
{
    static int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static float one = 1;
    static struct sparse_dist q[10];
    q[token] = (struct sparse_dist){1, &ids[token], &one};
    return &q[token];
}

static void add(struct guess_tree *tree, int parent, int mark, int32_t token)
{
    guess_tree_add(tree, parent, mark, token, one_hot(token));
}

/* The chain 5 6 END; siblings 7 and 3 of the first guess, and 4 of the last. */
static void find(struct guess_tree *tree)
{
    guess_tree_begin(tree, N_TOKENS);
    add(tree, -1, GUESS_CHAIN, 5);
    add(tree, -1, GUESS_SIBLING, 7);
    add(tree, -1, GUESS_SIBLING, 3);
    add(tree, 0, GUESS_CHAIN, 6);
    add(tree, 3, GUESS_CHAIN, END);
    add(tree, 3, GUESS_SIBLING, 4);
}

/* The nodes of a path, and what is counted of it. */
struct path_case {
    int n;
    int nodes[5];
    struct guess_path path;
};

static void check_paths(const struct guess_tree *tree, const struct path_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct guess_path path = guess_tree_path(tree, cases[i].nodes, cases[i].n);
        ck_assert_int_eq(path.n_chain, cases[i].path.n_chain);
        ck_assert_int_eq(path.n_tested, cases[i].path.n_tested);
        ck_assert_int_eq(path.kept, cases[i].path.kept);
        ck_assert_int_eq(path.n_branch, cases[i].path.n_branch);
    }
}

START_TEST(path_holds_the_accepted_guesses)
{
    struct guess_tree tree;
    find(&tree);
    guess_tree_sort(&tree);
    static const struct path_case cases[] = {
        {3, {0, 1, 2}, {3, 0, 0, 0}}, {3, {0, 1, 3}, {2, 1, 0, 0}}, {2, {0, 1}, {2, 1, 1, 0}},
        {1, {5}, {0, 2, 1, 0}},       {0, {0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* That tree and a branch. */
static void grow(struct guess_tree *tree, const int32_t *branch, int n)
{
    find(tree);
    for (int i = 0, at = -1; i < n; i++) {
        at = guess_tree_branch(tree, at, branch[i], one_hot(branch[i]));
    }
    guess_tree_sort(tree);
}

/* Chain 5 6 END, siblings 7 and 3 of 5 and 4 of END. */
START_TEST(a_branch_leaves_the_chain_where_they_differ)
{
    const struct {
        int32_t branch[5];
        int n, n_shared, n_nodes;
        int32_t tokens[10], parents[10];
    } cases[] = {
        /* from the root, after all siblings */
        {{8, 5}, 2, 0, 8, {5, 6, END, 4, 7, 3, 8, 5}, {-1, 0, 1, 1, -1, -1, -1, 6}},
        {{5, 8, 2}, 3, 1, 8, {5, 6, END, 4, 8, 2, 7, 3}, {-1, 0, 1, 1, 0, 4, -1, -1}},
        /* its first guess is a sibling */
        {{7, 8}, 2, 0, 7, {5, 6, END, 4, 7, 8, 3}, {-1, 0, 1, 1, -1, 4, -1}},
        {{3, 8, 2}, 3, 0, 8, {5, 6, END, 4, 7, 3, 8, 2}, {-1, 0, 1, 1, -1, -1, 5, 6}},
        /* the chain is its beginning, and goes on */
        {{5, 6, END, 2, 1}, 5, 3, 8, {5, 6, END, 2, 1, 4, 7, 3}, {-1, 0, 1, 2, 3, 1, -1, -1}},
        /* it is the chain's beginning, or nothing but a sibling */
        {{5, 6}, 2, 2, 6, {5, 6, END, 4, 7, 3}, {-1, 0, 1, 1, -1, -1}},
        {{5, 6, 4}, 3, 2, 6, {5, 6, END, 4, 7, 3}, {-1, 0, 1, 1, -1, -1}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct guess_tree tree;
        grow(&tree, cases[c].branch, cases[c].n);
        int n_shared = 0;
        for (int i = 0; i < tree.n_chain; i++) {
            n_shared += tree.marks[i] & GUESS_BRANCH ? 1 : 0;
        }
        ck_assert_int_eq(n_shared, cases[c].n_shared);
        ck_assert_int_eq(guess_tree_count(&tree, GUESS_BRANCH), cases[c].n);
        ck_assert_int_eq(tree.n, cases[c].n_nodes);
        for (int i = 0; i < cases[c].n_nodes; i++) {
            ck_assert_int_eq(tree.tokens[i], cases[c].tokens[i]);
            ck_assert_int_eq(tree.parents[i], cases[c].parents[i]);
            ck_assert(tree.q[i] == one_hot(cases[c].tokens[i]));
        }
    }
}
END_TEST

START_TEST(path_holds_the_accepted_guesses_of_a_branch)
{
    struct guess_tree tree;
    grow(&tree, (const int32_t[]){5, 8, 2}, 3);
    static const struct path_case leaving[] = {
        {3, {0, 4, 5}, {1, 0, 0, 2}},
        {2, {0, 4}, {1, 0, 0, 1}},
        {3, {0, 1, 3}, {2, 1, 0, 0}},
        {1, {6}, {0, 2, 0, 0}},
    };
    check_paths(&tree, leaving, sizeof leaving / sizeof *leaving);
    grow(&tree, (const int32_t[]){3, 8, 2}, 3);
    static const struct path_case after_sibling[] = {
        {3, {5, 6, 7}, {0, 2, 1, 2}},
        {1, {4}, {0, 2, 0, 0}},
    };
    check_paths(&tree, after_sibling, 2);
    grow(&tree, (const int32_t[]){5, 6, END, 2, 1}, 5);
    static const struct path_case after_chain[] = {
        {5, {0, 1, 2, 3, 4}, {3, 0, 0, 2}},
        {3, {0, 1, 2}, {3, 0, 0, 0}},
    };
    check_paths(&tree, after_chain, 2);
}
END_TEST

/* The tree that a lane sets blocks aside for needs as many as any that comes of its guesses. */
START_TEST(no_tree_needs_more_blocks_than_were_set_aside)
{
    enum { BLOCK = 4 };
    static const uint8_t siblings[] = {2, 0, 1};
    static const int32_t branches[][5] = {
        {8, 5, 1, 1, 1}, {5, 8, 2, 1, 1},   {7, 8, 1, 1, 1}, {3, 8, 2, 1, 1},
        {5, 6, 4, 1, 1}, {5, 6, END, 2, 1}, {5, 6, 2, 1, 1},
    };
    for (int c = 0; c < (int)(sizeof branches / sizeof *branches); c++) {
        for (int n = 1; n <= 5; n++) {
            struct guess_tree tree, plan;
            struct tree_layout layout, most;
            struct error err;
            growth_plan(3, siblings, NULL, &plan);
            guess_tree_plan(&plan, n, GUESS_BRANCH);
            guess_tree_sort(&plan);
            CHECK_OK(tree_layout_init(&most, plan.parents, plan.n, &err));
            grow(&tree, branches[c], n);
            CHECK_OK(tree_layout_init(&layout, tree.parents, tree.n, &err));
            ck_assert_int_le(layout.leaf_depth[0], n > 3 ? n - 1 : 2);
            for (int first = 0; first < BLOCK; first++) {
                ck_assert_int_le(tree_layout_tails(&layout, first, BLOCK),
                                 tree_layout_tails(&most, first, BLOCK));
            }
        }
    }
}
END_TEST

/* Two guesses of a chain with 2 siblings and 1, and what is after these, in the order in which it
 * is drawn. Each group is drawn from a q of its own. */
static const struct growth grown = {6, {-1, -1, -2, 0, -4, 3}};
static const uint8_t n_siblings[] = {2, 1};

static void grow_after(struct guess_tree *tree)
{
    static const int32_t tokens[] = {5, 7, 3, 6, 4, 1, 2, 8, 4, 1, 2};
    static int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static float p[] = {0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f};
    static struct sparse_dist even[TREE_NODES_MAX];
    growth_plan(2, n_siblings, &grown, tree);
    tree->base = N_TOKENS;
    for (int i = 0; i < tree->n; i++) {
        even[i] = (struct sparse_dist){8, ids, p};
        tree->tokens[i] = tokens[i];
        tree->q[i] = &even[i - guess_tree_rank(tree, i)]; /* siblings follow each other */
    }
}

START_TEST(grown_guesses_follow_their_sibling)
{
    struct guess_tree tree;
    grow_after(&tree);
    guess_tree_sort(&tree);
    const int32_t tokens[] = {5, 6, 4, 1, 7, 1, 4, 2, 2, 3, 8};
    const int32_t parents[] = {-1, 0, 0, 2, -1, 4, 5, 6, 4, -1, 9};
    const int ranks[] = {0, 0, 1, 0, 1, 0, 0, 0, 1, 2, 0};
    const int marks[] = {1, 1, 2, 4, 2, 4, 4, 4, 4, 2, 4};
    ck_assert_int_eq(tree.n, 11);
    for (int i = 0; i < 11; i++) {
        ck_assert_int_eq(tree.tokens[i], tokens[i]);
        ck_assert_int_eq(tree.parents[i], parents[i]);
        ck_assert_int_eq(guess_tree_rank(&tree, i), ranks[i]);
        ck_assert_int_eq(tree.marks[i], marks[i]);
    }
    /* Siblings share a q, also after siblings, and others do not. */
    ck_assert(tree.q[8] == tree.q[5] && tree.q[5] != tree.q[1]);
    static const struct path_case cases[] = {
        {2, {0, 1}, {2, 0, 0, 0}},  {4, {4, 5, 6, 7}, {0, 2, 0, 0}}, {3, {0, 2, 3}, {1, 1, 0, 0}},
        {2, {9, 10}, {0, 2, 1, 0}}, {0, {0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* A growth, siblings or a chain of which the draft leaves out some guesses need no more blocks than
 * the plan has. */
START_TEST(a_part_of_a_growth_needs_no_more_blocks)
{
    enum { BLOCK = 4 };
    struct guess_tree all, part;
    struct tree_layout most, layout;
    struct error err;
    grow_after(&all);
    part = all;
    guess_tree_sort(&part);
    CHECK_OK(tree_layout_init(&most, part.parents, part.n, &err));
    for (int n = 0; n <= grown.n + 1; n++) {
        struct growth some = grown;
        some.n = n <= grown.n ? n : 4;
        growth_plan(n <= grown.n ? 2 : 1, n_siblings, &some, &part); /* or the chain ends early */
        guess_tree_sort(&part);
        CHECK_OK(tree_layout_init(&layout, part.parents, part.n, &err));
        for (int first = 0; first < BLOCK; first++) {
            ck_assert_int_le(tree_layout_tails(&layout, first, BLOCK),
                             tree_layout_tails(&most, first, BLOCK));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guess_paths");
    TCase *tcase = tcase_create("guess_paths");
    tcase_add_test(tcase, path_holds_the_accepted_guesses);
    tcase_add_test(tcase, a_branch_leaves_the_chain_where_they_differ);
    tcase_add_test(tcase, path_holds_the_accepted_guesses_of_a_branch);
    tcase_add_test(tcase, no_tree_needs_more_blocks_than_were_set_aside);
    tcase_add_test(tcase, grown_guesses_follow_their_sibling);
    tcase_add_test(tcase, a_part_of_a_growth_needs_no_more_blocks);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
