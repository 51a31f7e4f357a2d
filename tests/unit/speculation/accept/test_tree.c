/* ctest: labels=quick libs=speculation timeout=120 */
/* Decisions over trees that need no statistics: a chain decides as the rules over chains do, bit
 * for bit; malformed trees are refused; siblings and lists are drawn as they are judged; a row
 * names what its children need. The promises are in test_tree_statistics.c. */
#include "base/memory.h"
#include "tests/support/tree_world.h"

enum { SEEDS = 2000, SCRATCH = 64 * TREE_VOCAB };

static double scratch[SCRATCH];
static struct tree_world world = {
    .name = "small", .n_vocab = 30, .support = 12, .exponent = 1, .noise = 1, .temperature = 1};
static const struct tree_plan chain = {"chain", 5, {-1, 0, 1, 2, 3}, {0}};
static const struct tree_plan mixed = {
    "mixed", 9, {-1, 0, 1, -1, 3, 3, -1, 6, 6}, {1, 1, 1, 0, 0, 0, 0, 0, 0}};

static void one_hot_rows(struct tree_round *round, int32_t (*best)[1])
{
    static const float one[1] = {1};
    for (int i = 0; i <= round->tree.n; i++) {
        double u = rng_uniform(&round->at, RNG_LOAD, (uint32_t)i);
        const struct target_row *row = &round->rows[i];
        bool is_match = i < round->tree.n && u < 0.8;
        best[i][0] = is_match ? round->tree.tokens[i] : row->n ? row->ids[0] : 1;
        round->rows[i] = (struct target_row){.n = 1, .ids = best[i], .p = one, .outside_id = -1};
    }
}

START_TEST(a_chain_decides_as_the_rule_over_chains)
{
    static struct tree_round round;
    const struct rule *rule = &accept_rules[_i];
    int n_seen[TREE_NODES_MAX] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sparse_dist q[TREE_NODES_MAX];
        int32_t best[TREE_NODES_MAX][1];
        const struct rng_address at = {seed, 40, 38};
        tree_make_round(&world, &chain, false, 3, &at, &round);
        for (int i = 0; i < round.tree.n; i++) {
            q[i] = *round.tree.q[i];
            round.rows[i].entropy = 1 + 2 * rng_uniform(&at, RNG_LOAD, (uint32_t)i);
        }
        if (rule->accept == accept_match) one_hot_rows(&round, best);
        struct accept_result a = rule->accept(round.rows, q, round.tree.tokens, round.tree.n, &at);
        struct tree_result b = rule->accept_tree(&round.tree, round.rows, &at, scratch);
        ck_assert_int_eq(a.n_accepted, b.n_accepted);
        ck_assert_int_eq(a.next, b.next);
        for (int i = 0; i < b.n_accepted; i++) {
            ck_assert_int_eq(b.path[i], i);
        }
        n_seen[a.n_accepted]++;
    }
    ck_assert_msg(n_seen[0] > 0 && n_seen[1] > 0 && n_seen[2] > 0, "%s: %d %d %d", rule->name,
                  n_seen[0], n_seen[1], n_seen[2]);
}
END_TEST

/* Without siblings and with them rule_accept says what the rule's function over trees says, and a
 * chain needs no room. */
START_TEST(a_rule_accepts_any_tree)
{
    static struct tree_round round;
    const struct rule *rule = &accept_rules[_i / 2];
    struct arena arena;
    struct error err;
    CHECK_OK(arena_open(&arena, _i % 2 ? 1 << 16 : 1, &err));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int32_t best[TREE_NODES_MAX][1];
        const struct rng_address at = {seed, 40, 38};
        struct tree_result wanted, result;
        tree_make_round(&world, _i % 2 ? &mixed : &chain, false, 3, &at, &round);
        if (rule->accept == accept_match) one_hot_rows(&round, best);
        arena_reset(&arena);
        wanted = rule->accept_tree(&round.tree, round.rows, &at, scratch);
        CHECK_OK(rule_accept(rule, &tree_rules[TREE_RULE_AUTO], &round.tree, round.rows, &at,
                             &arena, &result, &err));
        ck_assert(result.n_accepted == wanted.n_accepted && result.next == wanted.next);
        ck_assert_int_eq(memcmp(result.path, wanted.path, (size_t)wanted.n_accepted * sizeof(int)),
                         0);
    }
    arena_close(&arena);
}
END_TEST

START_TEST(a_chain_decides_by_k_sequential_selection_as_by_rejection)
{
    static struct tree_round round;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct rng_address at = {seed, 40, 38};
        tree_make_round(&world, &chain, false, 3, &at, &round);
        struct tree_result a = tree_accept_rejection(&round.tree, round.rows, &at, scratch);
        struct tree_result b = tree_accept_k_sequential(&round.tree, round.rows, &at, scratch);
        ck_assert_int_eq(a.n_accepted, b.n_accepted);
        if (a.n_accepted == round.tree.n) ck_assert_int_eq(a.next, b.next);
    }
}
END_TEST

