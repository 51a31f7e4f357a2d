/* ctest: labels=full,statistics libs=speculation timeout=600 long=1800 */
/* The promise of the rules over trees, by statistics: what is committed is distributed as p,
 * whatever the shape, with n-grams beside drawn guesses, and for shapes that depend on what was
 * drawn. Each chi-square test, over the tokens of two or three positions together, is held to 1e-4
 * over the number of tests; it prints the total-variation distance that it finds with 90 %
 * probability. Deliberately wrong ways must be found by the same test. Seeds are fixed. */
#include "speculation/accept/tree_follow.h"
#include "tests/support/tree_shape.h"
#include "tests/support/tree_statistics.h"

static const struct tree_plan plans[] = {
    {"chain 3", 3, {-1, 0, 1}, {0}},
    {"3 leaves", 3, {-1, -1, -1}, {0}},
    {"binary, depth 3", 14, {-1, 0, 1, 1, 0, 4, 4, -1, 7, 8, 8, 7, 11, 11}, {0}},
    {"uneven", 8, {-1, 0, 1, 2, 0, -1, 5, -1}, {0}},
    {"3 chains of 2", 6, {-1, 0, -1, 2, -1, 4}, {0}},
    {"n-gram, then drawn", 7, {-1, 0, -1, 2, 2, -1, 5}, {1, 1, 0, 0, 0, 0, 0}},
    {"drawn, then n-gram", 7, {-1, 0, -1, 2, -1, 4, 4}, {0, 0, 0, 0, 1, 1, 0}},
};
enum { N_PLANS = sizeof plans / sizeof *plans };

static const struct {
    const char *name;
    tree_accept_fn *accept;
    grow_fn *grow;
} rules[] = {
    {"rejection", tree_accept_rejection, without_replacement},
    {"traversal", tree_accept_traversal, without_replacement},
    {"rejection, independent", tree_accept_rejection, with_replacement},
    {"traversal, independent", tree_accept_traversal, with_replacement},
    {"naive", tree_accept_naive, without_replacement},
    {"k-sequential", tree_accept_k_sequential, with_replacement},
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* Every rule in every shape; the worlds take turns. */
START_TEST(lossless_rules_have_the_distribution_of_the_target)
{
    for (int s = 0; s < N_PLANS; s++) {
        const struct tree_world *world = &worlds[(s + _i) % N_WORLDS];
        double p = p_value(world, &plans[s], rules[_i].grow, rules[_i].accept, rules[_i].name);
        ck_assert_msg(p >= P_LEAST, "%s, %s, %s: p-value %g", world->name, plans[s].name,
                      rules[_i].name, p);
    }
}
END_TEST

/* Shapes that depend on what was drawn: the second child exists only after some first ones; who
 * grows further depends on the tokens of all children, later siblings included. */
static void adaptive(const struct tree_world *world, const struct tree_plan *plan, int context,
                     const struct rng_address *at, struct tree_round *round)
{
    struct guess_tree early = {.n = 0}; /* the root's children, as they were drawn */
    (void)plan;
    tree_grow(world, &early, -1, false, context, at);
    bool has_second = early.tokens[0] % 3 != 0;
    if (has_second) tree_grow(world, &early, -1, false, context, at);
    if (has_second && early.tokens[1] % 2 == 0) tree_grow(world, &early, -1, false, context, at);
    struct guess_tree *tree = &round->tree;
    int last = early.tokens[early.n - 1], grown[3] = {-1, -1, -1};
    *tree = (struct guess_tree){.n = 0};
    round->at = *at;
    for (int i = 0; i < early.n; i++) { /* the same coins give the same tokens */
        grown[i] = tree->n;
        if (!tree_grow(world, tree, -1, false, context, at)) break;
        bool grows = last % 2 == i % 2;
        if (!grows || !tree_grow(world, tree, grown[i], false, context, at)) continue;
        int first = tree->n - 1;
        if (tree->tokens[first] % 2) tree_grow(world, tree, first, false, context, at);
        if (last % 3) tree_grow(world, tree, grown[i], false, context, at);
    }
    tree_make_rows(world, round, context);
}

/* Siblings that were found, with a one-hot q each, alone and after one that was drawn. */
static void found_beside(const struct tree_world *world, const struct tree_plan *plan, int context,
                         const struct rng_address *at, struct tree_round *round)
{
    static int32_t ids[TREE_VOCAB];
    static float one = 1;
    static struct sparse_dist hot[TREE_VOCAB];
    static const int parents[] = {-1, 0, 0, 0, -1, -1}, ranks[] = {0, -1, 0, 1, 1, 2};
    struct guess_tree *tree = &round->tree;
    (void)plan;
    round->at = *at;
    *tree = (struct guess_tree){.n = 0};
    for (int i = 0; i < 6; i++) {
        int own = tree_node_context(world, tree, parents[i], context);
        int32_t token = (3 * own + ranks[i]) % world->n_vocab;
        if (ranks[i] < 0) tree_grow(world, tree, parents[i], false, context, at);
        if (ranks[i] < 0) continue;
        ids[token] = token;
        hot[token] = (struct sparse_dist){1, &ids[token], &one};
        tree->tokens[tree->n] = token;
        tree->parents[tree->n] = parents[i];
        tree->q[tree->n++] = &hot[token];
    }
    tree_make_rows(world, round, context);
}

/* EAGLE-2's growth: in each layer the best nodes of the one before share its budget, at most as
 * many as there are children to give out. */
struct following {
    double constant_ratio;
    int budget[3];
};

static void follow(const struct tree_world *world, const struct following *f, int context,
                   const struct rng_address *at, struct tree_round *round)
{
    struct guess_tree drawn = {.n = 0};
    double value[TREE_NODES_MAX + 1] = {1};
    int first = -1;
    for (int layer = 0; layer < 3; layer++) {
        int chosen[TREE_NODES_MAX], end = drawn.n, begin = first;
        int n_last = layer == 0 ? 1 : end - begin;
        int n = tree_follow_expand(value + begin + 1, n_last, f->budget[layer], chosen);
        struct tree_follow_parent parents[TREE_NODES_MAX];
        for (int i = 0; i < n; i++) {
            int own = tree_node_context(world, &drawn, begin + chosen[i], context);
            parents[i] = (struct tree_follow_parent){.value = value[begin + chosen[i] + 1]};
            parents[i].n_best = tree_follow_best(&world->q[own], parents[i].best);
        }
        tree_follow_share(parents, n, f->budget[layer], f->constant_ratio);
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < parents[i].n_children; k++) {
                int node = drawn.n;
                if (!tree_grow(world, &drawn, begin + chosen[i], false, context, at)) break;
                float q = sparse_prob(drawn.q[node], drawn.tokens[node]);
                value[node + 1] = tree_follow_value(parents[i].value, q, k, f->constant_ratio);
            }
        }
        first = layer == 0 ? 0 : end;
    }
    round->at = *at;
    round->tree = drawn;
    guess_tree_sort(&round->tree);
    tree_make_rows(world, round, context);
}

