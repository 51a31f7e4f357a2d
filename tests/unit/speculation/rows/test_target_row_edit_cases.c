/* ctest: labels=quick libs=speculation timeout=120 */
/* Rows under edits: what is asked for, rows that edits leave little of, and refusals. */
#include "tests/support/edited_rows.h"
#include "tests/support/stats_util.h"

enum { DRAWS = 20000 };

static void ban_only(int32_t id)
{
    edits[0] = (struct edit){.id = id, .divisor = 1, .bias = -INFINITY};
    list.n = 1;
}

/* exp(-900) is 0 even in double, and a difference of sums would be 0 / 0. */
START_TEST(a_banned_token_that_had_all_mass_leaves_p_of_the_others)
{
    static struct reference ref;
    const struct sampling_params cold = {.temperature = 0.1f, .top_p = 1};
    logits[77] = 100;
    ban_only(77);
    reference_fill(&ref, &cold);
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        struct target_row row;
        ck_assert_int_ge(merged(RULE_REJECTION, &cold, n_slices, false, &row), 1);
        expect_p(&row, &ref, "banned");
        ck_assert(target_row_prob(&row, 77) == 0 && row.outside_mass == 0);
        merged(RULE_TYPICAL, &cold, n_slices, false, &row);
        ck_assert(fabs(row.entropy - ref.entropy) < 1e-6);
    }
    list.n = 0;
    ck_assert_int_eq(merged(RULE_REJECTION, &cold, SLICES, false, &(struct target_row){0}), 0);
}
END_TEST

/* 1 - 5e-15 of the mass goes; what is left is exact to rounding without another question. */
START_TEST(no_digits_are_lost_where_nearly_all_mass_is_banned)
{
    static struct reference ref;
    struct target_row row;
    const struct sampling_params warm = {.temperature = 1, .top_p = 1};
    logits[77] = 40;
    ban_only(77);
    reference_fill(&ref, &warm);
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        ck_assert_int_eq(merged(RULE_REJECTION, &warm, n_slices, false, &row), 0);
        ck_assert(row.outside_mass > 0.5);
        expect_p(&row, &ref, "nearly all");
    }
}
END_TEST

/* The entropy of what is left is a difference, which two banned tokens leave without digits. */
START_TEST(an_entropy_without_digits_asks_for_the_best)
{
    static struct reference ref;
    struct target_row row;
    const struct sampling_params warm = {.temperature = 1, .top_p = 1};
    logits[77] = 30;
    logits[78] = 29;
    ban_only(77);
    edits[1] = edits[0];
    edits[1].id = 78;
    list.n = 2;
    reference_fill(&ref, &warm);
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        ck_assert_int_gt(merged(RULE_TYPICAL, &warm, n_slices, false, &row), 0);
        expect_p(&row, &ref, "entropy");
        ck_assert(fabs(row.entropy - ref.entropy) < 1e-6);
        ck_assert_int_eq(merged(RULE_REJECTION, &warm, n_slices, false, &row), 0);
    }
}
END_TEST

START_TEST(a_row_without_any_token_left_is_an_error)
{
    struct target_row row;
    int n_asked;
    for (list.n = 0; list.n < VOCAB; list.n++) {
        edits[list.n] = (struct edit){.id = list.n, .divisor = 1, .bias = -INFINITY};
    }
    for (int n_left = 0; n_left < 2; n_left++) {
        for (int i = 0; i < VOCAB * n_left; i++) { /* all that is not banned is masked */
            if (i >= VOCAB / 2) logits[i] = -INFINITY;
        }
        list.n = n_left ? VOCAB / 2 : VOCAB;
        for (size_t k = 0; k < sizeof all_params / sizeof *all_params; k++) {
            for (int i = 0; i < 2 * RULE_COUNT; i++) {
                const struct target_want want =
                    edited_want((enum accept_rule)(i / 2), &all_params[k], &q, i % 2);
                CHECK_ERR(try_merge(&want, SLICES, &row, &n_asked), ERR_ARGUMENT,
                          "bans and biases leave no token that could follow at position 40");
                ck_assert(row.n == 0 && row.outside_id == -1);
            }
        }
    }
}
END_TEST

