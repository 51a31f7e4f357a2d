/* ctest: labels=quick libs=logits timeout=60 */
/* Temperature and cuts against a slow double reference, their order and ties, the draft's q, and
 * draws that never return a token without mass. */
#include "model/logits/sampling.h"

#include "model/logits/row.h"
#include "tests/support/accept_world.h"

static struct error err;
static float logits[WORLD_VOCAB];
static struct select_item scratch[WORLD_VOCAB];

static void fill(uint32_t seed, double spread, bool with_ties)
{
    for (uint32_t i = 0; i < WORLD_VOCAB; i++) {
        double x = (2 * world_uniform(seed, i) - 1) * spread;
        logits[i] = (float)(with_ties ? floor(x * 4) / 4 : x);
    }
}

START_TEST(parameters_out_of_range_are_named)
{
    const struct sampling_params good[] = {{.temperature = 0, .top_p = 1},
                                           {1, 50, 0.9f, 0.05f},
                                           {100, 0, 1, 1},
                                           {0.001f, 1, 1e-6f, 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(sampling_check(&good[i], &err));
    }
    const struct {
        struct sampling_params params;
        const char *name;
    } bad[] = {
        {{.temperature = -1, .top_p = 1}, "temperature -1"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature inf"},
        {{.temperature = 1e-30f, .top_p = 1}, "temperature"},
        {{.temperature = 1, .top_k = -3, .top_p = 1}, "top_k -3"},
        {{.temperature = 1, .top_p = 0}, "top_p 0"},
        {{.temperature = 1, .top_p = 1.5f}, "top_p 1.5"},
        {{.temperature = 1, .top_p = NAN}, "top_p"},
        {{.temperature = 1, .top_p = 1, .min_p = -0.1f}, "min_p -0.1"},
        {{.temperature = 1, .top_p = 1, .min_p = NAN}, "min_p"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(sampling_check(&bad[i].params, &err), ERR_ARGUMENT, bad[i].name);
    }
}
END_TEST

START_TEST(only_cuts_above_temperature_0_truncate)
{
    ck_assert(!sampling_truncates(&(struct sampling_params){1, 0, 1, 0}));
    ck_assert(sampling_truncates(&(struct sampling_params){1, 5, 1, 0}));
    ck_assert(sampling_truncates(&(struct sampling_params){1, 0, 0.9f, 0}));
    ck_assert(sampling_truncates(&(struct sampling_params){1, 0, 1, 0.1f}));
    ck_assert(!sampling_truncates(&(struct sampling_params){0, 5, 0.9f, 0.1f}));
}
END_TEST

static void check_against_reference(const struct sampling_params *params)
{
    double wanted[WORLD_VOCAB];
    int32_t ids[WORLD_VOCAB];
    float p[WORLD_VOCAB];
    struct sparse_dist dist = {.ids = ids, .p = p};
    reference_dist(logits, WORLD_VOCAB, params, wanted);
    sampling_draft_dist(logits, WORLD_VOCAB, params, WORLD_VOCAB, scratch, &dist);
    double sum = 0;
    int n_wanted = 0;
    for (int i = 0; i < WORLD_VOCAB; i++) {
        n_wanted += wanted[i] > 0;
        double gap = (double)sparse_prob(&dist, i) - wanted[i];
        ck_assert_msg(fabs(gap) <= 1e-7 * wanted[i], "id %d: p %g instead of %g", i,
                      (double)sparse_prob(&dist, i), wanted[i]);
    }
    ck_assert_int_eq(dist.n, n_wanted);
    for (int i = 0; i < dist.n; i++) {
        ck_assert(i == 0 || ids[i] > ids[i - 1]);
        sum += (double)p[i];
    }
    ck_assert(fabs(sum - 1) < 1e-5);
}

START_TEST(cuts_equal_a_slow_reference)
{
    for (uint32_t seed = 0; seed < 300; seed++) {
        fill(seed, 1 + seed % 7, seed % 2);
        struct sampling_params params = {.temperature = 0.3f + 0.1f * (float)(seed % 11),
                                         .top_k = seed % 3 ? (int)(seed % 40) : 0,
                                         .top_p = seed % 5 ? 0.2f + 0.13f * (float)(seed % 7) : 1,
                                         .min_p = seed % 4 ? 0.01f * (float)(seed % 13) : 0};
        params.top_p = params.top_p > 1 ? 1 : params.top_p;
        check_against_reference(&params);
        params.temperature = 0;
        check_against_reference(&params);
    }
}
END_TEST

/* p = 0.4 0.3 0.2 0.1. Each order of two cuts gives another set; the documented one is wanted. */
START_TEST(cuts_come_in_the_documented_order)
{
    const float four[] = {-0.91629073f, -1.2039728f, -1.6094379f, -2.3025851f};
    float p[4];
    bool is_certain;
    /* top-p 0.7 over what top-k 2 left: 4/7 < 0.7, so both stay; 0.7 of all would keep both too,
     * but 0.55 of what is left keeps one where 0.55 of all keeps two. */
    struct sampling_params params = {1, 2, 0.55f, 0};
    ck_assert_int_eq(sampling_truncate(four, 4, 2.5, true, &params, p, &is_certain), 1);
    params = (struct sampling_params){1, 0, 0.55f, 0};
    ck_assert_int_eq(sampling_truncate(four, 4, 2.5, true, &params, p, &is_certain), 2);
    ck_assert(fabs((double)p[0] - 4.0 / 7) < 1e-6 && fabs((double)p[1] - 3.0 / 7) < 1e-6);
    /* temperature before top-p: at 0.5 the squares 16 9 4 1 (of 30) put 0.53 on the first */
    params = (struct sampling_params){0.5f, 0, 0.5f, 0};
    ck_assert_int_eq(sampling_truncate(four, 4, 30.0 / 16, true, &params, p, &is_certain), 1);
    params.temperature = 1;
    ck_assert_int_eq(sampling_truncate(four, 4, 2.5, true, &params, p, &is_certain), 2);
    /* min-p after temperature: 0.3 of the best keeps 9/16 but not 4/16 */
    params = (struct sampling_params){0.5f, 0, 1, 0.3f};
    ck_assert_int_eq(sampling_truncate(four, 4, 30.0 / 16, true, &params, p, &is_certain), 2);
}
END_TEST

START_TEST(ties_go_to_the_lowest_id)
{
    int32_t ids[4];
    float p[4];
    struct sparse_dist dist = {.ids = ids, .p = p};
    const float flat[] = {1, 2, 2, 2, 1, 2};
    sampling_draft_dist(flat, 6, &(struct sampling_params){1, 2, 1, 0}, 4, scratch, &dist);
    ck_assert(dist.n == 2 && ids[0] == 1 && ids[1] == 2);
    sampling_draft_dist(flat, 6, &(struct sampling_params){0, 0, 1, 0}, 4, scratch, &dist);
    ck_assert(dist.n == 1 && ids[0] == 1 && p[0] == 1);
    sampling_draft_dist(flat, 6, &(struct sampling_params){1, 0, 0.5f, 0}, 4, scratch, &dist);
    ck_assert(dist.n == 2 && ids[0] == 1 && ids[1] == 2);
}
END_TEST

START_TEST(a_cut_below_the_candidates_is_uncertain)
{
    const float four[] = {-0.91629073f, -1.2039728f, -1.6094379f, -2.3025851f};
    const struct {
        struct sampling_params params;
        bool is_certain;
    } cases[] = {
        {{1, 2, 1, 0}, true},        {{1, 3, 1, 0}, true},      {{1, 4, 1, 0}, false},
        {{1, 0, 0.65f, 0}, true},    {{1, 0, 0.95f, 0}, false}, {{1, 0, 1, 0.6f}, true},
        {{1, 0, 1, 0.4f}, false},    {{1, 4, 0.3f, 0}, false},  {{1, 4, 1, 0.6f}, true},
        {{1, 0, 0.95f, 0.6f}, true}, {{1, 0, 1, 0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float p[4];
        bool is_certain;
        sampling_truncate(four, 3, 2.5, false, &cases[i].params, p, &is_certain);
        ck_assert_msg(is_certain == cases[i].is_certain, "case %zu", i);
        sampling_truncate(four, 4, 2.5, true, &cases[i].params, p, &is_certain);
        ck_assert_msg(is_certain, "case %zu, whole", i);
    }
}
END_TEST

START_TEST(the_draft_keeps_its_support_and_no_token_without_mass)
{
    int32_t ids[8];
    float p[8];
    struct sparse_dist dist = {.ids = ids, .p = p};
    const struct sampling_params plain = {1, 0, 1, 0};
    fill(1, 3, false);
    sampling_draft_dist(logits, WORLD_VOCAB, &plain, 8, scratch, &dist);
    ck_assert_int_eq(dist.n, 8);
    const float holes[] = {NAN, 1, -INFINITY, 2, -500, NAN};
    sampling_draft_dist(holes, 6, &plain, 8, scratch, &dist);
    ck_assert(dist.n == 2 && ids[0] == 1 && ids[1] == 3);
    const float nothing[] = {NAN, -INFINITY};
    sampling_draft_dist(nothing, 2, &plain, 8, scratch, &dist);
    ck_assert(dist.n == 1 && ids[0] == 0 && p[0] == 1);
    const float endless[] = {1, INFINITY, 2, INFINITY};
    sampling_draft_dist(endless, 4, &plain, 8, scratch, &dist);
    ck_assert(dist.n == 1 && ids[0] == 1 && p[0] == 1);
}
END_TEST

START_TEST(a_large_support_is_the_head_of_a_full_sort)
{
    enum { N = 20000, SUPPORT = 4096 };
    static float many[N], p[SUPPORT];
    static int32_t ids[SUPPORT];
    static struct select_item items[SUPPORT];
    struct sparse_dist dist = {.ids = ids, .p = p};
    for (uint32_t i = 0; i < N; i++) {
        many[i] = (float)(floor(world_uniform(9, i) * 3000) / 400);
    }
    sampling_draft_dist(many, N, &(struct sampling_params){1, 0, 1, 0}, SUPPORT, items, &dist);
    ck_assert_int_eq(dist.n, SUPPORT);
    float least = INFINITY;
    int n_above = 0, n_equal = 0, n_equal_kept = 0;
    for (int i = 0; i < SUPPORT; i++) {
        least = many[ids[i]] < least ? many[ids[i]] : least;
        ck_assert(i == 0 || ids[i] > ids[i - 1]);
    }
    for (int i = 0; i < N; i++) {
        bool is_kept = sparse_prob(&dist, i) > 0;
        n_above += many[i] > least;
        ck_assert(many[i] == least || is_kept == (many[i] > least));
        if (many[i] != least) continue;
        if (is_kept) {
            ck_assert_int_eq(n_equal_kept, n_equal); /* the kept ties come first */
            n_equal_kept++;
        }
        n_equal++;
    }
    ck_assert_int_eq(n_above + n_equal_kept, SUPPORT);
}
END_TEST

START_TEST(draws_follow_the_inverse_cdf_and_skip_empty_tokens)
{
    int32_t ids[] = {3, 5, 8, 9, 11};
    float p[] = {0, 0.25f, 0, 0.75f, 0};
    const struct sparse_dist dist = {.n = 5, .ids = ids, .p = p};
    ck_assert_int_eq(sparse_draw(&dist, 0), 5);
    ck_assert_int_eq(sparse_draw(&dist, 0.2499), 5);
    ck_assert_int_eq(sparse_draw(&dist, 0.25), 9);
    ck_assert_int_eq(sparse_draw(&dist, 1 - 0x1p-53), 9);
    p[3] = 0.7499f; /* rounding may leave the sum below 1 */
    ck_assert_int_eq(sparse_draw(&dist, 1 - 0x1p-53), 9);
    ck_assert(sparse_prob(&dist, 5) == 0.25f && sparse_prob(&dist, 4) == 0);
    ck_assert(sparse_prob(&dist, 2) == 0 && sparse_prob(&dist, 12) == 0);
}
END_TEST

START_TEST(coupled_picks_the_best_noisy_score)
{
    int32_t ids[WORLD_VOCAB];
    for (uint32_t seed = 0; seed < 200; seed++) {
        fill(seed, 3, false);
        int best = 0;
        double scores[WORLD_VOCAB];
        for (int i = 0; i < WORLD_VOCAB; i++) {
            ids[i] = 7 * i;
            scores[i] =
                row_noisy_score(logits[i], 0.7f, rng_coupled_bits(seed, 12, (uint32_t)ids[i]));
            if (scores[i] > scores[best]) best = i;
        }
        ck_assert_int_eq(sampling_coupled_pick(ids, logits, WORLD_VOCAB, 0.7f, seed, 12),
                         ids[best]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampling");
    TCase *tcase = tcase_create("sampling");
    tcase_add_test(tcase, parameters_out_of_range_are_named);
    tcase_add_test(tcase, only_cuts_above_temperature_0_truncate);
    tcase_add_test(tcase, cuts_equal_a_slow_reference);
    tcase_add_test(tcase, cuts_come_in_the_documented_order);
    tcase_add_test(tcase, ties_go_to_the_lowest_id);
    tcase_add_test(tcase, a_cut_below_the_candidates_is_uncertain);
    tcase_add_test(tcase, the_draft_keeps_its_support_and_no_token_without_mass);
    tcase_add_test(tcase, a_large_support_is_the_head_of_a_full_sort);
    tcase_add_test(tcase, draws_follow_the_inverse_cdf_and_skip_empty_tokens);
    tcase_add_test(tcase, coupled_picks_the_best_noisy_score);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
