/* ctest: labels=quick libs=speculation timeout=60 */
/* What is asked for each rule, and merged rows against a slow reference; replies that no correct
 * worker sends are refused. */
#include <stdio.h>

#include "base/limits.h"
#include "speculation/target_row.h"

#include "tests/support/accept_world.h"

enum {
    VOCAB = 600,
    SLICES = 8,
    BOX = 128
}; /* 8 slices of 128 columns: four and a short one used */

static struct error err;
static struct arena arena;
static float logits[VOCAB];
static struct slice_row slices[SLICES_MAX];
static int32_t q_ids[] = {0, 5, 127, 128, 300, 599};
static float q_p[] = {0.2f, 0.1f, 0.3f, 0.1f, 0.2f, 0.1f};
static const struct sparse_dist q = {.n = 6, .ids = q_ids, .p = q_p};
static const struct sampling_params plain = {.temperature = 0.8f, .top_p = 1};
static const struct rng_address at = {.seed = 11, .position = 40, .round = 38};

static void setup(void)
{
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
    for (uint32_t i = 0; i < VOCAB; i++) {
        logits[i] = (float)(6 * (world_uniform(1, i) - world_uniform(2, i)));
    }
}

static void teardown(void)
{
    arena_close(&arena);
}

static void answer(const struct row_wish *wish, int n_slices)
{
    for (int s = 0; s < n_slices; s++) {
        int32_t first;
        int n_cols;
        row_slice_range(VOCAB, n_slices, s, &first, &n_cols);
        const struct answer_item item = {logits + first, first, n_cols, s, wish};
        CHECK_OK(row_slice_answer(&item, &arena, &slices[s], &err));
    }
}

static struct target_want want_of(enum accept_rule rule, const struct sampling_params *params,
                                  const struct sparse_dist *draft, bool full)
{
    return (struct target_want){&accept_rules[rule], params, draft, at, full};
}

static void wish_of(enum accept_rule rule, const struct sampling_params *params,
                    const struct sparse_dist *draft, bool full, struct row_wish *wish)
{
    const struct target_want want = want_of(rule, params, draft, full);
    target_row_wish(&want, wish);
}

/* Merges the first n_slices of `slices`, which answer a wish; the row's guess was drawn from q. */
static int merge(int n_slices, enum accept_rule rule, const struct sampling_params *params,
                 const struct row_wish *wish, struct arena *room, struct target_row *row)
{
    const struct target_slices all = {slices, n_slices, VOCAB};
    const struct target_want want = want_of(rule, params, &q, wish->full);
    int n_more;
    return target_row_merge(&all, &want, wish, room, row, &n_more, &err);
}

/* The row of a rule, asking again as long as the merge wants more; returns how often it did. */
static int merged(enum accept_rule rule, const struct sampling_params *params,
                  const struct sparse_dist *draft, int n_slices, bool full, struct target_row *row)
{
    struct row_wish wish;
    const struct target_slices all = {slices, n_slices, VOCAB};
    const struct target_want want = want_of(rule, params, draft, full);
    target_row_wish(&want, &wish);
    for (int n_more = 0, n_asked = 0;; n_asked++, wish.n_best = n_more) {
        answer(&wish, n_slices);
        CHECK_OK(target_row_merge(&all, &want, &wish, &arena, row, &n_more, &err));
        if (n_more == 0) return n_asked;
        ck_assert_int_gt(n_more, wish.n_best);
    }
}

static void same_row(const struct target_row *a, const struct target_row *b)
{
    ck_assert_int_eq(a->n, b->n);
    ck_assert(a->n == 0 || memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0);
    ck_assert(a->n == 0 || memcmp(a->p, b->p, (size_t)a->n * sizeof *a->p) == 0);
    ck_assert(a->outside_mass == b->outside_mass && a->outside_id == b->outside_id);
    ck_assert(a->entropy == b->entropy);
}

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
        ck_assert(wish.n_best == 1 && !wish.best_is_noisy && !wish.n_ids && !wish.n_temperatures);
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
    ck_assert(wish.n_best == 1 && wish.best_is_noisy && wish.temperatures[0] == 0.8f);
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

/* A change to one slice that makes the reply impossible. */
typedef void spoil_fn(void);

static void spoil_order(void)
{
    slices[1].slice = 2;
}
static void spoil_first(void)
{
    slices[1].first_id = 64;
}
static void spoil_cols(void)
{
    slices[4].n_cols = BOX;
}
static void spoil_max_nan(void)
{
    slices[0].max = NAN;
}
static void spoil_max_inf(void)
{
    slices[0].max = INFINITY;
}
static void spoil_empty_max(void)
{
    slices[7].max = 0;
}
static void spoil_sum_nan(void)
{
    slices[2].sum_exp[0] = (double)NAN;
}
static void spoil_sum_negative(void)
{
    slices[2].sum_exp[0] = -1;
}
static void spoil_sum_large(void)
{
    slices[2].sum_exp[0] = BOX * 2;
}
static void spoil_outside_negative(void)
{
    slices[3].outside_sum = -0.5;
}
static void spoil_outside_large(void)
{
    slices[3].outside_sum = slices[3].sum_exp[0] * 2;
}
static void spoil_outside_foreign(void)
{
    slices[3].outside_id = 6;
}
static void spoil_outside_none(void)
{
    slices[3].outside_id = -1;
}
static void spoil_outside_listed(void)
{
    slices[2].outside_id = 300;
}
static void spoil_ids_count(void)
{
    slices[0].n_ids = 2;
}
static void spoil_ids_logit(void)
{
    static const float wrong[] = {0, NAN, 0};
    slices[0].id_logits = wrong;
}
static void spoil_entropy(void)
{
    slices[0].sum_exp_log = 1;
}
static void spoil_total(void)
{
    slices[0].outside_sum *= 0.5;
}
static void spoil_all_masked(void)
{
    for (int s = 0; s < SLICES; s++) {
        static const float masked[] = {-INFINITY, -INFINITY, -INFINITY};
        slices[s] = (struct slice_row){.slice = s,
                                       .first_id = slices[s].first_id,
                                       .n_cols = slices[s].n_cols,
                                       .n_ids = slices[s].n_ids,
                                       .id_logits = masked,
                                       .max = -INFINITY,
                                       .outside_id = -1};
    }
}

