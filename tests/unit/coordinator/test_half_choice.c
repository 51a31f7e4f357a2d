/* ctest: labels=quick libs=coordinator timeout=60 */
/* Half-batches under auto, on simulated machines whose steps and passes take known times: halves
 * are kept where they give more tokens per second, given up where they do not, and tried only where
 * they promise something. */
#include "coordinator/round/half_choice.h"

#include <stddef.h>

#include "base/rng.h"
#include "tests/support/check_util.h"

enum { LANES = 16, TOKENS = 3 /* of a lane and step */, STEPS = 20000, LEARNING = 200 };

/* Times in us of a step and of drafting, over all lanes and over half of them. */
struct machine {
    double whole_step, whole_draft, half_step, half_draft;
};

static const struct machine own_device = {10000, 8000, 6000, 4500},
                            shared_cores = {10000, 8000, 11000, 9000};

static uint64_t n_coins;

/* A few percent of noise, and one in a hundred takes ten times as long. */
static double noisy(double us)
{
    const struct rng_address at = {7, 0, (uint32_t)n_coins++};
    us *= 0.95 + 0.1 * rng_uniform(&at, RNG_ACCEPT, 0);
    return rng_uniform(&at, RNG_DRAFT, 0) < 0.01 ? 10 * us : us;
}

struct tally {
    double us;
    int n_halved, n_tokens;
};

static void run(struct half_choice *half_choice, const struct machine *m, double ratio, int n_steps,
                struct tally *tally)
{
    for (int i = 0; i < n_steps; i++) {
        bool is_halved = half_choice_make(half_choice, LANES, ratio);
        double us = is_halved ? (m->half_step > m->half_draft ? m->half_step : m->half_draft)
                              : m->whole_step + m->whole_draft;
        int n_tokens = is_halved ? TOKENS * LANES / 2 : TOKENS * LANES;
        tally->us += noisy(us);
        tally->n_tokens += n_tokens;
        tally->n_halved += is_halved ? 1 : 0;
        half_choice_observe(half_choice, LANES, is_halved, true, n_tokens, (int64_t)tally->us);
    }
}

/* Both halves wait for the wire, which a whole step does once. */
START_TEST(half_batches_promise_less_the_farther_the_ranks_are)
{
    static const struct {
        struct half_choice_times times;
        double ratio;
    } cases[] = {
        {{10, 6, 0, 0, 8, 4}, 2 * 6.0 / 18},
        {{10, 6, 1, 1, 8, 4}, 2 * 7.0 / 19},
        {{10, 6, 20, 20, 8, 4}, 2 * 26.0 / 38},
        {{10, 6, 2, 1, 30, 20}, 2 * 20.0 / 42},
        {{10, 5, 0, 0, 0, 0}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_double_eq_tol(half_choice_ratio(&cases[i].times), cases[i].ratio, 1e-12);
    }
}
END_TEST

START_TEST(half_batches_are_kept_where_they_pay)
{
    struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
    struct tally tally = {.us = 1};
    run(&half_choice, &own_device, 0.7, LEARNING, &tally);
    struct tally later = {.us = tally.us};
    run(&half_choice, &own_device, 0.7, STEPS, &later);
    ck_assert_msg(later.n_halved > 0.99 * STEPS && later.n_halved < STEPS,
                  "%d of %d steps are halved", later.n_halved, STEPS);
}
END_TEST

/* They promise more than they keep, because draft and target share their cores. */
START_TEST(half_batches_are_given_up_where_they_do_not_pay)
{
    struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
    struct tally tally = {.us = 1};
    run(&half_choice, &shared_cores, 0.7, LEARNING, &tally);
    struct tally later = {.us = tally.us};
    run(&half_choice, &shared_cores, 0.7, STEPS, &later);
    ck_assert_msg(later.n_halved > 0 && later.n_halved < 0.01 * STEPS, "%d of %d steps are halved",
                  later.n_halved, STEPS);
    double plain_us = (later.us - tally.us) / later.n_tokens * TOKENS * LANES;
    ck_assert_msg(plain_us < 1.15 * (shared_cores.whole_step + shared_cores.whole_draft),
                  "%.0f us for the tokens of a whole step", plain_us);
}
END_TEST

START_TEST(a_trial_that_goes_badly_ends_early)
{
    static const struct machine bad = {10000, 8000, 20000, 12000};
    struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
    struct tally tally = {.us = 1};
    run(&half_choice, &bad, 0.7, LEARNING, &tally);
    ck_assert_msg(tally.n_halved > 0 && tally.n_halved <= 16, "%d steps were halved",
                  tally.n_halved);
}
END_TEST

START_TEST(half_batches_are_not_tried_without_a_predicted_gain)
{
    static const double ratios[] = {0, 0.97, 1, 1.5};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
        struct tally tally = {.us = 1};
        run(&half_choice, &own_device, ratios[i], STEPS, &tally);
        ck_assert_int_eq(tally.n_halved, 0);
    }
}
END_TEST

START_TEST(modes_on_and_off_ignore_what_was_measured)
{
    struct half_choice on = {.mode = HALF_BATCHES_ON}, off = {.mode = HALF_BATCHES_OFF};
    struct tally all = {.us = 1}, none = {.us = 1};
    run(&on, &shared_cores, 2, STEPS, &all);
    run(&off, &own_device, 0.5, STEPS, &none);
    ck_assert_int_eq(all.n_halved, STEPS);
    ck_assert_int_eq(none.n_halved, 0);
}
END_TEST

/* Another group, with its own times: what was measured of the last one says nothing. */
START_TEST(another_group_is_measured_anew)
{
    struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
    struct tally tally = {.us = 1};
    run(&half_choice, &own_device, 0.7, LEARNING, &tally);
    half_choice_forget(&half_choice);
    struct tally later = {.us = tally.us};
    run(&half_choice, &shared_cores, 0.7, STEPS, &later);
    ck_assert_msg(later.n_halved < 0.01 * STEPS, "%d of %d steps are halved", later.n_halved,
                  STEPS);
}
END_TEST

/* A pause, or a step that shared its time with something else, is no measurement. */
START_TEST(only_steps_that_follow_each_other_count)
{
    struct half_choice half_choice = {.mode = HALF_BATCHES_AUTO};
    int64_t now_us = 1;
    for (int i = 0; i < 50; i++) {
        half_choice_observe(&half_choice, LANES, i % 2, true, 10, now_us += 100);
        half_choice_observe(&half_choice, LANES, i % 2, false, 10, now_us += 100);
        half_choice_observe(&half_choice, LANES + LANES * (i % 2), false, true, 10, now_us += 100);
    }
    int n = 0;
    for (int size = 0; size < HALF_CHOICE_SIZES; size++) {
        n += half_choice.paces[size][1].n;
    }
    ck_assert_int_eq(n, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("half_choice");
    TCase *tcase = tcase_create("auto");
    tcase_add_test(tcase, half_batches_promise_less_the_farther_the_ranks_are);
    tcase_add_test(tcase, half_batches_are_kept_where_they_pay);
    tcase_add_test(tcase, half_batches_are_given_up_where_they_do_not_pay);
    tcase_add_test(tcase, a_trial_that_goes_badly_ends_early);
    tcase_add_test(tcase, half_batches_are_not_tried_without_a_predicted_gain);
    tcase_add_test(tcase, modes_on_and_off_ignore_what_was_measured);
    tcase_add_test(tcase, another_group_is_measured_anew);
    tcase_add_test(tcase, only_steps_that_follow_each_other_count);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