/* All chains that hold the accepted text are candidates for the next token: with equal first tokens
 * a guess of any chain may stay, whichever of them was looked at before, and where p is q a second
 * token stays nearly always. */
START_TEST(k_sequential_selection_goes_on_with_every_chain_that_agrees)
{
    static const struct tree_plan chains = {"chains", 6, {-1, 0, -1, 2, -1, 4}, {0}};
    static struct tree_round round;
    int n_of[3] = {0}, n_equal = 0;
    for (uint64_t seed = 1; seed <= 40 * SEEDS; seed++) {
        const struct rng_address at = {seed, 40, 38};
        tree_make_round(&world, &chains, true, 3, &at, &round);
        const int32_t *tokens = round.tree.tokens;
        ck_assert(tree_is_chains(&round.tree));
        if (tokens[0] != tokens[2] || tokens[0] != tokens[4]) continue;
        n_equal++;
        struct tree_result result = tree_accept_k_sequential(&round.tree, round.rows, &at, scratch);
        if (result.n_accepted != 2) continue;
        n_of[result.path[0] / 2]++;
        /* the chain of the second guess, also where another one's first guess was kept */
        ck_assert_int_eq(result.path[1], result.path[0] + 1);
    }
    ck_assert_int_gt(n_equal, 0);
    ck_assert_msg(n_of[0] > 0 && n_of[1] > 0 && n_of[2] > 0, "%d: %d %d %d", n_equal, n_of[0],
                  n_of[1], n_of[2]);
}
END_TEST

/* A tree rule decides where the rule judges q and the tree is one that it can judge. */
START_TEST(a_tree_rule_is_for_its_trees)
{
    static const struct tree_plan chains = {"chains", 6, {-1, 0, -1, 2, -1, 4}, {0}};
    static const struct tree_plan uneven = {"uneven", 5, {-1, 0, -1, 2, -1}, {0}};
    static struct tree_round round;
    struct arena arena;
    struct error err;
    int n_other = 0;
    CHECK_OK(arena_open(&arena, 1 << 16, &err));
    for (uint64_t seed = 1; seed <= 8 * SEEDS; seed++) {
        const struct rng_address at = {seed, 40, 38};
        const struct rule *rule = &accept_rules[seed % 2 ? RULE_REJECTION : RULE_BLOCK];
        bool is_even = seed % 4 < 2;
        tree_make_round(&world, is_even ? &chains : &uneven, true, 3, &at, &round);
        ck_assert(tree_is_independent(&round.tree) && tree_is_chains(&round.tree) == is_even);
        for (int t = 0; t < TREE_RULE_COUNT; t++) {
            tree_accept_fn *wanted = rule->accept_tree;
            if (t == TREE_RULE_K_SEQUENTIAL) wanted = tree_accept_k_sequential;
            if (t == TREE_RULE_MULTI_PATH && is_even) wanted = tree_accept_paths;
            struct tree_result result, own = wanted(&round.tree, round.rows, &at, scratch);
            struct tree_result standard = rule->accept_tree(&round.tree, round.rows, &at, scratch);
            arena_reset(&arena);
            CHECK_OK(rule_accept(rule, &tree_rules[t], &round.tree, round.rows, &at, &arena,
                                 &result, &err));
            ck_assert(result.n_accepted == own.n_accepted && result.next == own.next);
            n_other += result.n_accepted != standard.n_accepted;
        }
    }
    ck_assert_int_gt(n_other, 0);
    tree_make_round(&world, &chains, false, 3, &(struct rng_address){1, 40, 38}, &round);
    ck_assert(!tree_is_independent(&round.tree) && !tree_is_chains(&round.tree));
    arena_close(&arena);
}
END_TEST

START_TEST(malformed_trees_are_refused)
{
    static struct tree_round round;
    struct error err;
    const struct rng_address at = {5, 40, 38};
    tree_make_round(&world, &mixed, false, 3, &at, &round);
    CHECK_OK(tree_check(&round.tree, world.n_vocab, &err));
    struct guess_tree tree = round.tree;
    tree.n = TREE_NODES_MAX + 1;
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "65 nodes");
    tree = round.tree;
    tree.parents[5] = 0; /* its subtree is closed already */
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "node 5 has parent 0");
    tree.parents[5] = 5;
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "node 5 has parent 5");
    tree = round.tree;
    tree.tokens[8] = tree.tokens[7];
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "without replacement");
    tree.is_independent = true;
    CHECK_OK(tree_check(&tree, world.n_vocab, &err));
    tree.tokens[8] = world.n_vocab;
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "0 to 29");
    tree.tokens[0] = (round.tree.tokens[0] + 1) % world.n_vocab;
    CHECK_ERR(tree_check(&tree, world.n_vocab, &err), ERR_ARGUMENT, "cannot give");
}
END_TEST

