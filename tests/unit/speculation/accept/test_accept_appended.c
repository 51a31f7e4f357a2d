/* ctest: labels=full,statistics libs=speculation timeout=600 long=1800 */
/* Guesses of a draft, and after them found ones, whose number and tokens depend on the guesses
 * before them: the committed tokens are distributed as p under every rule that promises it, because
 * all that was looked at is sent. Where a guess is dropped by its value instead, the test finds it.
 * Seeds are fixed; every chi-square test is held to 1e-4 over the number of tests and prints the
 * total-variation distance that it would find with 90 % probability. */
#include <stdio.h>

#include "speculation/accept/rules.h"
#include "tests/support/accept_world_list.h"
#include "tests/support/draws.h"
#include "tests/support/stats_util.h"

enum { SMALL = 0, N_OWN = 2, DEPTH = 3, N_TESTS = 20 };

static const double p_least = 1e-4 / N_TESTS, p_least_z = 4.4; /* its one-sided normal deviate */

/* The found guess after a token. */
static int32_t found_after(const struct world *world, int32_t token)
{
    return (2 * token + 1) % world->n_vocab;
}

/* A round whose own guesses are followed by found ones; returns how many guesses it has. */
static int make_round(struct world *world, enum accept_rule rule, int context,
                      const struct rng_address *at, struct world_round *round)
{
    static float one = 1;
    static int32_t ids[WORLD_DRAFT_MAX];
    world->n_draft = N_OWN;
    world_round(world, rule, context, at, false, round);
    int n = N_OWN, n_found = round->draft[N_OWN - 1] % 3; /* 0 .. 2 */
    for (; n < N_OWN + n_found; n++) {
        int before = round->draft[n - 1];
        const struct rng_address here = {at->seed, at->position + (uint32_t)n, at->round};
        round->draft[n] = ids[n] = found_after(world, before);
        round->q[n] = (struct sparse_dist){1, &ids[n], &one};
        world_row(world, rule, before, &round->q[n], &here, false, &round->rows[n]);
    }
    const struct rng_address last = {at->seed, at->position + (uint32_t)n, at->round};
    world_row(world, rule, round->draft[n - 1], NULL, &last, false, &round->rows[n]);
    return n;
}

/* Rounds until DEPTH tokens are committed. is_dropped: the last own guess is not sent where it is
 * odd, and neither are the found ones after it. */
static void commit_tokens(struct world *world, enum accept_rule rule, uint64_t seed,
                          bool is_dropped, int32_t tokens[DEPTH], int64_t *n_found)
{
    int n = 0, context = world_start(world);
    while (n < DEPTH) {
        const struct rng_address at = {seed, 10 + (uint32_t)n, 10 + (uint32_t)n};
        struct world_round round;
        int n_draft = make_round(world, rule, context, &at, &round);
        if (is_dropped && round.draft[N_OWN - 1] % 2) {
            n_draft = N_OWN - 1;
            world_row(world, rule, round.draft[0], NULL,
                      &(struct rng_address){seed, at.position + 1, at.round}, false,
                      &round.rows[1]);
        }
        struct accept_result result =
            accept_rules[rule].accept(round.rows, round.q, round.draft, n_draft, &round.at);
        *n_found += result.n_accepted > N_OWN ? result.n_accepted - N_OWN : 0;
        for (int i = 0; i <= result.n_accepted && n < DEPTH; i++) {
            tokens[n++] = i < result.n_accepted ? round.draft[i] : result.next;
        }
        context = tokens[n - 1];
    }
}

static double chance_of(const struct world *world, int cell)
{
    int32_t tokens[DEPTH];
    double p = 1;
    for (int i = DEPTH - 1; i >= 0; i--, cell /= world->n_vocab) {
        tokens[i] = cell % world->n_vocab;
    }
    for (int i = 0, context = world_start(world); i < DEPTH; context = tokens[i++]) {
        p *= world->p[context][tokens[i]];
    }
    return p;
}

/* The p-value of the first DEPTH tokens. */
static double test_draws(struct world *world, enum accept_rule rule, bool is_dropped)
{
    int n_cells = world->n_vocab * world->n_vocab * world->n_vocab;
    int64_t *seen = calloc((size_t)n_cells, sizeof *seen), n_found = 0;
    double *wanted = calloc((size_t)n_cells, sizeof *wanted);
    ck_assert(seen && wanted);
    int n_draws = is_dropped ? draws_all(200000, 20000) : draws_part(200000, 20000);
    for (int d = 0; d < n_draws; d++) {
        int32_t tokens[DEPTH];
        commit_tokens(world, rule, (uint64_t)d * 0x9E3779B97F4A7C15u + 1, is_dropped, tokens,
                      &n_found);
        int cell = 0;
        for (int i = 0; i < DEPTH; i++) {
            cell = cell * world->n_vocab + tokens[i];
        }
        seen[cell]++;
    }
    for (int c = 0; c < n_cells; c++) {
        wanted[c] = chance_of(world, c);
    }
    struct stats_result result = stats_chi_square(seen, wanted, n_cells);
    printf("%-12s %-10s %6d draws %4d cells chi2 %8.1f p %.2e finds TV %.4f, %lld found stay\n",
           accept_rules[rule].name, is_dropped ? "dropped" : "sent", n_draws, result.n_cells,
           result.chi_square, result.p_value,
           stats_detectable_tv(n_draws, result.n_cells, p_least_z), (long long)n_found);
    fflush(stdout);
    ck_assert(n_found > n_draws / 200);
    free(seen);
    free(wanted);
    return result.p_value;
}

START_TEST(found_guesses_after_others_keep_the_distribution)
{
    const struct rule *rule = &accept_rules[_i];
    if (!rule->is_lossless || rule->is_greedy) return;
    world_open(&worlds[SMALL]);
    double p = test_draws(&worlds[SMALL], (enum accept_rule)_i, false);
    ck_assert_msg(p >= p_least, "%s: p-value %g", rule->name, p);
    world_close(&worlds[SMALL]);
}
END_TEST

START_TEST(a_guess_that_is_dropped_by_its_value_is_found_out)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK};
    world_open(&worlds[SMALL]);
    double p = test_draws(&worlds[SMALL], rules[_i], true);
    ck_assert_msg(p < p_least, "%s: p-value %g", accept_rules[rules[_i]].name, p);
    world_close(&worlds[SMALL]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accept_appended");
    TCase *tcase = tcase_create("statistics");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, found_guesses_after_others_keep_the_distribution, 0, RULE_COUNT);
    tcase_add_loop_test(tcase, a_guess_that_is_dropped_by_its_value_is_found_out, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
