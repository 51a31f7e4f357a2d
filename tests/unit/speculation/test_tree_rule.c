/* ctest: labels=full,statistics libs=speculation timeout=900 */
/* The rules over trees of guesses: a tree that is a chain gives what the rule of chains gives, and
 * what is committed is distributed as p for trees of all shapes, by chi-square on the first tokens
 * together, with fixed seeds. Deliberately wrong trees must be found. How much the rules accept is
 * printed and held against the order of their papers. */
#include <stdio.h>

#include "speculation/rule.h"
#include "tests/support/accept_world_list.h"
#include "tests/support/stats_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { DRAWS = 5000, EDGE_DRAWS = 500, CHAINS = 1000 };
#else
enum { DRAWS = 80000, EDGE_DRAWS = 4000, CHAINS = 20000 };
#endif
enum { WRONG_DRAWS = 40000 };
enum { TOKENS_MOST = 2, SCRATCH = 4096, WIDTHS_MOST = 4, SMALL = 0, NARROW = 1 };

#define N_TESTS   300.0 /* at most; the Bonferroni factor */
#define P_LEAST   (1e-4 / N_TESTS)
#define P_LEAST_Z 5.0

/* Children by depth; only the first child of a guess has children where `is_spine`. */
struct shape {
    const char *name;
    int widths[WIDTHS_MOST];
    bool is_spine;
    bool has_found; /* a guess of its own, with a one-hot q, before the children of each guess */
    bool is_wrong;  /* siblings are tested as if they were independent */
};