static void eagle(const struct tree_world *world, const struct tree_plan *plan, int context,
                  const struct rng_address *at, struct tree_round *round)
{
    (void)plan;
    const struct following f = {0, {3, 4, 4}};
    follow(world, &f, context, at, round);
}

static void eagle_half(const struct tree_world *world, const struct tree_plan *plan, int context,
                       const struct rng_address *at, struct tree_round *round)
{
    (void)plan;
    const struct following f = {0.5, {3, 4, 4}};
    follow(world, &f, context, at, round);
}

/* Wrong: nodes are dropped from the end after a look at their own tokens, as the reranking of
 * EAGLE-2 does where tokens are drawn. */
static void dropping(const struct tree_world *world, const struct tree_plan *plan, int context,
                     const struct rng_address *at, struct tree_round *round)
{
    (void)plan;
    round->at = *at;
    round->tree = (struct guess_tree){.n = 0};
    tree_grow(world, &round->tree, -1, false, context, at);
    tree_grow(world, &round->tree, -1, false, context, at);
    const struct guess_tree *tree = &round->tree;
    while (tree->n > 0) {
        int last = tree->n - 1;
        if (sparse_prob(tree->q[last], tree->tokens[last]) >= 0.25f) break;
        round->tree.n--;
    }
    tree_make_rows(world, round, context);
}

/* Wrong: siblings are verified from the likeliest on and not as they were drawn. */
static void sorted(const struct tree_world *world, const struct tree_plan *plan, int context,
                   const struct rng_address *at, struct tree_round *round)
{
    (void)plan;
    tree_make_round(world, &plans[1], false, context, at, round);
    struct guess_tree *tree = &round->tree;
    for (int i = 1; i < tree->n; i++) {
        for (int k = i; k > 0; k--) {
            int32_t token = tree->tokens[k], before = tree->tokens[k - 1];
            if (sparse_prob(tree->q[k], token) <= sparse_prob(tree->q[k], before)) break;
            tree->tokens[k] = before;
            tree->tokens[k - 1] = token;
        }
    }
}

/* Wrong: drawn without replacement and judged as if with it, so q is not made smaller. */
static void not_renormalised(const struct tree_world *world, const struct tree_plan *plan,
                             int context, const struct rng_address *at, struct tree_round *round)
{
    tree_make_round(world, plan, false, context, at, round);
    round->tree.is_independent = true;
}

