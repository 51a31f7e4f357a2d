/* ctest: labels=quick libs=speculation timeout=60 */
/* The wishes of each rule, and merged rows against a slow reference. */
#include <stdio.h>

#include "tests/support/merged_rows.h"

START_TEST(rule_names_are_parsed)
{
    const struct rule *rule;
    for (int i = 0; i < RULE_COUNT; i++) {
        CHECK_OK(rule_parse(accept_rule_names[i], &rule, &err));
        ck_assert_ptr_eq(rule, &accept_rules[i]);
        ck_assert_str_eq(rule->name, accept_rule_names[i]);
    }
    CHECK_ERR(rule_parse("Greedy", &rule, &err), ERR_ARGUMENT,
              "'Greedy' is no acceptance rule; there are rejection, greedy, ");
    ck_assert_ptr_nonnull(strstr(err.text, " and "));
}
END_TEST

START_TEST(a_list_of_rules_ends_where_its_room_does)
{
    char whole[256], cut[16], end[64];
    snprintf(end, sizeof end, "%s or %s", accept_rule_names[RULE_COUNT - 2],
             accept_rule_names[RULE_COUNT - 1]);
    rule_list(whole, sizeof whole, "or");
    ck_assert_int_eq(strncmp(whole, "rejection, greedy, coupled, ", 28), 0);
    ck_assert_str_eq(whole + strlen(whole) - strlen(end), end);
    ck_assert_str_eq(rule_list(cut, sizeof cut, "or"), "rejection, gree");
}
END_TEST

START_TEST(requests_without_a_rule_get_one_by_temperature_and_seed)
{
    ck_assert_ptr_eq(rule_default(0, false), &accept_rules[RULE_GREEDY]);
    ck_assert_ptr_eq(rule_default(0, true), &accept_rules[RULE_GREEDY]);
    ck_assert_ptr_eq(rule_default(1, true), &accept_rules[RULE_COUPLED]);
    ck_assert_ptr_eq(rule_default(0.5f, false), &accept_rules[RULE_REJECTION]);
}
END_TEST

START_TEST(each_rule_asks_for_what_it_needs_and_no_more)
{
    struct row_wish wish;
    const struct sampling_params cut = {.temperature = 1, .top_k = 7, .top_p = 1};
    const struct sampling_params nucleus = {.temperature = 1, .top_p = 0.9f};
    const struct sampling_params cold = {.top_k = 7, .top_p = 0.5f};
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        wish_of((enum accept_rule)rule, &cold, &q, false, &wish);
        ck_assert(wish.n_best == 1 && !wish.noisy_best && !wish.n_ids && !wish.n_temperatures);
        ck_assert(!wish.outside && !wish.full && wish.at.position == at.position);
        wish_of((enum accept_rule)rule, &plain, &q, true, &wish);
        ck_assert(wish.full && !wish.n_best && !wish.n_ids && !wish.n_temperatures);
        wish_of((enum accept_rule)rule, &cut, &q, false, &wish);
        ck_assert_int_eq(wish.n_best, accept_rules[rule].is_greedy ? 1 : 7);
        wish_of((enum accept_rule)rule, &nucleus, &q, false, &wish);
        ck_assert_int_eq(wish.n_best, accept_rules[rule].is_greedy ? 1 : 64);
        ck_assert_int_eq(wish.n_temperatures, accept_rules[rule].is_greedy ? 0 : 1);
    }
    wish_of(RULE_COUPLED, &plain, &q, false, &wish);
    ck_assert(wish.n_best == 0 && wish.noisy_best && wish.temperatures[0] == 0.8f);
    ck_assert(!wish.outside && !wish.n_ids);
    wish_of(RULE_BLOCK, &plain, &q, false, &wish);
    ck_assert(wish.outside && wish.ids == q.ids && wish.n_ids == q.n && !wish.entropy);
    wish_of(RULE_TYPICAL, &plain, &q, false, &wish);
    ck_assert(wish.outside && wish.entropy);
    wish_of(RULE_REJECTION, &plain, NULL, false, &wish);
    ck_assert(wish.outside && wish.n_ids == 0);
}
END_TEST

/* exp of logits in double over the whole vocabulary. */
static double exact_p(int id, double t)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        sum += exp(((double)logits[i] - (double)logits[id]) / t);
    }
    return 1 / sum;
}

