/* ctest: labels=quick libs=speculation timeout=60 */
/* What is asked for each rule, and merged rows against a slow reference; replies that no honest
 * worker sends are refused. */
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

/* The row of a rule, asking again as long as the merge wants more; returns how often it did. */
static int merged(enum accept_rule rule, const struct sampling_params *params,
                  const struct sparse_dist *draft, int n_slices, bool full, struct target_row *row)
{
    struct row_wish wish;
    target_row_wish(rule, params, draft, &at, full, &wish);
    for (int n_more = 0, n_asked = 0;; n_asked++, wish.n_best = n_more) {
        answer(&wish, n_slices);
        CHECK_OK(target_row_merge(slices, n_slices, VOCAB, &wish, rule, params, draft, &arena, row,
                                  &n_more, &err));
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
    for (int i = 0; i < RULE_COUNT; i++) {
        enum accept_rule rule;
        CHECK_OK(accept_rule_parse(accept_rule_name((enum accept_rule)i), &rule, &err));
        ck_assert_int_eq((int)rule, i);
    }
    enum accept_rule rule;
    CHECK_ERR(accept_rule_parse("Greedy", &rule, &err), ERR_ARGUMENT, "'Greedy'");
}
END_TEST

START_TEST(each_rule_asks_for_what_it_needs_and_no_more)
{
    struct row_wish wish;
    const struct sampling_params cut = {.temperature = 1, .top_k = 7, .top_p = 1};
    const struct sampling_params nucleus = {.temperature = 1, .top_p = 0.9f};
    const struct sampling_params cold = {.top_k = 7, .top_p = 0.5f};
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        target_row_wish((enum accept_rule)rule, &cold, &q, &at, false, &wish);
        ck_assert(wish.n_best == 1 && !wish.best_is_noisy && !wish.n_ids && !wish.n_temperatures);
        ck_assert(!wish.outside && !wish.full && wish.at.position == at.position);
        target_row_wish((enum accept_rule)rule, &plain, &q, &at, true, &wish);
        ck_assert(wish.full && !wish.n_best && !wish.n_ids && !wish.n_temperatures);
        target_row_wish((enum accept_rule)rule, &cut, &q, &at, false, &wish);
        ck_assert_int_eq(wish.n_best, rule == RULE_GREEDY ? 1 : 7);
        target_row_wish((enum accept_rule)rule, &nucleus, &q, &at, false, &wish);
        ck_assert_int_eq(wish.n_best, rule == RULE_GREEDY ? 1 : 64);
        ck_assert_int_eq(wish.n_temperatures, rule == RULE_GREEDY ? 0 : 1);
    }
    target_row_wish(RULE_COUPLED, &plain, &q, &at, false, &wish);
    ck_assert(wish.n_best == 1 && wish.best_is_noisy && wish.temperatures[0] == 0.8f);
    ck_assert(!wish.outside && !wish.n_ids);
    target_row_wish(RULE_BLOCK, &plain, &q, &at, false, &wish);
    ck_assert(wish.outside && wish.ids == q.ids && wish.n_ids == q.n && !wish.entropy);
    target_row_wish(RULE_TYPICAL, &plain, &q, &at, false, &wish);
    ck_assert(wish.outside && wish.entropy);
    target_row_wish(RULE_REJECTION, &plain, NULL, &at, false, &wish);
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

/* A change to one slice that makes the reply dishonest. */
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

START_TEST(dishonest_slices_are_refused)
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
        int n_more;
        arena_reset(&arena);
        target_row_wish(RULE_TYPICAL, &plain, &q, &at, false, &wish);
        answer(&wish, SLICES);
        cases[i].spoil();
        CHECK_ERR(target_row_merge(slices, SLICES, VOCAB, &wish, RULE_TYPICAL, &plain, &q, &arena,
                                   &row, &n_more, &err),
                  ERR_FORMAT, cases[i].text);
        ck_assert(row.n == 0 && row.outside_id == -1);
    }
}
END_TEST

START_TEST(dishonest_best_lists_are_refused)
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
        int n_more;
        float best[4];
        arena_reset(&arena);
        target_row_wish(RULE_REJECTION, &cut, &q, &at, false, &wish);
        answer(&wish, SLICES);
        for (int k = 0; k < cases[i].n; k++) {
            best[k] = slices[0].max - cases[i].gaps[k];
        }
        slices[0].n_best = cases[i].n;
        slices[0].best_ids = cases[i].ids;
        slices[0].best_logits = best;
        CHECK_ERR(target_row_merge(slices, SLICES, VOCAB, &wish, RULE_REJECTION, &cut, &q, &arena,
                                   &row, &n_more, &err),
                  ERR_FORMAT, cases[i].text);
    }
}
END_TEST

START_TEST(missing_slices_and_full_arenas_are_refused)
{
    const struct sampling_params all[] = {
        plain, {.top_p = 1}, {.temperature = 1, .top_k = 9, .top_p = 1}};
    struct target_row row;
    int n_more;
    struct row_wish wish;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct arena tiny;
        CHECK_OK(arena_open(&tiny, 64, &err));
        target_row_wish(RULE_REJECTION, &all[i], &q, &at, false, &wish);
        answer(&wish, SLICES);
        CHECK_ERR(target_row_merge(slices, SLICES, VOCAB, &wish, RULE_REJECTION, &all[i], &q, &tiny,
                                   &row, &n_more, &err),
                  ERR_NO_MEMORY, "no room");
        CHECK_ERR(target_row_merge(slices, SLICES / 2, VOCAB, &wish, RULE_REJECTION, &all[i], &q,
                                   &arena, &row, &n_more, &err),
                  ERR_FORMAT, "in place of");
        CHECK_ERR(target_row_merge(slices, 0, VOCAB, &wish, RULE_REJECTION, &all[i], &q, &arena,
                                   &row, &n_more, &err),
                  ERR_FORMAT, "0 slices");
        arena_close(&tiny);
    }
    target_row_wish(RULE_REJECTION, &plain, &q, &at, true, &wish);
    answer(&wish, SLICES);
    slices[3].full = NULL;
    CHECK_ERR(target_row_merge(slices, SLICES, VOCAB, &wish, RULE_REJECTION, &plain, &q, &arena,
                               &row, &n_more, &err),
              ERR_FORMAT, "slice 3 lacks its logits");
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
    tcase_add_test(tcase, each_rule_asks_for_what_it_needs_and_no_more);
    tcase_add_test(tcase, probabilities_mass_outside_and_entropy_are_exact);
    tcase_add_test(tcase, one_hot_rows_hold_the_best_and_ties_go_to_the_lowest_id);
    tcase_add_test(tcase, coupled_rows_do_not_depend_on_the_slices);
    tcase_add_test(tcase, compact_rows_equal_full_rows);
    tcase_add_test(tcase, an_uncertain_cut_asks_for_more_and_then_agrees_with_a_full_sort);
    tcase_add_test(tcase, guesses_beyond_the_vocabulary_have_no_probability);
    tcase_add_test(tcase, dishonest_slices_are_refused);
    tcase_add_test(tcase, dishonest_best_lists_are_refused);
    tcase_add_test(tcase, missing_slices_and_full_arenas_are_refused);
    tcase_add_test(tcase, draws_never_return_a_token_without_mass);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
