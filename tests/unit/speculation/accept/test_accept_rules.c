/* ctest: labels=quick libs=speculation timeout=120 */
/* Decisions of the rules that need no statistics: equal ones for compact and full rows and for any
 * cut into slices, the edges of docs/design.md section 6, and typical acceptance by direct
 * computation. */
#include "tests/support/accept_world_list.h"

enum { SEEDS = 300 };

static const struct rng_address origin = {.seed = 3, .position = 20, .round = 18};

static struct accept_result decide(struct world *world, enum accept_rule rule, uint64_t seed,
                                   bool full_rows, struct world_round *round)
{
    const struct rng_address at = {.seed = seed, .position = 9, .round = 4};
    world_round(world, rule, world_start(world), &at, full_rows, round);
    return accept_rules[rule].accept(round->rows, round->q, round->draft, world->n_draft, &at);
}

START_TEST(compact_and_full_rows_decide_alike)
{
    for (int w = 0; w < N_WORLDS; w++) {
        world_open(&worlds[w]);
        for (int rule = 0; rule < RULE_COUNT; rule++) {
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                struct world_round round;
                struct accept_result a =
                    decide(&worlds[w], (enum accept_rule)rule, seed, false, &round);
                struct accept_result b =
                    decide(&worlds[w], (enum accept_rule)rule, seed, true, &round);
                ck_assert_msg(a.n_accepted == b.n_accepted && a.next == b.next,
                              "%s in world '%s', seed %d", accept_rules[rule].name, worlds[w].name,
                              (int)seed);
            }
        }
        world_close(&worlds[w]);
    }
}
END_TEST

/* The guesses that stay are those that stay one by one, so the rows after them are not needed. */
START_TEST(rules_that_decide_guess_by_guess_need_no_further_rows)
{
    int n_keep = 0;
    for (int w = 0; w < N_WORLDS; w++) {
        world_open(&worlds[w]);
        for (int rule = 0; rule < RULE_COUNT; rule++) {
            rule_keep_fn *keep = accept_rules[rule].keep;
            n_keep += keep ? 1 : 0;
            for (uint64_t seed = 0; keep && seed < SEEDS; seed++) {
                const struct rng_address at = {.seed = seed, .position = 9, .round = 4};
                struct world_round round;
                struct accept_result whole =
                    decide(&worlds[w], (enum accept_rule)rule, seed, false, &round);
                int n = 0;
                for (; n < worlds[w].n_draft; n++) {
                    const struct rng_address here = {at.seed, at.position + (uint32_t)n, at.round};
                    if (!keep(&round.rows[n], &round.q[n], round.draft[n], &here)) break;
                }
                ck_assert_int_eq(n, whole.n_accepted);
                for (int i = n + 1; i <= worlds[w].n_draft; i++) {
                    round.rows[i] = (struct target_row){.outside_id = -1};
                }
                struct accept_result cut = accept_rules[rule].accept(
                    round.rows, round.q, round.draft, worlds[w].n_draft, &at);
                ck_assert_int_eq(cut.n_accepted, whole.n_accepted);
                ck_assert_int_eq(cut.next, whole.next);
            }
        }
        world_close(&worlds[w]);
    }
    ck_assert(n_keep > 0 && accept_rules[RULE_REJECTION].keep);
    ck_assert(!accept_rules[RULE_BLOCK].keep); /* it decides over all of them */
}
END_TEST

/* Coins of tokens outside of the list belong to slices, so those tokens, and with them what `naive`
 * draws, may differ with S. A model's S is fixed. Everything else is the same. */