START_TEST(a_choice_asks_for_more_only_when_the_best_are_edited_away)
{
    const struct sampling_params cold = {.top_p = 1};
    struct target_row row;
    for (int n_banned = 1; n_banned <= 40; n_banned++) {
        for (int i = 0; i < n_banned; i++) { /* all in one slice */
            logits[2 * i] = (float)(50 + i);
            edits[i] = (struct edit){.id = 2 * i, .divisor = 1, .bias = -INFINITY};
        }
        logits[300] = 20;
        list.n = n_banned;
        int n_asked = merged(RULE_GREEDY, &cold, SLICES, false, &row);
        ck_assert(row.n == 1 && row.ids[0] == 300);
        ck_assert_int_eq(n_asked, n_banned > 15 ? 1 : 0);
    }
}
END_TEST

/* Ties and masked columns leave no doubt, so nothing more is asked. */
START_TEST(certain_answers_are_not_asked_again)
{
    const struct sampling_params cold = {.top_p = 1};
    const struct sampling_params mass = {.temperature = 1, .top_p = 0.9f};
    struct target_row row;
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = 1;
    }
    ban_only(300);
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        ck_assert_int_eq(merged(RULE_GREEDY, &cold, n_slices, false, &row), 0);
        ck_assert_int_eq(row.ids[0], 0);
    }
    for (int i = 0; i < VOCAB; i++) {
        if (i % 60) logits[i] = -INFINITY;
    }
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        ck_assert_int_eq(merged(RULE_REJECTION, &mass, n_slices, false, &row), 0);
        ck_assert_int_eq(row.n, 9); /* of ten, of which one is banned: all are needed for 90 % */
        ck_assert_int_eq(merged(RULE_GREEDY, &cold, n_slices, false, &row), 0);
    }
}
END_TEST

static void edited_wish(enum accept_rule rule, const struct sampling_params *params,
                        struct row_wish *wish)
{
    const struct target_want want = edited_want(rule, params, &q, false);
    CHECK_OK(target_row_wish_edited(&want, &arena, wish, &err));
}

START_TEST(only_edits_that_matter_are_named)
{
    struct row_wish wish;
    const struct sampling_params cold = {.top_p = 1};
    const struct sampling_params best = {.temperature = 1, .top_k = 5, .top_p = 1};
    const struct sampling_params mass = {.temperature = 1, .top_p = 0.9f};
    edits[0] = (struct edit){.id = 4, .divisor = 1.2f};
    edits[1] = (struct edit){.id = 5, .divisor = 1, .bias = 3};
    edits[2] = (struct edit){.id = 400, .divisor = 1, .bias = -3};
    list.n = 3;
    edited_wish(RULE_GREEDY, &cold, &wish);
    ck_assert(wish.n_best == 4 && wish.n_ids == 1 && wish.ids[0] == 5 && !wish.outside);
    edited_wish(RULE_COUPLED, &plain, &wish);
    ck_assert(wish.n_best == 0 && wish.noisy_best && wish.n_ids == 3 && !wish.outside);
    edited_wish(RULE_BLOCK, &best, &wish);
    ck_assert(wish.n_best == 8 && wish.n_ids == 1 && !wish.outside);
    edited_wish(RULE_BLOCK, &mass, &wish);
    ck_assert(wish.n_best == 67 && wish.n_ids == 3 && wish.outside);
    edited_wish(RULE_REJECTION, &plain, &wish);
    const int32_t joined[] = {0, 4, 5, 127, 128, 300, 400, 599};
    ck_assert(wish.n_best == 0 && wish.n_ids == 8 && wish.outside && !wish.entropy);
    ck_assert(memcmp(wish.ids, joined, sizeof joined) == 0);
}
END_TEST

START_TEST(a_want_without_edits_asks_what_it_always_asked)
{
    struct row_wish wish, usual;
    list.n = 0;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        for (size_t k = 0; k < sizeof all_params / sizeof *all_params; k++) {
            wish_of((enum accept_rule)rule, &all_params[k], &q, false, &usual);
            edited_wish((enum accept_rule)rule, &all_params[k], &wish);
            ck_assert(wish.ids == usual.ids && wish.n_ids == usual.n_ids);
            ck_assert(wish.n_best == usual.n_best && wish.outside == usual.outside);
            ck_assert(wish.n_temperatures == usual.n_temperatures && !wish.full);
        }
    }
}
END_TEST