static const struct shape shapes[] = {
    {"chain", {1, 1}, false, false, false},      {"two", {2}, false, false, false},
    {"three", {3}, false, false, false},         {"binary", {2, 2}, false, false, false},
    {"3, 2, 1", {3, 2, 1}, false, false, false}, {"spine", {2, 2, 2}, true, false, false},
    {"wide spine", {4, 3}, true, false, false},  {"found too", {1, 1}, false, true, false},
    {"found, two", {2, 1}, false, true, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, BINARY = 3 };

/* A tree of guesses behind a context, with its rows. */
struct grown {
    struct tree_guesses guesses;
    int32_t tokens[TREE_NODES_MAX], parents[TREE_NODES_MAX];
    const struct sparse_dist *q[TREE_NODES_MAX];
    struct sparse_dist one_hot[TREE_NODES_MAX], copies[TREE_NODES_MAX];
    int32_t one_id[TREE_NODES_MAX];
    float one_p[TREE_NODES_MAX];
    int at_depth[WIDTHS_MOST + 1]; /* guesses so far */
    struct target_row rows[TREE_NODES_MAX + 1];
    struct sparse_dist wished[TREE_NODES_MAX + 1]; /* the union of the children's supports */
    int32_t wished_ids[TREE_NODES_MAX + 1][WORLD_SUPPORT + 1];
    struct rng_address at;
};

static struct rng_address coins_at(const struct rng_address *at, int depth)
{
    return (struct rng_address){at->seed, at->position + (uint32_t)depth, at->round};
}

static int add_guess(struct grown *g, int parent, int32_t token, const struct sparse_dist *q)
{
    int i = g->guesses.n++;
    g->tokens[i] = token;
    g->parents[i] = parent;
    g->q[i] = q;
    return i;
}

static const struct sparse_dist *one_hot(struct grown *g, int32_t token)
{
    int i = g->guesses.n;
    g->one_id[i] = token;
    g->one_p[i] = 1;
    g->one_hot[i] = (struct sparse_dist){1, &g->one_id[i], &g->one_p[i]};
    return &g->one_hot[i];
}

/* Sibling number `rank` as the draft makes it; -1: q has no further token. */
static int32_t draw_sibling(const struct world *world, struct grown *g, enum accept_rule rule,
                            int context, int depth, const int32_t *taken, int rank)
{
    const struct sparse_dist *q = &world->q[context];
    const struct rng_address here = coins_at(&g->at, depth);
    if (!(tree_q_left(q, taken, rank) > 0) || rank >= q->n) return -1;
    if (!accept_rules[rule].is_coupled) {
        uint32_t index = (uint32_t)g->at_depth[depth];
        return tree_q_draw(q, taken, rank, rng_uniform(&here, RNG_DRAFT, index));
    }
    int32_t ids[WORLD_SUPPORT];
    float logits[WORLD_SUPPORT];
    int n = 0;
    for (int k = 0; k < q->n; k++) {
        bool is_taken = false;
        for (int t = 0; t < rank; t++) {
            is_taken |= taken[t] == q->ids[k];
        }
        if (is_taken) continue;
        ids[n] = q->ids[k];
        logits[n++] = logf(q->p[k]);
    }
    return sampling_coupled_pick(ids, logits, n, 1, here.seed, here.position);
}

static void grow(struct world *world, const struct shape *shape, enum accept_rule rule,
                 struct grown *g, int parent, int context, int depth)
{
    bool is_end = depth >= WIDTHS_MOST || shape->widths[depth] == 0;
    int32_t taken[WIDTHS_MOST];
    struct sparse_dist *wished = &g->wished[1 + parent];
    const struct sparse_dist *q = &world->q[context];
    const struct rng_address here = coins_at(&g->at, depth);
    if (is_end) {
        world_row(world, rule, context, NULL, &here, false, &g->rows[1 + parent]);
        return;
    }
    *wished = (struct sparse_dist){0, g->wished_ids[1 + parent], q->p};
    int32_t found = shape->has_found ? (context + 1) % world->n_vocab : -1;
    for (int k = 0; k <= q->n; k++) {
        bool is_next = found >= 0 && (k == q->n || q->ids[k] >= found);
        if (is_next) wished->ids[wished->n++] = found;
        if (is_next && k < q->n && q->ids[k] == found) wished->n--;
        if (is_next) found = -1;
        if (k < q->n) wished->ids[wished->n++] = q->ids[k];
    }
    world_row(world, rule, context, wished, &here, false, &g->rows[1 + parent]);
    if (shape->has_found) {
        found = (context + 1) % world->n_vocab;
        const struct sparse_dist *hot = one_hot(g, found);
        int i = add_guess(g, parent, found, hot);
        g->at_depth[depth]++;
        grow(world, shape, rule, g, i, found, depth + 1);
    }
    for (int rank = 0; rank < shape->widths[depth]; rank++) {
        int32_t token = draw_sibling(world, g, rule, context, depth, taken, rank);
        if (token < 0) return;
        taken[rank] = token;
        const struct sparse_dist *from = q;
        if (shape->is_wrong) from = memcpy(&g->copies[g->guesses.n], q, sizeof *q);
        if (accept_rules[rule].is_coupled) from = one_hot(g, token);
        int i = add_guess(g, parent, token, from);
        g->at_depth[depth]++;
        if (rank == 0 || !shape->is_spine) {
            grow(world, shape, rule, g, i, token, depth + 1);
        } else {
            const struct rng_address next = coins_at(&g->at, depth + 1);
            world_row(world, rule, token, NULL, &next, false, &g->rows[1 + i]);
        }
    }
}

static void grow_tree(struct world *world, const struct shape *shape, enum accept_rule rule,
                      int context, const struct rng_address *at, struct grown *g)
{
    arena_reset(&world->arena);
    g->guesses = (struct tree_guesses){0, g->tokens, g->parents, g->q};
    memset(g->at_depth, 0, sizeof g->at_depth);
    g->at = *at;
    grow(world, shape, rule, g, -1, context, 0);
}

static struct tree_result accept_grown(const struct grown *g, tree_rule_fn *accept)
{
    static double scratch[SCRATCH];
    ck_assert(tree_scratch(g->rows, g->guesses.n) <= SCRATCH);
    return accept(g->rows, &g->guesses, &g->at, scratch);
}

/* ---- chains ---- */

static void check_chain(struct world *world, enum accept_rule rule, const struct shape *shape,
                        uint64_t seed, struct grown *g)
{
    const struct rng_address at = {seed, 10, 10};
    struct sparse_dist q[WIDTHS_MOST];
    grow_tree(world, shape, rule, world_start(world), &at, g);
    for (int i = 0; i < g->guesses.n; i++) {
        q[i] = *g->q[i];
    }
    struct accept_result chain =
        accept_rules[rule].accept(g->rows, q, g->tokens, g->guesses.n, &at);
    struct tree_result tree = accept_grown(g, accept_rules[rule].accept_tree);
    if (tree.n_accepted != chain.n_accepted || tree.next != chain.next) {
        ck_abort_msg("%s, %s: %d and %d, but as a tree %d and %d", world->name,
                     accept_rules[rule].name, chain.n_accepted, chain.next, tree.n_accepted,
                     tree.next);
    }
    for (int i = 0; i < tree.n_accepted; i++) {
        if (tree.path[i] != i) ck_abort_msg("path of a chain");
    }
}

START_TEST(a_chain_is_accepted_as_a_chain)
{
    static const struct shape chain = {"chain", {1, 1, 1}, false, false, false};
    static struct grown g;
    for (int w = 0; w < N_WORLDS; w++) {
        bool is_greedy = accept_rules[_i].is_greedy;
        struct sampling_params before = worlds[w].target;
        if (is_greedy) worlds[w].target.temperature = 0;
        world_open(&worlds[w]);
        for (int d = 0; d < CHAINS / 10; d++) {
            check_chain(&worlds[w], (enum accept_rule)_i, &chain, (uint64_t)d * 77777 + 3, &g);
        }
        world_close(&worlds[w]);
        worlds[w].target = before;
    }
}
END_TEST

/* ---- the distribution ---- */

/* Rounds until two tokens are committed; returns how many guesses stay in the first. */
static int commit_two(struct world *world, const struct shape *shape, enum accept_rule rule,
                      tree_rule_fn *accept, uint64_t seed, int32_t tokens[TOKENS_MOST])
{
    static struct grown g;
    int n = 0, context = world_start(world), n_first = -1;
    while (n < TOKENS_MOST) {
        const struct rng_address at = {seed, 10 + (uint32_t)n, 10 + (uint32_t)n};
        grow_tree(world, shape, rule, context, &at, &g);
        struct tree_result result = accept_grown(&g, accept);
        if (n_first < 0) n_first = result.n_accepted;
        for (int i = 0; i <= result.n_accepted && n < TOKENS_MOST; i++) {
            tokens[n++] = i < result.n_accepted ? g.tokens[result.path[i]] : result.next;
        }
        context = tokens[n - 1];
    }
    return n_first;
}

/* The p-value of the first two tokens together. */
static double joint_p(struct world *world, const struct shape *shape, enum accept_rule rule,
                      tree_rule_fn *accept, int n_draws, double *accepted)
{
    int n = world->n_vocab, n_cells = n * n;
    int64_t *seen = calloc((size_t)n_cells, sizeof *seen);
    double *wanted = calloc((size_t)n_cells, sizeof *wanted);
    ck_assert(seen && wanted);
    *accepted = 0;
    for (int d = 0; d < n_draws; d++) {
        int32_t tokens[TOKENS_MOST];
        *accepted +=
            commit_two(world, shape, rule, accept, (uint64_t)d * 0x9E3779B97F4A7C15u + 1, tokens);
        for (int i = 0; i < TOKENS_MOST; i++) {
            if (tokens[i] < 0 || tokens[i] >= n) ck_abort_msg("foreign token");
        }
        seen[tokens[0] * n + tokens[1]]++;
    }
    *accepted /= n_draws;
    for (int c = 0; c < n_cells; c++) {
        wanted[c] = world->p[world_start(world)][c / n] * world->p[c / n][c % n];
    }
    struct stats_result result = stats_chi_square(seen, wanted, n_cells);
    printf("%-20s %-10s %-10s %7d draws %6d cells p %.2e finds TV %.4f, accepted %.4f\n",
           world->name, shape->name, accept_rules[rule].name, n_draws, result.n_cells,
           result.p_value,
           result.n_cells > 1 ? stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z) : 0.0,
           *accepted);
    free(seen);
    free(wanted);
    return result.p_value;
}