START_TEST(children_siblings_depths_and_coins_are_found)
{
    static struct tree_round round;
    const struct rng_address at = {5, 40, 38};
    tree_make_round(&world, &mixed, false, 3, &at, &round);
    const int child[] = {1, 2, -1, 4, -1, -1, 7, -1, -1};
    const int sibling[] = {3, -1, -1, 6, 5, -1, -1, 8, -1};
    const int depth[] = {1, 2, 3, 1, 2, 2, 1, 2, 2};
    const uint32_t index[] = {0, 0, 0, 1, 1, 2, 2, 3, 4};
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(guess_tree_child(&round.tree, i), child[i]);
        ck_assert_int_eq(guess_tree_sibling(&round.tree, i), sibling[i]);
        ck_assert_int_eq(guess_tree_depth(&round.tree, i), depth[i]);
        ck_assert_uint_eq(tree_coin_index(&round.tree, i), index[i]);
    }
    ck_assert_int_eq(guess_tree_child(&round.tree, -1), 0);
}
END_TEST

/* p of a row that is asked for over 4 slices, for each id that a child may have guessed. */
static void check_merged_row(const struct guess_tree *tree, int node, const float *logits)
{
    struct error err;
    struct arena arena;
    struct row_wish wish;
    struct slice_row slices[4];
    struct target_row row;
    bool more;
    int32_t ids[TREE_VOCAB];
    const struct sampling_params params = {.temperature = 1, .top_p = 1};
    struct target_want want = {.rule = &accept_rules[RULE_REJECTION], .params = &params};
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
    CHECK_OK(multi_draft_want(tree, node, &arena, &want, &err));
    target_row_wish(&want, &wish);
    for (int s = 0; s < 4; s++) {
        int32_t first;
        int n_cols;
        row_slice_range(world.n_vocab, 4, s, &first, &n_cols);
        const struct answer_item item = {logits + first, first, n_cols, s, &wish};
        CHECK_OK(row_slice_answer(&item, &arena, &slices[s], &err));
    }
    const struct target_slices all = {slices, 4, world.n_vocab};
    CHECK_OK(target_row_merge(&all, &want, &wish, &arena, &row, &more, &err));
    double sum = 0;
    for (int i = 0; i < world.n_vocab; i++) {
        sum += exp((double)logits[i]);
    }
    ck_assert_int_eq(row.n, multi_draft_ids(tree, node, ids));
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        for (int i = 0; i < tree->q[c]->n; i++) {
            int32_t id = tree->q[c]->ids[i];
            double wanted = exp((double)logits[id]) / sum;
            ck_assert(fabs((double)target_row_prob(&row, id) - wanted) < 1e-6);
        }
    }
    arena_close(&arena);
}

START_TEST(a_row_names_what_its_children_need)
{
    static struct tree_round round;
    float logits[TREE_VOCAB];
    for (uint64_t seed = 1; seed <= 100; seed++) {
        const struct rng_address at = {seed, 40, 38};
        tree_make_round(&world, &mixed, false, (int)seed % TREE_CONTEXTS, &at, &round);
        for (int i = 0; i < world.n_vocab; i++) {
            logits[i] = (float)(4 * rng_uniform(&at, RNG_LOAD, (uint32_t)i));
        }
        for (int node = -1; node < round.tree.n; node++) {
            int32_t ids[TREE_VOCAB];
            int n = multi_draft_ids(&round.tree, node, ids);
            ck_assert_int_le(n, multi_draft_ids_most(&round.tree, node));
            for (int i = 1; i < n; i++) {
                ck_assert_int_lt(ids[i - 1], ids[i]);
            }
            check_merged_row(&round.tree, node, logits);
        }
    }
}
END_TEST

START_TEST(more_ids_than_may_be_named_ask_for_the_whole_row)
{
    enum { MANY = ROW_IDS_MAX / 2 + 1 };
    static int32_t even[MANY], odd[MANY];
    static float p[MANY];
    for (int i = 0; i < MANY; i++) {
        even[i] = 2 * i;
        odd[i] = 2 * i + 1;
        p[i] = 1.0f / MANY;
    }
    const struct sparse_dist one = {MANY, even, p}, other = {MANY, odd, p};
    struct guess_tree tree = {.n = 2, .tokens = {0, 1}, .parents = {-1, -1}, .q = {&one, &other}};
    struct target_want want = {.rule = &accept_rules[RULE_REJECTION]};
    struct arena arena;
    struct error err;
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
    CHECK_OK(multi_draft_want(&tree, -1, &arena, &want, &err));
    ck_assert(want.q->n == 2 * MANY && want.full_rows);
    for (int i = 0; i < want.q->n; i++) {
        ck_assert_int_eq(want.q->ids[i], i);
    }
    arena_close(&arena);
}
END_TEST