/* More ids than a wish may name: the whole row, and the same p. */
START_TEST(too_many_edits_ask_for_the_whole_row)
{
    static struct edit many[ROW_IDS_MAX + 1];
    struct row_wish wish;
    for (int32_t i = 0; i <= ROW_IDS_MAX; i++) {
        many[i] = (struct edit){.id = i, .divisor = 1.1f};
    }
    list = (struct edit_list){ROW_IDS_MAX, many};
    const struct target_want want = edited_want(RULE_REJECTION, &plain, NULL, false);
    CHECK_OK(target_row_wish_edited(&want, &arena, &wish, &err));
    ck_assert(!wish.full && wish.n_ids == ROW_IDS_MAX);
    list.n++;
    CHECK_OK(target_row_wish_edited(&want, &arena, &wish, &err));
    ck_assert(wish.full && wish.n_ids == 0 && wish.at.position == at.position);

    struct target_row named, whole;
    const struct target_slices all = {slices, SLICES, VOCAB};
    int n_asked;
    bool more;
    list.n = VOCAB / 2;
    CHECK_OK(try_merge(&want, SLICES, &named, &n_asked));
    answer(&wish, SLICES);
    CHECK_OK(target_row_merge(&all, &want, &wish, &arena, &whole, &more, &err));
    expect_same(&named, &whole, "whole");
}
END_TEST

/* Further wishes of a caller, as for log-probabilities, change no bit of the row. */
START_TEST(additions_to_the_wish_change_nothing)
{
    const enum accept_rule rules[] = {RULE_REJECTION, RULE_GREEDY, RULE_TYPICAL};
    for (int r = 0; r < 60; r++) {
        fill_logits(r);
        fill_edits(r);
        for (size_t k = 1; k < sizeof all_params / sizeof *all_params; k++) {
            struct target_row row, more;
            struct row_wish wish;
            int n_asked;
            bool is_open = true;
            const struct target_want want = edited_want(rules[r % 3], &all_params[k], &q, false);
            CHECK_OK(try_merge(&want, SLICES, &row, &n_asked));
            CHECK_OK(target_row_wish_edited(&want, &arena, &wish, &err));
            wish.temperatures[0] = all_params[k].temperature;
            wish.temperatures[1] = 1, wish.n_temperatures = 2;
            for (wish.n_best += 64; is_open;) {
                const struct target_slices all = {slices, SLICES, VOCAB};
                answer(&wish, SLICES);
                CHECK_OK(target_row_merge(&all, &want, &wish, &arena, &more, &is_open, &err));
            }
            expect_same(&row, &more, "more");
        }
    }
}
END_TEST

START_TEST(guesses_past_the_vocabulary_have_no_probability)
{
    int32_t ids[] = {3, 600, 650};
    float p[] = {0.5f, 0.25f, 0.25f};
    const struct sparse_dist longer = {.n = 3, .ids = ids, .p = p};
    struct target_row row;
    int n_asked;
    ban_only(77);
    const struct target_want want = edited_want(RULE_REJECTION, &plain, &longer, false);
    CHECK_OK(try_merge(&want, SLICES, &row, &n_asked));
    ck_assert(target_row_prob(&row, 3) > 0 && target_row_prob(&row, 77) == 0);
    ck_assert(target_row_prob(&row, 600) == 0 && target_row_prob(&row, 650) == 0);
}
END_TEST

START_TEST(sums_that_do_not_fit_their_logits_are_refused)
{
    struct row_wish wish;
    struct target_row row;
    bool more;
    ban_only(77);
    const struct target_want want = edited_want(RULE_REJECTION, &plain, &q, false);
    const struct target_slices all = {slices, SLICES, VOCAB};
    CHECK_OK(target_row_wish_edited(&want, &arena, &wish, &err));
    answer(&wish, SLICES);
    slices[1].sum_exp[0] *= 1.01;
    CHECK_ERR(target_row_merge(&all, &want, &wish, &arena, &row, &more, &err), ERR_FORMAT,
              "slice 1 has a mass of");
    ck_assert_int_eq(row.n, 0);
}
END_TEST

