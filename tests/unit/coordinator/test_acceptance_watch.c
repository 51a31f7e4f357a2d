/* ctest: labels=quick libs=signals timeout=60 */
/* The watch over how often guesses stay: it tells a collapse once, with what has changed, and that
 * it is over; it tells nothing of chance, of a single odd text, and of what is usual by now. */
#include "coordinator/signals/acceptance_watch.h"

#include <stdio.h>

#include "base/rng.h"
#include "tests/support/check_util.h"

enum { K = 4, TEXT_ROUNDS = 40 };

static struct acceptance_watch watch;
static uint32_t at;
static int n_collapsed, n_recovered;
static char text[ACCEPTANCE_BYTES];

static double draw(void)
{
    const struct rng_address address = {11, at++, 0};
    return rng_uniform(&address, RNG_DRAFT, 0);
}

/* Rounds of texts of 40 rounds, each guess of which stays with this chance. */
static void run(int n_rounds, double alpha, float temperature)
{
    for (int i = 0; i < n_rounds; i++) {
        struct acceptance_lane lane = {
            .k = K, .temperature = temperature, .n_prompt = 10, .is_first = i % TEXT_ROUNDS == 0};
        while (lane.n_accepted < K && draw() < alpha) {
            lane.n_accepted++;
        }
        enum acceptance_news news = acceptance_watch_add(&watch, &lane);
        n_collapsed += news == ACCEPTANCE_COLLAPSED;
        n_recovered += news == ACCEPTANCE_RECOVERED;
        if (news != ACCEPTANCE_AS_BEFORE) acceptance_watch_show(&watch, news, text);
    }
}

static void setup(void)
{
    watch = (struct acceptance_watch){0};
    n_collapsed = n_recovered = 0;
    at = 0;
}

START_TEST(a_collapse_is_told_once_and_its_end)
{
    run(8 * ACCEPTANCE_WINDOW, 0.6, 0);
    ck_assert_int_eq(n_collapsed, 0);
    run(2000, 0.2, 0.8f);
    ck_assert_int_eq(n_collapsed, 1);
    ck_assert_int_eq(n_recovered, 0);
    printf("%s\n", text);
    ck_assert_ptr_nonnull(strstr(text, "far fewer guesses stay"));
    ck_assert_ptr_nonnull(strstr(text, "greedy 0 % of rounds, before 100 %"));
    ck_assert_ptr_nonnull(strstr(text, "mean temperature 0.80, before 0.00"));
    run(2000, 0.6, 0);
    ck_assert_int_eq(n_collapsed, 1);
    ck_assert_int_eq(n_recovered, 1);
    printf("%s\n", text);
    run(2000, 0.2, 0);
    ck_assert_int_eq(n_collapsed, 2);
}
END_TEST

START_TEST(chance_is_no_news)
{
    for (int i = 0; i < 200; i++) {
        run(2000, i % 2 ? 0.5 : 0.4, 1);
    }
    ck_assert_int_eq(n_collapsed + n_recovered, 0);
}
END_TEST

START_TEST(one_odd_text_is_no_collapse)
{
    run(8 * ACCEPTANCE_WINDOW, 0.6, 0);
    for (int i = 0; i < 2000; i++) { /* it begins once */
        const struct acceptance_lane lane = {.k = K, .is_first = i == 0};
        n_collapsed += acceptance_watch_add(&watch, &lane) == ACCEPTANCE_COLLAPSED;
    }
    ck_assert_int_eq(n_collapsed, 0);
}
END_TEST

START_TEST(what_lasts_becomes_usual)
{
    run(8 * ACCEPTANCE_WINDOW, 0.6, 0);
    run(40000, 0.2, 0);
    ck_assert_int_eq(n_collapsed, 1);
    run(4000, 0.05, 0);
    ck_assert_int_eq(n_collapsed, 2);
    ck_assert_int_eq(n_recovered, 0);
}
END_TEST

START_TEST(a_new_pair_has_nothing_usual)
{
    run(600, 0.6, 0);
    run(600, 0.1, 0);
    ck_assert_int_eq(n_collapsed, 0);
}
END_TEST

START_TEST(texts_without_guesses_are_not_counted)
{
    run(8 * ACCEPTANCE_WINDOW, 0.6, 0);
    for (int i = 0; i < 4000; i++) {
        const struct acceptance_lane lane = {.k = 0, .is_first = true};
        ck_assert_int_eq(acceptance_watch_add(&watch, &lane), ACCEPTANCE_AS_BEFORE);
    }
    ck_assert(watch.window.n_texts == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("acceptance_watch");
    TCase *tcase = tcase_create("news");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_collapse_is_told_once_and_its_end);
    tcase_add_test(tcase, chance_is_no_news);
    tcase_add_test(tcase, one_odd_text_is_no_collapse);
    tcase_add_test(tcase, what_lasts_becomes_usual);
    tcase_add_test(tcase, a_new_pair_has_nothing_usual);
    tcase_add_test(tcase, texts_without_guesses_are_not_counted);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