START_TEST(lossless_rules_keep_the_distribution)
{
    const struct rule *rule = &accept_rules[_i / N_SHAPES];
    const struct shape *shape = &shapes[_i % N_SHAPES];
    if (!rule->is_lossless || rule->is_greedy) return;
    if (rule == &accept_rules[RULE_NAIVE] && _i % N_SHAPES != BINARY) return;
    for (int w = 0; w < N_WORLDS; w++) {
        double accepted;
        int n_draws = w == SMALL || w == NARROW ? DRAWS : EDGE_DRAWS;
        if (w > NARROW && _i % N_SHAPES % 2 && !shape->has_found) continue;
        world_open(&worlds[w]);
        double p = joint_p(&worlds[w], shape, (enum accept_rule)(_i / N_SHAPES), rule->accept_tree,
                           n_draws, &accepted);
        world_close(&worlds[w]);
        ck_assert_msg(p >= P_LEAST, "%s, %s in world '%s': p-value %g", rule->name, shape->name,
                      worlds[w].name, p);
    }
}
END_TEST

START_TEST(wrong_trees_are_found)
{
    static const struct shape wrong = {"wrong", {3, 2}, false, false, true};
    double accepted;
    tree_rule_fn *const rules[] = {tree_rejection, tree_traversal};
    world_open(&worlds[SMALL]);
    for (int i = 0; i < 2; i++) {
        double p = joint_p(&worlds[SMALL], &wrong, i ? RULE_BLOCK : RULE_REJECTION, rules[i],
                           WRONG_DRAWS, &accepted);
        ck_assert_msg(p < P_LEAST, "p-value %g", p);
    }
    world_close(&worlds[SMALL]);
}
END_TEST