START_TEST(probabilities_mass_outside_and_entropy_are_exact)
{
    logits[128] = -INFINITY;
    double inside = 0, entropy = 0;
    for (int i = 0; i < VOCAB; i++) {
        double p = logits[i] > -INFINITY ? exact_p(i, (double)plain.temperature) : 0;
        entropy -= p > 0 ? p * log(p) : 0;
        inside += sparse_prob(&q, i) > 0 ? p : 0;
    }
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        struct target_row row;
        merged(RULE_TYPICAL, &plain, &q, n_slices, false, &row);
        ck_assert_int_eq(row.n, q.n);
        for (int i = 0; i < q.n; i++) {
            ck_assert_int_eq(row.ids[i], q.ids[i]);
            double p = i == 3 ? 0 : exact_p(q.ids[i], (double)plain.temperature);
            ck_assert(fabs((double)row.p[i] - p) <= 1e-6 * p);
            ck_assert(target_row_prob(&row, q.ids[i]) == row.p[i]);
        }
        ck_assert(fabs(row.outside_mass - (1 - inside)) < 1e-6);
        ck_assert(sparse_prob(&q, row.outside_id) == 0);
        ck_assert(fabs(row.entropy - entropy) < 1e-5);
    }
}
END_TEST

START_TEST(one_hot_rows_hold_the_best_and_ties_go_to_the_lowest_id)
{
    struct target_row row;
    logits[400] = logits[130] = logits[599] = 50;
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        merged(RULE_GREEDY, &plain, &q, n_slices, false, &row);
        ck_assert(row.n == 1 && row.ids[0] == 130 && row.p[0] == 1);
        ck_assert(row.outside_mass == 0 && row.outside_id == -1);
        ck_assert(target_row_prob(&row, 130) == 1 && target_row_prob(&row, 400) == 0);
        ck_assert_int_eq(target_row_draw(&row, &at), 130);
    }
}
END_TEST

START_TEST(coupled_rows_do_not_depend_on_the_slices)
{
    struct target_row row;
    int32_t ids[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        ids[i] = i;
    }
    int32_t wanted = sampling_coupled_pick(ids, logits, VOCAB, plain.temperature, at.seed, 40);
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        merged(RULE_COUPLED, &plain, &q, n_slices, false, &row);
        ck_assert(row.n == 1 && row.ids[0] == wanted);
    }
}
END_TEST

/* Whatever was asked first, the row is that of all logits. */
START_TEST(compact_rows_equal_full_rows)
{
    const struct sampling_params params[] = {
        plain,
        {.temperature = 0, .top_p = 1},
        {.temperature = 1, .top_k = 9, .top_p = 1},
        {.temperature = 1, .top_k = 90, .top_p = 0.8f},
        {.temperature = 2, .top_p = 0.97f, .min_p = 0.001f},
        {.temperature = 3, .top_p = 1, .min_p = 0.01f},
        {.temperature = 1, .top_k = 100000, .top_p = 0.9f},
    };
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
            for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
                struct target_row compact, full;
                arena_reset(&arena);
                merged((enum accept_rule)rule, &params[i], &q, n_slices, false, &compact);
                ck_assert_int_eq(
                    merged((enum accept_rule)rule, &params[i], &q, n_slices, true, &full), 0);
                same_row(&compact, &full);
                merged((enum accept_rule)rule, &params[i], NULL, n_slices, false, &compact);
                merged((enum accept_rule)rule, &params[i], NULL, n_slices, true, &full);
                same_row(&compact, &full);
            }
        }
    }
}
END_TEST