START_TEST(shapes_may_depend_on_what_was_drawn)
{
    const struct tree_plan shapes[] = {{.name = "adaptive"},
                                       {.name = "EAGLE-2"},
                                       {.name = "EAGLE-2, half constant"},
                                       {.name = "found siblings"}};
    grow_fn *const grows[] = {adaptive, eagle, eagle_half, found_beside};
    for (int w = 0; w < N_WORLDS; w++) {
        for (int r = 0; r < 8; r++) {
            const struct tree_plan *plan = &shapes[r / 2];
            double p =
                p_value(&worlds[w], plan, grows[r / 2], rules[r % 2].accept, rules[r % 2].name);
            ck_assert_msg(p >= P_LEAST, "%s, %s: p-value %g", worlds[w].name, rules[r % 2].name, p);
        }
    }
}
END_TEST

/* Wrong: what replaces rejected guesses is drawn from p. */
static struct tree_result next_of_p(const struct guess_tree *tree, const struct target_row *rows,
                                    const struct rng_address *at, double *room)
{
    struct tree_result result = tree_accept_traversal(tree, rows, at, room);
    const struct rng_address here = {at->seed, at->position + (uint32_t)result.n_accepted,
                                     at->round};
    int last = result.n_accepted ? result.path[result.n_accepted - 1] : -1;
    result.next = target_row_draw(&rows[last + 1], &here);
    return result;
}

START_TEST(wrong_ways_are_found)
{
    const struct tree_plan one = {.name = "wrong"};
    const struct {
        const char *name;
        int world;
        const struct tree_plan *plan;
        grow_fn *grow;
        tree_accept_fn *accept;
    } wrong[] = {
        {"q not renormalised", 0, &plans[1], not_renormalised, tree_accept_rejection},
        {"q not renormalised", 0, &plans[2], not_renormalised, tree_accept_traversal},
        {"dropped after a look", 2, &one, dropping, tree_accept_rejection},
        {"dropped after a look", 2, &one, dropping, tree_accept_traversal},
        {"sorted after a look", 2, &one, sorted, tree_accept_rejection},
        {"next from p", 0, &plans[3], without_replacement, next_of_p},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        double p = p_value_of_wrong(&worlds[wrong[i].world], wrong[i].plan, wrong[i].grow,
                                    wrong[i].accept, wrong[i].name);
        ck_assert_msg(p < P_LEAST || DRAWS_ARE_FEW, "'%s' was not found", wrong[i].name);
    }
}
END_TEST

static const struct tree_plan eight_to_ten[] = {
    {"chain of 8", 8, {-1, 0, 1, 2, 3, 4, 5, 6}, {0}},
    {"2 chains of 4", 8, {-1, 0, 1, 2, -1, 4, 5, 6}, {0}},
    {"3,2: 9 nodes", 9, {-1, 0, 0, -1, 3, 3, -1, 6, 6}, {0}},
    {"2,2,1: 10 nodes", 10, {-1, 0, 1, 0, 3, -1, 5, 6, 5, 8}, {0}},
    {"uneven: 10 nodes", 10, {-1, 0, 1, 2, 1, 0, 5, -1, 7, -1}, {0}},
};

/* Sun et al.: block >= token by token. Weng et al.: traversal >= recursive rejection. */
START_TEST(traversal_accepts_more_than_recursive_rejection)
{
    for (size_t w = 0; w < sizeof large / sizeof *large; w++) {
        double ratio = 1;
        tree_world_open(&large[w]);
        for (size_t s = 0; s < sizeof eight_to_ten / sizeof *eight_to_ten; s++) {
            const struct tree_plan *plan = &eight_to_ten[s];
            struct length of[3], independent;
            tree_accept_fn *const accepts[] = {tree_accept_rejection, tree_accept_traversal,
                                               tree_accept_naive};
            accepted(&large[w], plan, without_replacement, accepts, 3, of);
            accepted(&large[w], plan, with_replacement, accepts, 1, &independent);
            double rejection = mean_of(&of[0]), traversal = mean_of(&of[1]);
            double error = error_of(&of[0]);
            printf("%-10s alpha %.2f %-18s rejection %.3f traversal %.3f (%+.1f %%) naive %.3f "
                   "rejection, independent %.3f (standard error %.3f)\n",
                   large[w].name, tree_world_alpha(&large[w]), plan->name, rejection, traversal,
                   100 * (traversal / rejection - 1), mean_of(&of[2]), mean_of(&independent),
                   error);
            ck_assert(traversal > rejection - 4 * error);
            ck_assert(mean_of(&independent) < rejection + 4 * error);
            ratio *= traversal / rejection;
        }
        printf("%-10s geometric mean %+.1f %%\n", large[w].name, 100 * (pow(ratio, 0.2) - 1));
    }
}
END_TEST

static const struct tree_plan three_two_one = {
    "3,2,1", 15, {-1, 0, 1, 0, 3, -1, 5, 6, 5, 8, -1, 10, 11, 10, 13}, {0}};
