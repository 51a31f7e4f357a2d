/* ctest: labels=quick libs=base timeout=60 */
/* Trees of guesses: their order, branches, what is dropped of them, and the tree that needs the
 * most KV blocks of all that have as many guesses for each place. */
#include "base/guess_tree.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/tree_layout.h"
#include "tests/support/check_util.h"
#include "tests/support/guess_shapes.h"

enum { TREES = 3000, SHAPES = 30 };

static uint32_t dice_state = 11;

static int dice_for(void *context, int n)
{
    (void)context;
    dice_state = dice_state * 1664525u + 1013904223u;
    return (int)((dice_state >> 8) % (uint32_t)n);
}

static int dice(int n)
{
    return dice_for(NULL, n);
}

static int count_tails(const struct growth_shape *lane, int first, int block_tokens)
{
    struct guess_tree tree;
    struct tree_layout layout;
    struct error err;
    growth_plan(lane->k, lane->siblings, &lane->growth, &tree);
    guess_tree_sort(&tree);
    CHECK_OK(tree_layout_init(&layout, tree.parents, tree.n, &err));
    return tree_layout_tails(&layout, first, block_tokens);
}

static struct growth_shape pack(const struct growth_shape *lane)
{
    struct guess_tree plan, packed;
    growth_plan(lane->k, lane->siblings, &lane->growth, &plan);
    guess_tree_pack(&plan, &packed);
    return growth_shape_of(&packed);
}

/* Places of a lane that has room for TREE_PATHS_MAX - 1 guesses, as some shape can have them. */
static void any_counts(int k, int *counts)
{
    int room = TREE_PATHS_MAX - 1 - k, before = 0;
    for (int place = 0; place < DRAFT_MAX; place++) {
        int most = (place < k ? SIBLINGS_MAX : 0) + before * (1 + SIBLINGS_MAX);
        most = most < room ? most : room;
        counts[place] = dice(3) ? dice(most + 1) : 0;
        if (counts[place] > 4 && dice(2)) counts[place] = 1 + dice(4);
        room -= counts[place];
        before = counts[place];
    }
}

/* Any other shape, with as many guesses or with fewer, and with a chain that has ended before its
 * time, needs no more blocks, whatever their size and wherever the text ends. The packed one has
 * all guesses. */
START_TEST(no_shape_needs_more_blocks_than_the_packed_one)
{
    static const int blocks[] = {1, 2, 4, 16};
    int n_equal = 0, n_less = 0;
    for (int t = 0; t < TREES; t++) {
        int counts[DRAFT_MAX], k = 1 + dice(DRAFT_MAX), packed_counts[DRAFT_MAX];
        struct growth_shape lane = {.k = k};
        any_counts(k, counts);
        growth_shape_any(counts, false, dice_for, NULL, &lane);
        growth_shape_count(lane.k, lane.siblings, &lane.growth, counts);
        const struct growth_shape packed = pack(&lane);
        ck_assert_int_eq(packed.k, k);
        growth_shape_count(packed.k, packed.siblings, &packed.growth, packed_counts);
        ck_assert_int_eq(memcmp(counts, packed_counts, sizeof counts), 0);
        for (int s = 0; s < SHAPES; s++) {
            struct growth_shape other = {.k = s % 3 == 2 ? 1 + dice(k) : k};
            int block = blocks[dice(4)], first = dice(40);
            int own[DRAFT_MAX];
            memcpy(own, counts, sizeof own);
            for (int i = other.k; i < k; i++) {
                own[i] -= lane.siblings[i]; /* of guesses that are not made */
            }
            growth_shape_any(own, s % 2, dice_for, NULL, &other);
            int n = count_tails(&other, first, block), most = count_tails(&packed, first, block);
            ck_assert_msg(n <= most, "tree %d, shape %d: %d blocks, packed %d", t, s, n, most);
            n_equal += n == most;
            n_less += n < most;
        }
    }
    printf("%d shapes need as many blocks as the packed one, %d fewer\n", n_equal, n_less);
    ck_assert(n_equal > TREES && n_less > TREES);
}
END_TEST

/* 2 siblings, 5 guesses and 5: the chain's guess and the first of the others get all they may. */
START_TEST(the_first_guesses_get_all)
{
    const struct growth_shape spread = {
        3, {2, 1, 0}, {.n = 9, .parents = {-1, -1, -2, -2, 0, 1, 2, 3, -4}}};
    const uint8_t wanted_siblings[] = {2, 3, 3};
    static const int8_t wanted[] = {-1, -1, -4, -4};
    const struct growth_shape packed = pack(&spread);
    ck_assert_int_eq(memcmp(packed.siblings, wanted_siblings, 3), 0);
    ck_assert_int_eq(packed.growth.n, 4);
    ck_assert_int_eq(memcmp(packed.growth.parents, wanted, 4), 0);
}
END_TEST

static void check_tree(const struct guess_tree *tree, int n, const int32_t *tokens,
                       const int32_t *parents, const int *marks)
{
    ck_assert_int_eq(tree->n, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(tree->tokens[i], tokens[i]);
        ck_assert_int_eq(tree->parents[i], parents[i]);
        ck_assert_int_eq(tree->marks[i], marks[i]);
    }
    for (int i = 0; i < tree->n_chain; i++) {
        ck_assert(tree->marks[tree->chain[i]] & GUESS_CHAIN);
        ck_assert_int_eq(guess_tree_place(tree, tree->chain[i]), i);
    }
}