START_TEST(the_list_under_shared_noise_is_the_best_in_order)
{
    int32_t ids[40], out[TREE_NODES_MAX], gone;
    float logits[40];
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const struct rng_address at = {seed, 12, 3};
        for (int i = 0; i < 40; i++) {
            ids[i] = i * 3;
            logits[i] = (float)rng_uniform(&at, RNG_LOAD, (uint32_t)i);
        }
        int n_left = 40, n = multi_draft_coupled(ids, logits, 40, 0.8f, &at, 6, out);
        ck_assert_int_eq(n, 6);
        for (int k = 0; k < n; k++) { /* the best, then the best without it, and so on */
            gone = sampling_coupled_pick(ids, logits, n_left, 0.8f, seed, 12);
            ck_assert_int_eq(out[k], gone);
            for (int i = 0; i < n_left; i++) {
                if (ids[i] != gone) continue;
                ids[i] = ids[--n_left];
                logits[i] = logits[n_left];
            }
        }
    }
    ck_assert_int_eq(multi_draft_coupled(ids, logits, 2, 1, &(struct rng_address){1, 2, 3}, 5, out),
                     2);
}
END_TEST

START_TEST(siblings_are_distinct_until_q_is_empty)
{
    int32_t ids[] = {2, 5, 9, 11}, gone[4];
    float p[] = {0.5f, 0.25f, 0, 0.25f};
    const struct sparse_dist q = {4, ids, p};
    for (uint64_t seed = 0; seed < 100; seed++) {
        const struct rng_address at = {seed, 1, 1};
        for (int k = 0; k < 3; k++) {
            double u = rng_uniform(&at, RNG_DRAFT, (uint32_t)k);
            gone[k] = multi_draft_draw(&q, gone, k, u);
            if (k == 0) ck_assert_int_eq(gone[0], sparse_draw(&q, u));
            ck_assert(gone[k] == 2 || gone[k] == 5 || gone[k] == 11);
        }
        ck_assert(gone[0] != gone[1] && gone[0] != gone[2] && gone[1] != gone[2]);
        ck_assert_int_eq(multi_draft_draw(&q, gone, 3, 0.5), -1);
    }
}
END_TEST

/* The path whose tokens are all typical, by a direct search. */
START_TEST(typical_takes_the_longest_typical_path)
{
    static struct tree_round round;
    int n_long = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct rng_address at = {seed, 40, 38};
        tree_make_round(&world, &mixed, false, 3, &at, &round);
        int longest = 0;
        for (int i = 0; i < round.tree.n; i++) {
            bool is_kept = true;
            for (int k = i; k >= 0; k = round.tree.parents[k]) {
                const struct target_row *row = &round.rows[round.tree.parents[k] + 1];
                is_kept &= (double)target_row_prob(row, round.tree.tokens[k]) > 0.09;
            }
            int depth = guess_tree_depth(&round.tree, i);
            if (is_kept && depth > longest) longest = depth;
        }
        struct tree_result result = tree_accept_typical(&round.tree, round.rows, &at, scratch);
        ck_assert_int_eq(result.n_accepted, longest);
        n_long += longest > 1;
    }
    ck_assert_int_gt(n_long, 50);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree");
    TCase *tcase = tcase_create("decisions");
    tree_world_open(&world);
    tcase_add_loop_test(tcase, a_chain_decides_as_the_rule_over_chains, 0, RULE_COUNT);
    tcase_add_test(tcase, k_sequential_selection_goes_on_with_every_chain_that_agrees);
    tcase_add_test(tcase, a_tree_rule_is_for_its_trees);
    tcase_add_loop_test(tcase, a_rule_accepts_any_tree, 0, 2 * RULE_COUNT);
    tcase_add_test(tcase, a_chain_decides_by_k_sequential_selection_as_by_rejection);
    tcase_add_test(tcase, malformed_trees_are_refused);
    tcase_add_test(tcase, children_siblings_depths_and_coins_are_found);
    tcase_add_test(tcase, a_row_names_what_its_children_need);
    tcase_add_test(tcase, more_ids_than_may_be_named_ask_for_the_whole_row);
    tcase_add_test(tcase, the_list_under_shared_noise_is_the_best_in_order);
    tcase_add_test(tcase, siblings_are_distinct_until_q_is_empty);
    tcase_add_test(tcase, typical_takes_the_longest_typical_path);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