START_TEST(a_full_arena_is_an_error_at_every_allocation)
{
    const struct sampling_params cut = {.temperature = 1, .top_k = 9, .top_p = 0.9f};
    const struct sampling_params *params[] = {&plain, &cut, &(struct sampling_params){.top_p = 1}};
    ban_only(77);
    for (int i = 0; i < 3; i++) {
        const struct target_want want = edited_want(RULE_REJECTION, params[i], &q, false);
        const struct target_slices all = {slices, SLICES, VOCAB};
        struct row_wish wish;
        struct target_row row;
        struct arena room;
        int rc = ERR_NO_MEMORY, n_failed = 0;
        bool more;
        CHECK_OK(target_row_wish_edited(&want, &arena, &wish, &err));
        answer(&wish, SLICES);
        for (size_t size = 0; rc; size += 64, n_failed++) {
            CHECK_OK(arena_open(&room, size, &err));
            rc = target_row_merge(&all, &want, &wish, &room, &row, &more, &err);
            ck_assert(rc == 0 || rc == ERR_NO_MEMORY);
            arena_close(&room);
        }
        ck_assert_int_gt(n_failed, 2);
        room = (struct arena){0};
        if (wish.n_ids == 0) continue;
        CHECK_ERR(target_row_wish_edited(&want, &room, &wish, &err), ERR_NO_MEMORY, "no room");
    }
}
END_TEST

/* Draws of rows with and without mass outside have the edited distribution. */
START_TEST(draws_have_the_edited_distribution)
{
    static struct reference ref;
    static int64_t counts[VOCAB];
    const struct sampling_params params = {.temperature = _i ? 0.1f : 1, .top_p = 1};
    for (int i = 0; i < VOCAB; i++) {
        logits[i] *= _i ? 0.05f : 0.5f;
    }
    if (_i) logits[77] = 100;
    list.n = 0;
    for (int32_t id = 0; id < VOCAB; id += 7) {
        edits[list.n] = random_edit(3, id, 1);
        if (id == 77) edits[list.n].bias = -INFINITY;
        list.n++;
    }
    reference_fill(&ref, &params);
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct target_row row;
        int n_asked;
        struct target_want want = edited_want(RULE_REJECTION, &params, &q, false);
        want.at = (struct rng_address){.seed = 5, .position = i, .round = 1};
        ck_assert_int_eq(try_merge(&want, SLICES, &row, &n_asked), 0);
        counts[target_row_draw(&row, &want.at)]++;
    }
    struct stats_result result = stats_chi_square(counts, ref.p, VOCAB);
    ck_assert_int_gt(result.n_cells, 100);
    ck_assert_msg(result.p_value > 1e-4, "chi-square %g over %d cells", result.chi_square,
                  result.n_cells);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_row_edit_cases");
    TCase *tcase = tcase_create("target_row_edit_cases");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, a_banned_token_that_had_all_mass_leaves_p_of_the_others);
    tcase_add_test(tcase, no_digits_are_lost_where_nearly_all_mass_is_banned);
    tcase_add_test(tcase, an_entropy_without_digits_asks_for_the_best);
    tcase_add_test(tcase, a_row_without_any_token_left_is_an_error);
    tcase_add_test(tcase, a_choice_asks_for_more_only_when_the_best_are_edited_away);
    tcase_add_test(tcase, certain_answers_are_not_asked_again);
    tcase_add_test(tcase, only_edits_that_matter_are_named);
    tcase_add_test(tcase, a_want_without_edits_asks_what_it_always_asked);
    tcase_add_test(tcase, too_many_edits_ask_for_the_whole_row);
    tcase_add_test(tcase, additions_to_the_wish_change_nothing);
    tcase_add_test(tcase, guesses_past_the_vocabulary_have_no_probability);
    tcase_add_test(tcase, sums_that_do_not_fit_their_logits_are_refused);
    tcase_add_test(tcase, a_full_arena_is_an_error_at_every_allocation);
    tcase_add_loop_test(tcase, draws_have_the_edited_distribution, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