START_TEST(any_number_of_slices_decides_alike)
{
    const int counts[] = {1, 2, 8};
    for (int w = 0; w < N_WORLDS; w++) {
        int n_slices = worlds[w].n_slices;
        world_open(&worlds[w]);
        for (int rule = 0; rule < RULE_COUNT; rule++) {
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                struct accept_result results[3];
                struct world_round round;
                bool is_outside = false;
                for (int i = 0; i < 3; i++) {
                    worlds[w].n_slices = counts[i];
                    results[i] = decide(&worlds[w], (enum accept_rule)rule, seed, i == 1, &round);
                    const struct target_row *row = &round.rows[results[i].n_accepted];
                    is_outside |= row->outside_mass > 0 && results[i].next == row->outside_id;
                }
                for (int i = 1; i < 3; i++) {
                    bool is_same = results[i].next == results[0].next || is_outside;
                    bool is_drawn = rule == RULE_NAIVE && is_outside;
                    ck_assert(is_drawn || results[i].n_accepted == results[0].n_accepted);
                    ck_assert(is_same);
                }
            }
        }
        worlds[w].n_slices = n_slices;
        world_close(&worlds[w]);
    }
}
END_TEST

/* The text of plain sampling with the same seed: the next token of every round is what K = 0 gives
 * at that position. */
static void check_equals_plain(struct world *world, enum accept_rule rule)
{
    world_open(world);
    int n_draft = world->n_draft;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int32_t text[2][12];
        for (int plain = 0; plain <= 1; plain++) {
            world->n_draft = plain ? 0 : n_draft;
            for (int n = 0, context = world_start(world); n < 12;) {
                const struct rng_address at = {seed, (uint32_t)n, (uint32_t)n};
                struct world_round round;
                world_round(world, rule, context, &at, false, &round);
                struct accept_result result = accept_rules[rule].accept(
                    round.rows, round.q, round.draft, world->n_draft, &at);
                for (int i = 0; i <= result.n_accepted && n < 12; i++) {
                    text[plain][n++] = i < result.n_accepted ? round.draft[i] : result.next;
                }
                context = text[plain][n - 1];
            }
        }
        ck_assert(memcmp(text[0], text[1], sizeof text[0]) == 0);
    }
    world->n_draft = n_draft;
    world_close(world);
}

START_TEST(greedy_and_coupled_give_the_text_of_plain_decoding)
{
    for (int w = 0; w < N_WORLDS; w++) {
        check_equals_plain(&worlds[w], RULE_GREEDY);
        check_equals_plain(&worlds[w], RULE_COUPLED);
    }
}
END_TEST

START_TEST(without_guesses_every_sampling_rule_draws_from_p)
{
    const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE, RULE_TYPICAL};
    struct world *world = &worlds[2];
    world_open(world);
    for (uint32_t i = 0; i < SEEDS; i++) {
        const struct rng_address at = {.seed = i, .position = 5};
        struct target_row row;
        arena_reset(&world->arena);
        world_row(world, RULE_REJECTION, 0, NULL, &at, false, &row);
        int32_t wanted = target_row_draw(&row, &at);
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            struct accept_result result = accept_rules[rules[r]].accept(&row, NULL, NULL, 0, &at);
            ck_assert(result.n_accepted == 0 && result.next == wanted);
        }
    }
    world_close(world);
}
END_TEST

/* Rows made by hand, because rounding can leave q above p everywhere: then there is no residual. */
START_TEST(a_residual_without_mass_samples_p)
{
    int32_t ids[] = {1, 4};
    float q_p[] = {0.5f, 0.5f};
    const float p[] = {0, 0.5f};
    const struct sparse_dist q = {.n = 2, .ids = ids, .p = q_p};
    const struct target_row rows[] = {{.n = 2, .ids = ids, .p = p, .outside_id = -1},
                                      {.n = 2, .ids = ids, .p = p, .outside_id = -1}};
    const int32_t draft[] = {1};
    for (uint32_t i = 0; i < SEEDS; i++) {
        struct rng_address at = origin;
        at.seed = i;
        struct accept_result result = accept_rejection(rows, &q, draft, 1, &at);
        ck_assert(result.n_accepted == 0 && result.next == 4);
        result = accept_block(rows, &q, draft, 1, &at);
        ck_assert(result.n_accepted == 0 && result.next == 4);
    }
}
END_TEST

