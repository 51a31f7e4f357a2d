/* ctest: labels=full,statistics libs=speculation timeout=900 long=1800 */
/* The promise of every rule, by statistics: what is committed is distributed as p. Rows go the
 * whole compact way from logits. Seeds are fixed, so a run repeats itself. Every chi-square test is
 * held to 1e-4 over the number of tests (Bonferroni); each prints the total-variation distance that
 * it would find with 90 % probability, and deliberately wrong rules must be found. */
#include "speculation/accept/rules.h"

#include <stdio.h>

#include "tests/support/accept_world_list.h"
#include "tests/support/draws.h"
#include "tests/support/stats_util.h"

enum { EDGE_DRAWS = DRAWS_ARE_FEW ? 10000 : 50000 };
/* Worlds with many draws: the small one and the one whose draws leave the list. */
enum { SMALL = 0, MEDIUM = 2, DEPTH_MAX = 3 };

#define N_TESTS   200.0 /* at most; the Bonferroni factor */
#define P_LEAST   (1e-4 / N_TESTS)
#define P_LEAST_Z 4.9 /* its one-sided normal deviate */

/* Sum and sum of squares of accepted guesses in first rounds. */
struct tally {
    double n, sum, squares, at_least_one;
};

static double tally_mean(const struct tally *tally)
{
    return tally->sum / tally->n;
}

static double tally_error(const struct tally *tally)
{
    double mean = tally_mean(tally);
    return sqrt((tally->squares / tally->n - mean * mean) / tally->n);
}

/* Rounds until `depth` tokens are committed. */
static void commit_tokens(struct world *world, enum accept_rule rule, accept_fn *accept,
                          uint64_t seed, int depth, int32_t *tokens, struct tally *tally)
{
    int n = 0, context = world_start(world);
    while (n < depth) {
        const struct rng_address at = {seed, 10 + (uint32_t)n, 10 + (uint32_t)n};
        struct world_round round;
        world_round(world, rule, context, &at, false, &round);
        struct accept_result result =
            accept(round.rows, round.q, round.draft, world->n_draft, &round.at);
        if (n == 0) {
            tally->n++;
            tally->sum += result.n_accepted;
            tally->squares += (double)result.n_accepted * result.n_accepted;
            tally->at_least_one += result.n_accepted > 0;
        }
        for (int i = 0; i <= result.n_accepted && n < depth; i++) {
            tokens[n++] = i < result.n_accepted ? round.draft[i] : result.next;
        }
        context = tokens[n - 1];
    }
}

/* Probability of a string of tokens, the first being the most significant digit of `cell`. */
static double joint_prob(const struct world *world, int cell, int depth)
{
    int32_t tokens[DEPTH_MAX];
    for (int i = depth - 1; i >= 0; i--) {
        tokens[i] = cell % world->n_vocab;
        cell /= world->n_vocab;
    }
    double p = 1;
    for (int i = 0, context = world_start(world); i < depth; context = tokens[i++]) {
        p *= world->p[context][tokens[i]];
    }
    return p;
}

static struct stats_result test_depth(const struct world *world, const char *rule, int depth,
                                      const int32_t (*draws)[DEPTH_MAX], int n_draws)
{
    int n_cells = 1;
    for (int i = 0; i < depth; i++) {
        n_cells *= world->n_vocab;
    }
    int64_t *seen = calloc((size_t)n_cells, sizeof *seen);
    double *wanted = calloc((size_t)n_cells, sizeof *wanted);
    ck_assert(seen && wanted);
    for (int d = 0; d < n_draws; d++) {
        int cell = 0;
        for (int i = 0; i < depth; i++) {
            if (draws[d][i] < 0 || draws[d][i] >= world->n_vocab) ck_abort_msg("foreign token");
            cell = cell * world->n_vocab + draws[d][i];
        }
        seen[cell]++;
    }
    for (int c = 0; c < n_cells; c++) {
        wanted[c] = joint_prob(world, c, depth);
    }
    struct stats_result result = stats_chi_square(seen, wanted, n_cells);
    free(seen);
    free(wanted);
    printf("%-18s %-14s %d token%s %8d draws %6d cells chi2 %9.1f p %.2e finds TV %.4f\n",
           world->name, rule, depth, depth > 1 ? "s" : " ", n_draws, result.n_cells,
           result.chi_square, result.p_value,
           result.n_cells > 1 ? stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z) : 0.0);
    return result;
}

/* The smallest p-value over the first token, the first two, and the first three where those are
 * few. */