/* ---- how much stays ---- */

START_TEST(traversal_accepts_more_than_recursive_rejection)
{
    static struct world world = {.name = "medium, eight guesses",
                                 .n_vocab = 100,
                                 .n_slices = 8,
                                 .support = 64,
                                 .target = SAMPLE(1),
                                 .draft = SAMPLE(1),
                                 .spread = 2.2,
                                 .noise = 1.2};
    static const struct shape trees[] = {
        {"chain of 8", {1, 1, 1, 1}, false, false, false},
        {"8 nodes", {2, 1, 1, 1}, false, false, false},
        {"10 nodes", {2, 2, 1}, false, false, false},
    };
    double accepted[2], least = 10;
    world_open(&world);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 2; i++) {
            joint_p(&world, &trees[t], i ? RULE_BLOCK : RULE_REJECTION,
                    i ? tree_traversal : tree_rejection, DRAWS / 4, &accepted[i]);
        }
        double ratio = (1 + accepted[1]) / (1 + accepted[0]);
        printf("%s: tokens per round, traversal over recursive rejection %.4f, accepted %.4f\n",
               trees[t].name, ratio, accepted[1] / accepted[0]);
        if (t > 0 && accepted[1] / accepted[0] < least) least = accepted[1] / accepted[0];
    }
    world_close(&world);
    ck_assert(least >= 1.03);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_rule");
    TCase *tcase = tcase_create("statistics");
    tcase_set_timeout(tcase, 800);
    tcase_add_loop_test(tcase, a_chain_is_accepted_as_a_chain, 0, RULE_COUNT);
    tcase_add_loop_test(tcase, lossless_rules_keep_the_distribution, 0, RULE_COUNT * N_SHAPES);
    tcase_add_test(tcase, wrong_trees_are_found);
    tcase_add_test(tcase, traversal_accepts_more_than_recursive_rejection);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