START_TEST(equal_distributions_keep_every_guess)
{
    int32_t ids[] = {1, 4};
    float p[] = {0.25f, 0.75f};
    const struct sparse_dist q[] = {{.n = 2, .ids = ids, .p = p}, {.n = 2, .ids = ids, .p = p}};
    const struct target_row row = {.n = 2, .ids = ids, .p = p, .outside_id = -1};
    const struct target_row rows[] = {row, row, row};
    const int32_t draft[] = {1, 4};
    for (uint32_t i = 0; i < SEEDS; i++) {
        struct rng_address at = origin;
        at.seed = i;
        ck_assert_int_eq(accept_rejection(rows, q, draft, 2, &at).n_accepted, 2);
        ck_assert_int_eq(accept_block(rows, q, draft, 2, &at).n_accepted, 2);
    }
}
END_TEST

START_TEST(a_one_hot_target_keeps_its_token_alone)
{
    int32_t ids[] = {1, 4}, best[] = {4};
    float q_p[] = {0.5f, 0.5f};
    const float one[] = {1};
    const struct sparse_dist q = {.n = 2, .ids = ids, .p = q_p};
    const struct target_row row = {.n = 1, .ids = best, .p = one, .outside_id = -1};
    const struct target_row rows[] = {row, row};
    const enum accept_rule rules[] = {RULE_REJECTION, RULE_GREEDY, RULE_COUPLED, RULE_BLOCK,
                                      RULE_NAIVE};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        for (int i = 0; i < 2; i++) {
            struct accept_result result =
                accept_rules[rules[r]].accept(rows, &q, &ids[i], 1, &origin);
            ck_assert(result.n_accepted == i && result.next == 4);
        }
    }
}
END_TEST

/* Accept while p > min(0.09, 0.3 exp(-H)), with p and H computed here. */
static int typical_reference(const struct world *world, const struct world_round *round,
                             bool *is_close)
{
    int context = world_start(world);
    for (int i = 0; i < world->n_draft; context = round->draft[i++]) {
        double entropy = 0;
        for (int k = 0; k < world->n_vocab; k++) {
            double p = world->p[context][k];
            entropy -= p > 0 ? p * log(p) : 0;
        }
        double least = fmin(0.09, 0.3 * exp(-entropy));
        double p = round->draft[i] < world->n_vocab ? world->p[context][round->draft[i]] : 0;
        *is_close |= fabs(p - least) < 1e-5;
        if (!(p > least)) return i;
    }
    return world->n_draft;
}

START_TEST(typical_equals_a_direct_computation)
{
    int n_seen[WORLD_DRAFT_MAX + 1] = {0};
    for (int w = 0; w < N_WORLDS; w++) {
        world_open(&worlds[w]);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct world_round round;
            bool is_close = false;
            struct accept_result result = decide(&worlds[w], RULE_TYPICAL, seed, false, &round);
            int wanted = typical_reference(&worlds[w], &round, &is_close);
            if (is_close) continue;
            ck_assert_int_eq(result.n_accepted, wanted);
            int context = wanted ? round.draft[wanted - 1] : world_start(&worlds[w]);
            ck_assert(worlds[w].p[context][result.next] > 0);
            n_seen[wanted]++;
        }
        world_close(&worlds[w]);
    }
    ck_assert(n_seen[0] > SEEDS && n_seen[1] > SEEDS && n_seen[2] > SEEDS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accept_rules");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, compact_and_full_rows_decide_alike);
    tcase_add_test(tcase, rules_that_decide_guess_by_guess_need_no_further_rows);
    tcase_add_test(tcase, any_number_of_slices_decides_alike);
    tcase_add_test(tcase, greedy_and_coupled_give_the_text_of_plain_decoding);
    tcase_add_test(tcase, without_guesses_every_sampling_rule_draws_from_p);
    tcase_add_test(tcase, a_residual_without_mass_samples_p);
    tcase_add_test(tcase, equal_distributions_keep_every_guess);
    tcase_add_test(tcase, a_one_hot_target_keeps_its_token_alone);
    tcase_add_test(tcase, typical_equals_a_direct_computation);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