static struct following three_six_six = {0, {3, 6, 6}};

static void as_three_two_one(const struct tree_world *world, const struct tree_plan *plan,
                             int context, const struct rng_address *at, struct tree_round *round)
{
    (void)plan;
    follow(world, &three_six_six, context, at, round);
}

/* Guesses that stay of as many for each place: as planned, 3,2,1, and where they follow q. The
 * paper's value, the product of q, is right for the rule under which a token must equal the
 * target's draw, and wrong where drawn guesses stay by p over q. */
START_TEST(following_q_keeps_more)
{
    static tree_accept_fn *const accepts[] = {tree_accept_rejection, tree_accept_traversal,
                                              tree_accept_naive};
    const double parts[] = {0, tree_follow_constant_ratio(&accept_rules[RULE_REJECTION])};
    for (size_t w = 0; w < sizeof large / sizeof *large; w++) {
        struct length fixed[3], of[3];
        double ratio[2][3];
        tree_world_open(&large[w]);
        accepted(&large[w], &three_two_one, without_replacement, accepts, 3, fixed);
        for (int i = 0; i < 2; i++) {
            three_six_six.constant_ratio = parts[i];
            accepted(&large[w], &three_two_one, as_three_two_one, accepts, 3, of);
            for (int r = 0; r < 3; r++) {
                ratio[i][r] = mean_of(&of[r]) / mean_of(&fixed[r]);
            }
            printf(
                "%-10s following q, constant %.1f, over 3,2,1: rejection %+.1f %% traversal %+.1f "
                "%% naive %+.1f %%\n",
                large[w].name, parts[i], 100 * (ratio[i][0] - 1), 100 * (ratio[i][1] - 1),
                100 * (ratio[i][2] - 1));
        }
        ck_assert(LENGTHS < 5000 || (ratio[1][0] > 1 && ratio[1][1] > 0.985));
        ck_assert(LENGTHS < 5000 || (ratio[0][0] < 0.9 && ratio[0][1] < 0.9));
        ck_assert(LENGTHS < 5000 || ratio[0][2] > ratio[1][2]);
    }
}
END_TEST

/* Upper bound of any rule for k independent guesses, over the contexts: a token can be the one that
 * stays only if it is guessed (Sun et al. 2023). */
static double most_for_k(const struct tree_world *world, int k)
{
    double sum = 0;
    for (int c = 0; c < TREE_CONTEXTS; c++) {
        for (int i = 0; i < world->n_vocab; i++) {
            double q = (double)sparse_prob(&world->q[c], i);
            sum += fmin((double)world->p[c][i], 1 - pow(1 - q, k));
        }
    }
    return sum / TREE_CONTEXTS;
}

/* SpecTr: at least 1 - (1 - 1/k)^k of the optimal transport. */
START_TEST(k_sequential_keeps_its_bound)
{
    for (size_t w = 0; w < sizeof large / sizeof *large; w++) {
        tree_world_open(&large[w]);
        for (int k = 2; k <= 8; k *= 2) {
            struct tree_plan leaves = {.name = "leaves", .n = k};
            for (int i = 0; i < k; i++) {
                leaves.parents[i] = -1;
            }
            struct length of[3], distinct;
            tree_accept_fn *const accepts[] = {tree_accept_k_sequential, tree_accept_rejection,
                                               tree_accept_traversal};
            accepted(&large[w], &leaves, with_replacement, accepts, 3, of);
            accepted(&large[w], &leaves, without_replacement, accepts + 1, 1, &distinct);
            double most = most_for_k(&large[w], k), bound = 1 - pow(1 - 1.0 / k, k);
            double stays = mean_of(&of[0]);
            printf("%-10s %d leaves: k-sequential %.3f, %.3f of at most %.3f (bound %.3f); "
                   "recursive rejection %.3f, without replacement %.3f (standard error %.3f)\n",
                   large[w].name, k, stays, stays / most, most, bound, mean_of(&of[1]),
                   mean_of(&distinct), error_of(&of[0]));
            ck_assert(stays > bound * most - 4 * error_of(&of[0]));
            ck_assert(stays < most + 4 * error_of(&of[0]));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_statistics");
    TCase *tcase = tcase_create("statistics");
    for (int w = 0; w < N_WORLDS; w++) {
        tree_world_open(&worlds[w]);
    }
    tcase_add_loop_test(tcase, lossless_rules_have_the_distribution_of_the_target, 0, N_RULES);
    tcase_add_test(tcase, shapes_may_depend_on_what_was_drawn);
    tcase_add_test(tcase, wrong_ways_are_found);
    tcase_add_test(tcase, traversal_accepts_more_than_recursive_rejection);
    tcase_add_test(tcase, k_sequential_keeps_its_bound);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("following");
    tcase_add_test(tcase, following_q_keeps_more);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