static double smallest_p(struct world *world, const char *name, enum accept_rule rule,
                         accept_fn *accept, int n_draws, struct tally *tally)
{
    int depth = world->n_vocab <= 6 ? 3 : 2;
    int32_t(*draws)[DEPTH_MAX] = calloc((size_t)n_draws, sizeof *draws);
    ck_assert(draws != NULL);
    *tally = (struct tally){0};
    world_open(world);
    for (int d = 0; d < n_draws; d++) {
        commit_tokens(world, rule, accept, (uint64_t)d * 0x9E3779B97F4A7C15u + 1, depth, draws[d],
                      tally);
    }
    double smallest = 1;
    for (int k = 1; k <= depth; k++) {
        struct stats_result result =
            test_depth(world, name, k, (const int32_t(*)[DEPTH_MAX])draws, n_draws);
        smallest = result.p_value < smallest ? result.p_value : smallest;
    }
    world_close(world);
    free(draws);
    fflush(stdout);
    return smallest;
}

static void check_rule(enum accept_rule rule)
{
    for (int w = 0; w < N_WORLDS; w++) {
        struct tally tally;
        int n_draws =
            w == SMALL || w == MEDIUM ? draws_part(600000, 50000) : draws_part(50000, 10000);
        double p = smallest_p(&worlds[w], accept_rules[rule].name, rule, accept_rules[rule].accept,
                              n_draws, &tally);
        ck_assert_msg(p >= P_LEAST, "%s in world '%s': p-value %g", accept_rules[rule].name,
                      worlds[w].name, p);
        if (strncmp(worlds[w].name, "p = q", 5) == 0 && rule != RULE_NAIVE) {
            ck_assert_msg(tally_mean(&tally) == worlds[w].n_draft, "%s: %g of %d accepted",
                          worlds[w].name, tally_mean(&tally), worlds[w].n_draft);
        }
        if (strcmp(worlds[w].name, "disjoint") == 0) ck_assert(tally.sum == 0);
    }
}

/* Greedy is no sampling; its text is compared with plain decoding in test_accept_rules.c. */
START_TEST(lossless_rules_have_the_distribution_of_the_target)
{
    const struct rule *rule = &accept_rules[_i];
    if (rule->is_lossless && !rule->is_greedy) check_rule((enum accept_rule)_i);
}
END_TEST

/* Wrong: a rejected guess is replaced by a draw from p itself. */
static struct accept_result wrong_residual(const struct target_row *rows,
                                           const struct sparse_dist *q, const int32_t *draft,
                                           int n_draft, const struct rng_address *at)
{
    struct accept_result result = accept_rejection(rows, q, draft, n_draft, at);
    const struct rng_address here = {at->seed, at->position + (uint32_t)result.n_accepted,
                                     at->round};
    result.next = target_row_draw(&rows[result.n_accepted], &here);
    return result;
}

/* Wrong: the residual forgets what lies outside of the draft's support. */
static struct accept_result wrong_outside(const struct target_row *rows,
                                          const struct sparse_dist *q, const int32_t *draft,
                                          int n_draft, const struct rng_address *at)
{
    struct target_row inside[WORLD_DRAFT_MAX + 1];
    for (int i = 0; i <= n_draft; i++) {
        inside[i] = rows[i];
        if (i < n_draft) inside[i].outside_mass = 0;
    }
    return accept_rejection(inside, q, draft, n_draft, at);
}

/* Wrong: block's prefix, but rejection's residual max(0, p - q) instead of max(0, scale p - q). */
static struct accept_result wrong_block(const struct target_row *rows, const struct sparse_dist *q,
                                        const int32_t *draft, int n_draft,
                                        const struct rng_address *at)
{
    struct accept_result result = accept_block(rows, q, draft, n_draft, at);
    if (result.n_accepted == n_draft) return result;
    const struct rng_address here = {at->seed, at->position + (uint32_t)result.n_accepted,
                                     at->round};
    int32_t none = -1; /* in no support: rejected at once, so that the plain residual is drawn */
    struct target_row row = rows[result.n_accepted];
    row.outside_mass = 0;
    result.next =
        row.n ? accept_rejection(&row, &q[result.n_accepted], &none, 1, &here).next : result.next;
    return result;
}

