/* ctest: labels=full,statistics libs=speculation timeout=600 long=1800 */
/* Multi-path block verification: what is committed is distributed as p, one chain is decided as by
 * block verification, and how many guesses stay beside traversal verification of as many nodes. */
#include "tests/support/tree_statistics.h"

static const struct tree_plan plans[] = {
    {"2 chains of 1", 2, {-1, -1}, {0}},
    {"2 chains of 2", 4, {-1, 0, -1, 2}, {0}},
    {"3 chains of 3", 9, {-1, 0, 1, -1, 3, 4, -1, 6, 7}, {0}},
    {"5 chains of 2", 10, {-1, 0, -1, 2, -1, 4, -1, 6, -1, 8}, {0}},
};
enum { N_PLANS = sizeof plans / sizeof *plans };

START_TEST(one_chain_is_block_verification)
{
    static const struct tree_plan chain = {"chain of 6", 6, {-1, 0, 1, 2, 3, 4}, {0}};
    int n_kept = 0;
    for (int d = 0; d < 2000; d++) {
        const struct tree_world *world = &worlds[d % N_WORLDS];
        const struct rng_address at = {(uint64_t)d, 30, 30};
        struct sparse_dist q[TREE_NODES_MAX];
        with_replacement(world, &chain, d % TREE_CONTEXTS, &at, &round_);
        for (int i = 0; i < round_.tree.n; i++) {
            q[i] = *round_.tree.q[i];
        }
        struct accept_result block =
            accept_block(round_.rows, q, round_.tree.tokens, round_.tree.n, &at);
        struct tree_result paths = tree_accept_paths(&round_.tree, round_.rows, &at, scratch);
        ck_assert_int_eq(paths.n_accepted, block.n_accepted);
        ck_assert_int_eq(paths.next, block.next);
        n_kept += block.n_accepted;
    }
    ck_assert_int_gt(n_kept, 2000);
}
END_TEST

START_TEST(the_committed_text_has_the_distribution_of_the_target)
{
    for (int w = 0; w < N_WORLDS; w++) {
        double p = p_value(&worlds[w], &plans[_i], with_replacement, tree_accept_paths, "paths");
        ck_assert_msg(p >= P_LEAST, "%s, %s: p-value %g", worlds[w].name, plans[_i].name, p);
    }
}
END_TEST

/* Wrong: the paths differ from the first token on, but are judged as if they were independent. */
static void not_independent(const struct tree_world *world, const struct tree_plan *plan,
                            int context, const struct rng_address *at, struct tree_round *round)
{
    tree_make_round(world, plan, false, context, at, round);
    round->tree.is_independent = true;
}

/* Wrong: the path is chosen among three and judged as if it were the only one. */
static struct tree_result forgets_the_choice(const struct guess_tree *tree,
                                             const struct target_row *rows,
                                             const struct rng_address *at, double *room)
{
    struct guess_tree one = {.n = 0};
    struct target_row own[TREE_NODES_MAX + 1] = {rows[0]};
    int length = tree->n / 3, best = 0;
    double best_ratio = -1;
    for (int c = 0; c < 3; c++) {
        double p = (double)target_row_prob(&rows[0], tree->tokens[c * length]);
        double q = (double)sparse_prob(tree->q[c * length], tree->tokens[c * length]);
        if (p / q <= best_ratio) continue;
        best_ratio = p / q;
        best = c * length;
    }
    for (int i = 0; i < length; i++) {
        one.tokens[i] = tree->tokens[best + i];
        one.q[i] = tree->q[best + i];
        one.parents[i] = i - 1;
        own[i + 1] = rows[best + i + 1];
    }
    one.n = length;
    struct tree_result result = tree_accept_paths(&one, own, at, room);
    for (int i = 0; i < result.n_accepted; i++) {
        result.path[i] += best;
    }
    return result;
}

START_TEST(wrong_ways_are_found)
{
    double p = p_value_of_wrong(&worlds[0], &plans[1], not_independent, tree_accept_paths,
                                "wrong: differ");
    ck_assert_msg(p < P_LEAST || DRAWS_ARE_FEW, "paths that differ were not found");
    p = p_value_of_wrong(&worlds[0], &plans[2], with_replacement, forgets_the_choice,
                         "wrong: forgets");
    ck_assert_msg(p < P_LEAST || DRAWS_ARE_FEW, "a choice that was forgotten was not found");
}
END_TEST

/* The paper: more than one path, and more than other rules over several paths. */
START_TEST(two_paths_keep_more_than_one)
{
    static const struct tree_plan shapes[] = {
        {"chain of 4", 4, {-1, 0, 1, 2}, {0}},
        {"2 chains of 4", 8, {-1, 0, 1, 2, -1, 4, 5, 6}, {0}},
        {"3 chains of 4", 12, {-1, 0, 1, 2, -1, 4, 5, 6, -1, 8, 9, 10}, {0}},
        {"4 chains of 4", 16, {-1, 0, 1, 2, -1, 4, 5, 6, -1, 8, 9, 10, -1, 12, 13, 14}, {0}},
    };
    tree_accept_fn *const paths[] = {tree_accept_paths};
    tree_accept_fn *const sequential[] = {tree_accept_k_sequential};
    tree_accept_fn *const others[] = {tree_accept_rejection, tree_accept_traversal};
    for (size_t w = 0; w < sizeof large / sizeof *large; w++) {
        struct length of[4], of_k[4], other[2];
        tree_world_open(&large[w]);
        for (int s = 0; s < 4; s++) {
            accepted(&large[w], &shapes[s], with_replacement, paths, 1, &of[s]);
            accepted(&large[w], &shapes[s], with_replacement, sequential, 1, &of_k[s]);
            accepted(&large[w], &shapes[s], without_replacement, others, 2, other);
            printf("%-10s alpha %.2f %-14s paths %.3f k-sequential %.3f traversal %.3f (%+.1f %%) "
                   "rejection %.3f "
                   "(standard error %.3f)\n",
                   large[w].name, tree_world_alpha(&large[w]), shapes[s].name, mean_of(&of[s]),
                   mean_of(&of_k[s]), mean_of(&other[1]),
                   100 * (mean_of(&of[s]) / mean_of(&other[1]) - 1), mean_of(&other[0]),
                   error_of(&of[s]));
            if (s == 1) ck_assert(mean_of(&of[1]) > mean_of(&other[0]) - 4 * error_of(&of[1]));
        }
        ck_assert(mean_of(&of_k[3]) > mean_of(&of_k[0]) + 4 * error_of(&of_k[0]));
        ck_assert(mean_of(&of[1]) > mean_of(&of[0]) + 4 * error_of(&of[0]) || LENGTHS < 5000);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_paths");
    TCase *tcase = tcase_create("statistics");
    for (int w = 0; w < N_WORLDS; w++) {
        tree_world_open(&worlds[w]);
    }
    tcase_add_test(tcase, one_chain_is_block_verification);
    tcase_add_loop_test(tcase, the_committed_text_has_the_distribution_of_the_target, 0, N_PLANS);
    tcase_add_test(tcase, wrong_ways_are_found);
    tcase_add_test(tcase, two_paths_keep_more_than_one);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