enum { CHAIN = GUESS_CHAIN, SIBLING = GUESS_SIBLING, GROWN = GUESS_GROWN, BRANCH = GUESS_BRANCH };

/* Chain 5 6, siblings 7 and 3 of the first guess, 4 of the second; 8 and 9 after 7, 1 after 9; in
 * the order in which a draft draws them. */
static void draw(struct guess_tree *tree)
{
    guess_tree_begin(tree, 20);
    guess_tree_extend(tree, GUESS_STAGED, 5, NULL);
    guess_tree_add(tree, -1, SIBLING, 7, NULL);
    guess_tree_add(tree, -1, SIBLING, 3, NULL);
    guess_tree_add(tree, 1, GROWN, 8, NULL);
    guess_tree_add(tree, 1, GROWN, 9, NULL);
    guess_tree_extend(tree, 0, 6, NULL);
    guess_tree_add(tree, 0, SIBLING, 4, NULL);
    guess_tree_add(tree, 4, GROWN, 1, NULL);
}

START_TEST(nodes_are_sorted_depth_first_with_the_chain_at_the_front)
{
    static const int32_t tokens[] = {5, 6, 4, 7, 8, 9, 1, 3},
                         parents[] = {-1, 0, 0, -1, 3, 3, 5, -1};
    static const int marks[] = {
        CHAIN | GUESS_STAGED, CHAIN, SIBLING, SIBLING, GROWN, GROWN, GROWN, SIBLING};
    struct guess_tree tree;
    int32_t text[DRAFT_MAX];
    draw(&tree);
    guess_tree_sort(&tree);
    check_tree(&tree, 8, tokens, parents, marks);
    ck_assert(tree.n_chain == 2 && tree.chain[1] == 1 && tree.base == 20);
    ck_assert_int_eq(guess_tree_siblings(&tree, 0), 2);
    ck_assert_int_eq(guess_tree_siblings(&tree, 1), 1);
    ck_assert_int_eq(guess_tree_siblings(&tree, 2), 0);
    ck_assert(guess_tree_rank(&tree, 7) == 2 && guess_tree_rank(&tree, 5) == 1);
    ck_assert(guess_tree_text(&tree, 6, text) == 3 && text[0] == 7 && text[1] == 9 && text[2] == 1);
    ck_assert_int_eq(guess_tree_text(&tree, -1, text), 0);
    guess_tree_sort(&tree);
    check_tree(&tree, 8, tokens, parents, marks);
}
END_TEST

START_TEST(siblings_keep_their_order_where_there_is_no_chain)
{
    struct guess_tree tree = {
        .n = 6, .tokens = {10, 11, 12, 13, 14, 15}, .parents = {-1, -1, 1, 0, 1, 2}};
    static const int32_t parents[] = {-1, 0, -1, 2, 3, 2}, tokens[] = {10, 13, 11, 12, 15, 14};
    static const int marks[6] = {0};
    guess_tree_sort(&tree);
    check_tree(&tree, 6, tokens, parents, marks);
}
END_TEST

START_TEST(what_is_dropped_leaves_the_rest_as_it_was)
{
    static const int32_t tokens[] = {5, 7, 3, 6, 4}, parents[] = {-1, -1, -1, 0, 0};
    static const int marks[] = {CHAIN | GUESS_STAGED, SIBLING, SIBLING, CHAIN, SIBLING};
    struct guess_tree tree;
    draw(&tree);
    guess_tree_drop(&tree, GROWN | BRANCH);
    check_tree(&tree, 5, tokens, parents, marks);
    guess_tree_drop(&tree, SIBLING);
    ck_assert(tree.n == 2 && tree.n_chain == 2);
    guess_tree_drop(&tree, CHAIN);
    ck_assert(tree.n == 0 && tree.n_chain == 0 && tree.base == 20);
}
END_TEST

/* The branch goes through guesses that are there already. */
START_TEST(a_branch_shares_the_guesses_that_it_begins_with)
{
    static const struct {
        int n, n_added, end; /* of the branch; the node with which it ends */
        int32_t branch[4];
    } cases[] = {{2, 0, 5, {5, 6}}, {3, 1, 8, {5, 6, 2}}, {2, 1, 8, {5, 2}},
                 {2, 0, 6, {5, 4}}, {3, 1, 8, {5, 4, 2}}, {2, 2, 9, {2, 2}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct guess_tree tree;
        int at = -1;
        draw(&tree);
        for (int i = 0; i < cases[c].n; i++) {
            at = guess_tree_branch(&tree, at, cases[c].branch[i], NULL);
            ck_assert(tree.marks[at] & BRANCH && tree.tokens[at] == cases[c].branch[i]);
        }
        ck_assert_int_eq(tree.n, 8 + cases[c].n_added);
        ck_assert_int_eq(at, cases[c].end);
        ck_assert_int_eq(guess_tree_count(&tree, BRANCH), cases[c].n);
        ck_assert_int_eq(tree.n_chain, 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guess_tree");
    TCase *tcase = tcase_create("guess_tree");
    tcase_add_test(tcase, no_shape_needs_more_blocks_than_the_packed_one);
    tcase_add_test(tcase, the_first_guesses_get_all);
    tcase_add_test(tcase, nodes_are_sorted_depth_first_with_the_chain_at_the_front);
    tcase_add_test(tcase, siblings_keep_their_order_where_there_is_no_chain);
    tcase_add_test(tcase, what_is_dropped_leaves_the_rest_as_it_was);
    tcase_add_test(tcase, a_branch_shares_the_guesses_that_it_begins_with);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