START_TEST(wrong_rules_are_found)
{
    struct tally tally;
    const struct {
        const char *name;
        enum accept_rule rule;
        accept_fn *accept;
        int world, n_draws;
    } wrong[] = {{"residual = p", RULE_REJECTION, wrong_residual, 0, EDGE_DRAWS},
                 {"residual = p", RULE_REJECTION, wrong_residual, 2, EDGE_DRAWS},
                 {"residual = p", RULE_REJECTION, wrong_residual, 3, EDGE_DRAWS},
                 {"no outside", RULE_REJECTION, wrong_outside, 1, EDGE_DRAWS},
                 {"no outside", RULE_REJECTION, wrong_outside, 2, EDGE_DRAWS},
                 {"block, unscaled", RULE_BLOCK, wrong_block, SMALL, 300000}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        double p = smallest_p(&worlds[wrong[i].world], wrong[i].name, wrong[i].rule,
                              wrong[i].accept, wrong[i].n_draws, &tally);
        ck_assert_msg(p < P_LEAST, "%s was not found", wrong[i].name);
    }
}
END_TEST

static struct tally acceptance(struct world *world, enum accept_rule rule)
{
    struct tally tally = {0};
    world_open(world);
    for (int d = 0; d < EDGE_DRAWS; d++) {
        int32_t tokens[DEPTH_MAX];
        commit_tokens(world, rule, accept_rules[rule].accept, (uint64_t)d * 77777 + 5, 1, tokens,
                      &tally);
    }
    world_close(world);
    return tally;
}

START_TEST(block_accepts_at_least_as_much_as_rejection_and_naive_less)
{
    for (int w = 0; w < N_MAIN_WORLDS; w++) {
        struct tally rejection = acceptance(&worlds[w], RULE_REJECTION);
        struct tally block = acceptance(&worlds[w], RULE_BLOCK);
        struct tally naive = acceptance(&worlds[w], RULE_NAIVE);
        struct tally coupled = acceptance(&worlds[w], RULE_COUPLED);
        double error = tally_error(&rejection);
        printf("%-18s accepted of %d: rejection %.4f block %.4f naive %.4f coupled %.4f "
               "(standard error %.4f)\n",
               worlds[w].name, worlds[w].n_draft, tally_mean(&rejection), tally_mean(&block),
               tally_mean(&naive), tally_mean(&coupled), error);
        ck_assert(tally_mean(&block) > tally_mean(&rejection) - 3 * error);
        ck_assert(tally_mean(&naive) < tally_mean(&rejection) + 3 * error);
    }
}
END_TEST

/* Sum of min(p, q) is the chance that the first guess stays (Leviathan, corollary 3.6). */
START_TEST(rejection_keeps_the_first_guess_as_often_as_theory_says)
{
    for (int w = 0; w < N_MAIN_WORLDS; w++) {
        struct tally tally = acceptance(&worlds[w], RULE_REJECTION);
        int start = world_start(&worlds[w]);
        double wanted = 0;
        for (int i = 0; i < worlds[w].n_vocab; i++) {
            wanted += fmin(worlds[w].p[start][i], (double)sparse_prob(&worlds[w].q[start], i));
        }
        double seen = tally.at_least_one / tally.n;
        ck_assert_msg(fabs(seen - wanted) < 4 * sqrt(wanted * (1 - wanted) / tally.n),
                      "%s: %g instead of %g", worlds[w].name, seen, wanted);
    }
}
END_TEST

/* Sun et al., section 2: 10/9 tokens by token, 11/9 by block. */
START_TEST(the_example_of_the_block_paper_comes_out)
{
    struct world *world = &worlds[N_WORLDS - 1];
    struct tally rejection = acceptance(world, RULE_REJECTION);
    struct tally block = acceptance(world, RULE_BLOCK);
    printf("paper's example: rejection %.4f (10/9), block %.4f (11/9)\n", tally_mean(&rejection),
           tally_mean(&block));
    ck_assert(fabs(tally_mean(&rejection) - 10.0 / 9) < 4 * tally_error(&rejection));
    ck_assert(fabs(tally_mean(&block) - 11.0 / 9) < 4 * tally_error(&block));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accept");
    TCase *tcase = tcase_create("statistics");
    tcase_add_loop_test(tcase, lossless_rules_have_the_distribution_of_the_target, 0, RULE_COUNT);
    tcase_add_test(tcase, wrong_rules_are_found);
    tcase_add_test(tcase, block_accepts_at_least_as_much_as_rejection_and_naive_less);
    tcase_add_test(tcase, rejection_keeps_the_first_guess_as_often_as_theory_says);
    tcase_add_test(tcase, the_example_of_the_block_paper_comes_out);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
