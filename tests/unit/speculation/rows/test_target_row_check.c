/* ctest: labels=quick libs=speculation timeout=60 */
/* Replies that no correct worker sends are refused: slices, lists of the best and full arenas. */
#include "tests/support/target_row_world.h"

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

int main(void)
{
    Suite *suite = suite_create("target_row_check");
    TCase *tcase = tcase_create("target_row_check");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, impossible_slices_are_refused);
    tcase_add_test(tcase, impossible_best_lists_are_refused);
    tcase_add_test(tcase, missing_slices_and_full_arenas_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