START_TEST(impossible_slices_are_refused)
{
    const struct {
        spoil_fn *spoil;
        const char *text;
    } cases[] = {{spoil_order, "in place of slice 1"},
                 {spoil_first, "in place of slice 1"},
                 {spoil_cols, "in place of slice 4"},
                 {spoil_max_nan, "largest logit"},
                 {spoil_max_inf, "largest logit"},
                 {spoil_empty_max, "largest logit"},
                 {spoil_sum_nan, "sum of"},
                 {spoil_sum_negative, "sum of -1"},
                 {spoil_sum_large, "sum of 256"},
                 {spoil_outside_negative, "outside"},
                 {spoil_outside_large, "outside"},
                 {spoil_outside_foreign, "foreign id 6"},
                 {spoil_outside_none, "foreign id -1"},
                 {spoil_outside_listed, "on the list"},
                 {spoil_ids_count, "2 logits of the list instead of 3"},
                 {spoil_ids_logit, "on the list"},
                 {spoil_entropy, "entropy"},
                 {spoil_total, "sum to"},
                 {spoil_all_masked, "masked"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct row_wish wish;
        struct target_row row;
        arena_reset(&arena);
        wish_of(RULE_TYPICAL, &plain, &q, false, &wish);
        answer(&wish, SLICES);
        cases[i].spoil();
        CHECK_ERR(merge(SLICES, RULE_TYPICAL, &plain, &wish, &arena, &row), ERR_FORMAT,
                  cases[i].text);
        ck_assert(row.n == 0 && row.outside_id == -1);
    }
}
END_TEST

START_TEST(impossible_best_lists_are_refused)
{
    const struct sampling_params cut = {.temperature = 1, .top_k = 3, .top_p = 1};
    const struct {
        int n;
        int32_t ids[4];
        float gaps[4];
        const char *text;
    } cases[] = {{2, {0, 1}, {0, 1}, "2 best logits instead of 3"},
                 {3, {0, 1, 200}, {0, 1, 2}, "foreign id 200"},
                 {3, {0, -1, 2}, {0, 1, 2}, "foreign id -1"},
                 {3, {0, 1, 2}, {0, 2, 1}, "out of order at id 2"},
                 {3, {0, 2, 1}, {0, 1, 1}, "out of order at id 1"},
                 {3, {0, 1, 1}, {0, 1, 1}, "out of order at id 1"},
                 {3, {0, 1, 2}, {-1, 1, 2}, "its max is"},
                 {3, {0, 1, 2}, {0, NAN, 2}, "its max is"},
                 {3, {0, 1, 2}, {1, 2, 3}, "below its max"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct row_wish wish;
        struct target_row row;
        float best[4];
        arena_reset(&arena);
        wish_of(RULE_REJECTION, &cut, &q, false, &wish);
        answer(&wish, SLICES);
        for (int k = 0; k < cases[i].n; k++) {
            best[k] = slices[0].max - cases[i].gaps[k];
        }
        slices[0].n_best = cases[i].n;
        slices[0].best_ids = cases[i].ids;
        slices[0].best_logits = best;
        CHECK_ERR(merge(SLICES, RULE_REJECTION, &cut, &wish, &arena, &row), ERR_FORMAT,
                  cases[i].text);
    }
}
END_TEST

START_TEST(missing_slices_and_full_arenas_are_refused)
{
    const struct sampling_params all[] = {
        plain, {.top_p = 1}, {.temperature = 1, .top_k = 9, .top_p = 1}};
    struct target_row row;
    struct row_wish wish;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct arena tiny;
        CHECK_OK(arena_open(&tiny, 64, &err));
        wish_of(RULE_REJECTION, &all[i], &q, false, &wish);
        answer(&wish, SLICES);
        CHECK_ERR(merge(SLICES, RULE_REJECTION, &all[i], &wish, &tiny, &row), ERR_NO_MEMORY,
                  "no room");
        CHECK_ERR(merge(SLICES / 2, RULE_REJECTION, &all[i], &wish, &arena, &row), ERR_FORMAT,
                  "in place of");
        CHECK_ERR(merge(0, RULE_REJECTION, &all[i], &wish, &arena, &row), ERR_FORMAT, "0 slices");
        arena_close(&tiny);
    }
    wish_of(RULE_REJECTION, &plain, &q, true, &wish);
    answer(&wish, SLICES);
    slices[3].full = NULL;
    CHECK_ERR(merge(SLICES, RULE_REJECTION, &plain, &wish, &arena, &row), ERR_FORMAT,
              "slice 3 lacks its logits");
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
    tcase_add_test(tcase, guesses_beyond_the_vocabulary_have_no_probability);
    tcase_add_test(tcase, impossible_slices_are_refused);
    tcase_add_test(tcase, impossible_best_lists_are_refused);
    tcase_add_test(tcase, missing_slices_and_full_arenas_are_refused);
    tcase_add_test(tcase, draws_never_return_a_token_without_mass);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