/* A flat row needs more than the first 64 of each slice for 99 % of its mass. */
START_TEST(an_uncertain_cut_asks_for_more_and_then_agrees_with_a_full_sort)
{
    const struct sampling_params params = {.temperature = 1, .top_p = 0.99f};
    for (int i = 0; i < VOCAB; i++) {
        logits[i] *= 0.1f;
    }
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        struct target_row row;
        arena_reset(&arena);
        ck_assert_int_ge(merged(RULE_REJECTION, &params, &q, n_slices, false, &row), 1);
        double sum = 0, least = 1;
        for (int i = 0; i < row.n; i++) {
            double p = exact_p(row.ids[i], 1);
            sum += p;
            least = p < least ? p : least;
        }
        ck_assert(sum >= 0.99 - 1e-6 && sum - least < 0.99 + 1e-6);
        for (int i = 0; i < VOCAB; i++) {
            bool is_kept = target_row_prob(&row, i) > 0;
            ck_assert(is_kept == (exact_p(i, 1) >= least * (1 - 1e-12)));
        }
    }
    const struct sampling_params few = {.temperature = 1, .top_k = 3, .top_p = 1};
    struct target_row row;
    ck_assert_int_eq(merged(RULE_REJECTION, &few, &q, SLICES, false, &row), 0);
    ck_assert_int_eq(row.n, 3);
}
END_TEST

/* Random rows and cuts: whatever is asked first and second, the row is that of all logits, bit for
 * bit, and two questions are enough. */
START_TEST(any_cut_is_found_in_two_questions)
{
    static const float top_ps[] = {0.1f, 0.5f, 0.9f, 0.99f, 0.9999f, 1 - 0x1p-24f, 1};
    static const float min_ps[] = {0, 0, 1e-6f, 0.01f, 0.3f, 1};
    static const int top_ks[] = {0, 0, 3, 256, 257, 400, 599, 600, 100000};
    static const float temperatures[] = {0.001f, 0.3f, 1, 2.5f, 100};
    int n_second = 0;
    for (uint32_t i = 0; i < 6000; i++) {
        const struct sampling_params params = {.temperature = temperatures[i % 5],
                                               .top_p = top_ps[i / 5 % 7],
                                               .min_p = min_ps[i / 35 % 6],
                                               .top_k = top_ks[i / 210 % 9]};
        struct target_row compact, full;
        if (!sampling_truncates(&params)) continue;
        double spread = pow(10, 3 * world_uniform(7, i) - 2);
        for (uint32_t c = 0; c < VOCAB; c++) {
            double x = spread * (world_uniform(3 * i, c) - world_uniform(3 * i + 1, c));
            logits[c] = (float)(i % 4 ? x : floor(x * 4) / 4); /* with ties, too */
            if (world_uniform(3 * i + 2, c) < 0.02) logits[c] = -INFINITY;
        }
        int n_slices = 1 << i % 4;
        enum accept_rule rule = i % 3 ? RULE_REJECTION : RULE_COUPLED;
        arena_reset(&arena);
        wants_logprobs = i % 2;
        int n_asked = merged(rule, &params, &q, n_slices, false, &compact);
        merged(rule, &params, &q, n_slices, true, &full);
        same_row(&compact, &full);
        ck_assert_msg(n_asked <= 1, "case %u asks %d times", i, n_asked + 1);
        n_second += n_asked;
    }
    ck_assert_int_gt(n_second, 200);
    wants_logprobs = false;
}
END_TEST

/* Log of the sum of exp, from all logits in double. */
static double exact_log_z(void)
{
    double max = -HUGE_VAL, sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    for (int i = 0; i < VOCAB; i++) {
        sum += exp((double)logits[i] - max);
    }
    return max + log(sum);
}

static void check_logprobs(const struct target_row *row)
{
    double log_z = exact_log_z();
    bool taken[VOCAB] = {false};
    ck_assert(fabs(row->log_z - log_z) < 1e-6);
    ck_assert_int_eq(row->n_top, N_TOP);
    for (int k = 0; k < N_TOP; k++) {
        int best = -1;
        for (int i = 0; i < VOCAB; i++) {
            if (!taken[i] && (best < 0 || logits[i] > logits[best])) best = i;
        }
        taken[best] = true;
        ck_assert_int_eq(row->top_ids[k], best);
        ck_assert(fabs((double)row->top_logprobs[k] - ((double)logits[best] - log_z)) < 1e-5);
    }
    for (int i = 0; i < row->n; i++) {
        int32_t id = row->ids[i];
        double wanted = id < VOCAB ? (double)logits[id] - log_z : -HUGE_VAL;
        double got = (double)target_row_logprob(row, id);
        ck_assert(row->logits[i] == (id < VOCAB ? logits[id] : -INFINITY));
        ck_assert(got == wanted || fabs(got - wanted) < 1e-5);
    }
    if (row->outside_mass == 0) return;
    double wanted = (double)logits[row->outside_id] - log_z;
    ck_assert(row->outside_logit == logits[row->outside_id]);
    ck_assert(fabs((double)target_row_logprob(row, row->outside_id) - wanted) < 1e-5);
}

