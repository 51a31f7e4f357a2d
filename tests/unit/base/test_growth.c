/* ctest: labels=quick libs=base timeout=60 */
/* Guesses behind siblings: places, and the tree that needs the most KV blocks of all that have as
 * many guesses for each place. */
#include "base/growth.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/guess_tree.h"
#include "tests/support/check_util.h"
#include "tests/support/growth_shapes.h"

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
    struct error err;
    int32_t parents[TREE_NODES_MAX];
    int n = growth_tree(lane->k, lane->siblings, &lane->growth, parents);
    CHECK_OK(guess_tree_init(&tree, parents, n, &err));
    return guess_tree_tails(&tree, first, block_tokens);
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
        struct growth_shape lane = {.k = k}, packed = {.k = k};
        any_counts(k, counts);
        growth_shape_any(counts, false, dice_for, NULL, &lane);
        growth_shape_count(lane.k, lane.siblings, &lane.growth, counts);
        growth_pack(k, lane.siblings, &lane.growth, packed.siblings, &packed.growth);
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
    const struct growth spread = {.n = 9, .parents = {-1, -1, -2, -2, 0, 1, 2, 3, -4}};
    const uint8_t siblings[] = {2, 1, 0}, wanted_siblings[] = {2, 3, 3};
    static const int8_t wanted[] = {-1, -1, -4, -4};
    struct growth packed;
    uint8_t packed_siblings[DRAFT_MAX];
    growth_pack(3, siblings, &spread, packed_siblings, &packed);
    ck_assert_int_eq(memcmp(packed_siblings, wanted_siblings, 3), 0);
    ck_assert_int_eq(packed.n, 4);
    ck_assert_int_eq(memcmp(packed.parents, wanted, 4), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("growth");
    TCase *tcase = tcase_create("growth");
    tcase_add_test(tcase, no_shape_needs_more_blocks_than_the_packed_one);
    tcase_add_test(tcase, the_first_guesses_get_all);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
