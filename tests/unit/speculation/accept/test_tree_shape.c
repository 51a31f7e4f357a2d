/* ctest: labels=quick libs=speculation timeout=120 */
/* Shapes of trees: fixed ones, the dynamic programme against every tree there is, EAGLE-2's choices
 * by hand, and what is learned of ranks. */
#include <math.h>

#include "tests/support/check_util.h"
#include "tests/support/tree_shape.h"

enum { SMALL = 6 };

START_TEST(fixed_shapes_are_read_and_bounded)
{
    struct tree_shape shape;
    struct error err;
    CHECK_OK(tree_shape_parse("2,2,1", &shape, &err));
    const int wanted[] = {-1, 0, 1, 0, 3, -1, 5, 6, 5, 8};
    ck_assert_int_eq(shape.n, 10);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(shape.parents[i], wanted[i]);
    }
    CHECK_OK(tree_shape_parse("32", &shape, &err));
    ck_assert_int_eq(shape.n, 32);
    CHECK_ERR(tree_shape_parse("4,4,4", &shape, &err), ERR_ARGUMENT, "more than 64 nodes");
    const char *const bad[] = {"",   "3,",  "3,,1", "0",     "-1",
                               "65", "3;1", "x",    "2 , 1", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(tree_shape_parse(bad[i], &shape, &err), ERR_ARGUMENT, "no shape of a tree");
    }
}
END_TEST

/* Expected accepted nodes of a shape: the sum of the chances of its paths. */
static double expected(const struct tree_ranks *ranks, const struct tree_shape *shape)
{
    double sum = 0, chance[TREE_NODES_MAX] = {0};
    int depth[TREE_NODES_MAX] = {0};
    for (int i = 0; i < shape->n; i++) {
        int parent = shape->parents[i], rank = 0;
        double none = 1;
        depth[i] = parent < 0 ? 0 : depth[parent] + 1;
        for (int k = 0; k < i; k++) {
            if (shape->parents[k] == parent) {
                none *= 1 - tree_ranks_chance(ranks, depth[i], rank++);
            }
        }
        chance[i] =
            (parent < 0 ? 1 : chance[parent]) * none * tree_ranks_chance(ranks, depth[i], rank);
        sum += chance[i];
    }
    return sum;
}

static int depth_of(const struct tree_shape *shape)
{
    int most = 0, depth[TREE_NODES_MAX];
    for (int i = 0; i < shape->n; i++) {
        depth[i] = shape->parents[i] < 0 ? 1 : depth[shape->parents[i]] + 1;
        most = depth[i] > most ? depth[i] : most;
    }
    return most;
}

static double speed_of(const struct tree_ranks *ranks, const struct tree_times *times,
                       const struct tree_shape *shape)
{
    double us = times->step_us[shape->n + 1] + times->fixed_us;
    return 1e6 * (1 + expected(ranks, shape)) / (us + depth_of(shape) * times->pass_us);
}

/* The best speed over all trees in preorder that begin with `shape`. */
static double best_of_all(const struct tree_ranks *ranks, const struct tree_times *times,
                          struct tree_shape *shape)
{
    double best = speed_of(ranks, times, shape);
    if (shape->n == times->n_max) return best;
    int parent = shape->n - 1;
    for (;; parent = shape->parents[parent]) { /* the last node or one above it */
        shape->parents[shape->n++] = parent;
        double speed = best_of_all(ranks, times, shape);
        shape->n--;
        best = speed > best ? speed : best;
        if (parent < 0) return best;
    }
}

static double random_at(int turn, int i)
{
    const struct rng_address at = {.seed = 9, .position = (uint32_t)turn};
    return rng_uniform(&at, RNG_LOAD, (uint32_t)i);
}

START_TEST(the_programme_finds_the_best_of_all_trees)
{
    int n_seen[SMALL + 1] = {0};
    for (int turn = 0; turn < 60; turn++) {
        struct tree_ranks ranks = {0};
        double step_us[TREE_NODES_MAX + 2];
        for (int d = 0; d < TREE_DEPTH_MAX; d++) {
            for (int r = 0; r < TREE_RANKS_MAX; r++) {
                ranks.tested[d][r] = 1000;
                ranks.kept[d][r] = 1000 * random_at(turn, d * TREE_RANKS_MAX + r);
            }
        }
        for (int rows = 0; rows < TREE_NODES_MAX + 2; rows++) {
            step_us[rows] = 1000 + rows * 300 * random_at(turn, 1000);
        }
        const struct tree_times times = {.step_us = step_us,
                                         .pass_us = 200 * random_at(turn, 1001),
                                         .fixed_us = 50,
                                         .n_max = SMALL,
                                         .depth_max = SMALL};
        struct tree_shape shape, all = {.n = 0};
        double speed;
        tree_shape_best(&ranks, &times, &shape, &speed);
        ck_assert_double_eq_tol(speed_of(&ranks, &times, &shape), speed, 1e-6 * speed);
        ck_assert_double_eq_tol(best_of_all(&ranks, &times, &all), speed, 1e-6 * speed);
        n_seen[shape.n]++;
    }
    ck_assert(n_seen[SMALL] > 0 && n_seen[SMALL] < 60);
}
END_TEST

START_TEST(what_does_not_pay_has_no_tree)
{
    struct tree_ranks ranks = {0};
    double step_us[TREE_NODES_MAX + 2], speed;
    struct tree_shape shape;
    for (int rows = 0; rows < TREE_NODES_MAX + 2; rows++) {
        step_us[rows] = 1000.0 * rows;
    }
    const struct tree_times times = {.step_us = step_us, .n_max = 32, .depth_max = 16};
    tree_shape_best(&ranks, &times, &shape, &speed);
    ck_assert_int_eq(shape.n, 0);
    ck_assert_double_eq_tol(speed, 1000, 1e-9);
}
END_TEST

/* A root with two children; the first has one child. */
START_TEST(ranks_are_learned_and_old_ones_fade)
{
    struct tree_ranks ranks = {0};
    struct guess_tree tree = {.n = 3, .parents = {-1, 0, -1}};
    ck_assert_double_eq_tol(tree_ranks_chance(&ranks, 0, 0), 0.6, 1e-12);
    ck_assert_double_eq_tol(tree_ranks_chance(&ranks, 9, 1), 0.25, 1e-12);
    for (int phase = 0; phase < 2; phase++) {
        double first = phase ? 0.2 : 0.7, below = 0.5, second = 0.4;
        for (int i = 0; i < 6000; i++) {
            struct tree_result result = {.n_accepted = 0};
            int turn = phase * 6000 + i;
            if (random_at(turn, 0) < first) {
                result.path[result.n_accepted++] = 0;
                if (random_at(turn, 1) < below) result.path[result.n_accepted++] = 1;
            } else if (random_at(turn, 2) < second) {
                result.path[result.n_accepted++] = 2;
            }
            tree_ranks_observe(&ranks, &tree, &result);
        }
        ck_assert_double_eq_tol(tree_ranks_chance(&ranks, 0, 0), first, 0.08);
        ck_assert_double_eq_tol(tree_ranks_chance(&ranks, 1, 0), below, 0.08);
        ck_assert_double_eq_tol(tree_ranks_chance(&ranks, 0, 1), second, 0.08);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_shape");
    TCase *tcase = tcase_create("shapes");
    tcase_add_test(tcase, fixed_shapes_are_read_and_bounded);
    tcase_add_test(tcase, the_programme_finds_the_best_of_all_trees);
    tcase_add_test(tcase, what_does_not_pay_has_no_tree);
    tcase_add_test(tcase, ranks_are_learned_and_old_ones_fade);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