START_TEST(logprobs_are_those_of_the_raw_logits_at_temperature_one)
{
    const struct sampling_params params[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.6f, .top_p = 1},
        {.temperature = 1, .top_k = 2, .top_p = 1},
        {.temperature = 1.4f, .top_p = 0.999f},
        {.temperature = 2, .top_p = 1, .min_p = 0.0001f},
        {.temperature = 0.7f, .top_k = 500, .top_p = 0.99f},
    };
    wants_logprobs = true;
    logits[17] = logits[300] = 9; /* a tie at the top */
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
            for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
                struct target_row compact, full;
                merged((enum accept_rule)rule, &params[i], &q, n_slices, false, &compact);
                merged((enum accept_rule)rule, &params[i], &q, n_slices, true, &full);
                check_logprobs(&compact);
                same_row(&compact, &full);
            }
            arena_reset(&arena);
        }
    }
}
END_TEST

START_TEST(sums_of_another_row_are_not_taken_over)
{
    struct slice_row other[SLICES_MAX];
    const struct row_wish wish = {.n_temperatures = 1, .temperatures = {1}};
    answer(&wish, SLICES);
    memcpy(other, slices, sizeof other);
    other[3].max += 1;
    CHECK_ERR(target_row_carry(other, slices, SLICES, &err), ERR_FORMAT,
              "slice 3 has a largest logit of");
}
END_TEST

START_TEST(guesses_beyond_the_vocabulary_have_no_probability)
{
    int32_t ids[] = {3, 600, 650};
    float p[] = {0.5f, 0.25f, 0.25f};
    const struct sparse_dist longer = {.n = 3, .ids = ids, .p = p};
    struct target_row row;
    merged(RULE_REJECTION, &plain, &longer, SLICES, false, &row);
    ck_assert(target_row_prob(&row, 3) > 0);
    ck_assert(target_row_prob(&row, 600) == 0 && target_row_prob(&row, 650) == 0);
}
END_TEST

START_TEST(draws_never_return_a_token_without_mass)
{
    const int32_t ids[] = {2, 4, 6};
    const float p[] = {0, 0.999999f, 0};
    struct target_row row = {.n = 3, .ids = ids, .p = p, .outside_id = -1};
    for (uint32_t i = 0; i < 1000; i++) {
        ck_assert_int_eq(target_row_draw(&row, &(struct rng_address){.seed = i}), 4);
    }
    row.p = (const float[]){0, 0, 0};
    row.outside_mass = 1e-9;
    row.outside_id = 77;
    for (uint32_t i = 0; i < 1000; i++) {
        ck_assert_int_eq(target_row_draw(&row, &(struct rng_address){.seed = i}), 77);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_row");
    TCase *tcase = tcase_create("target_row");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, rule_names_are_parsed);
    tcase_add_test(tcase, a_list_of_rules_ends_where_its_room_does);
    tcase_add_test(tcase, requests_without_a_rule_get_one_by_temperature_and_seed);
    tcase_add_test(tcase, each_rule_asks_for_what_it_needs_and_no_more);
    tcase_add_test(tcase, probabilities_mass_outside_and_entropy_are_exact);
    tcase_add_test(tcase, one_hot_rows_hold_the_best_and_ties_go_to_the_lowest_id);
    tcase_add_test(tcase, coupled_rows_do_not_depend_on_the_slices);
    tcase_add_test(tcase, compact_rows_equal_full_rows);
    tcase_add_test(tcase, an_uncertain_cut_asks_for_more_and_then_agrees_with_a_full_sort);
    tcase_add_test(tcase, any_cut_is_found_in_two_questions);
    tcase_add_test(tcase, logprobs_are_those_of_the_raw_logits_at_temperature_one);
    tcase_add_test(tcase, sums_of_another_row_are_not_taken_over);
    tcase_add_test(tcase, guesses_beyond_the_vocabulary_have_no_probability);
    tcase_add_test(tcase, draws_never_return_a_token_without_mass);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
