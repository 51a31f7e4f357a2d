/* The seats of the engines: which group the next text goes to, which groups may serve together, and
 * what the doors are told. */
/* ctest: labels=quick libs=coordinator timeout=60 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/job/groups.h"
#include "coordinator/job/job.h"
#include "tests/support/check_util.h"

enum { N = 3, CAPACITY = 4 };

static struct groups groups;
static struct queue *queues[N];
static struct error err;
static bool is_serving, is_overdue;
static char why[ERROR_TEXT_BYTES];

static void note(void *arg, enum groups_service service, const char *reason,
                 const struct target_description *group)
{
    (void)arg, (void)group;
    is_serving = service == GROUPS_SERVING;
    is_overdue = service == GROUPS_OVERDUE;
    snprintf(why, sizeof why, "%s", reason);
}

static void setup(void)
{
    groups = (struct groups){0};
    groups_open(&groups);
    for (int i = 0; i < N; i++) {
        CHECK_OK(queue_open(&queues[i], CAPACITY, &err));
        ck_assert_int_eq(groups_add(&groups, queues[i]), i);
    }
    groups_listen(&groups, note, NULL);
}

static void teardown(void)
{
    for (int i = 0; i < N; i++) {
        queue_close(queues[i]);
    }
    groups_close(&groups);
}

static struct target_description model(uint64_t fingerprint)
{
    struct target_description d = {
        .n_ranks = 1, .context_limit = 1000, .vocab_size = 100, .model_fingerprint = fingerprint};
    snprintf(d.arithmetic, sizeof d.arithmetic, "cpu-bf16");
    return d;
}

static void hold(int seat)
{
    const struct found_group group = {.n_ranks = 1, .addresses = {"a:1"}};
    const struct target_description d = model(1);
    struct found_group got;
    groups_offer(&groups, seat, &group);
    ck_assert(groups_take_offer(&groups, seat, &got));
    CHECK_OK(groups_hold(&groups, seat, &d, &err));
    atomic_store(&groups.seats[seat].load.n_places, 8);
}

static void set_load(int seat, int n_running, int step_us)
{
    atomic_store(&groups.seats[seat].load.n_running, n_running);
    atomic_store(&groups.seats[seat].load.step_us, step_us);
}

static int choose(int from, int n_context, bool must_be_idle)
{
    const struct seat_wish wish = {
        .from = from, .n_context = n_context, .must_be_idle = must_be_idle};
    return groups_choose(&groups, &wish);
}

START_TEST(no_group_serves_at_first)
{
    ck_assert(!is_serving);
    ck_assert_str_eq(why, "the target group has not been reached yet");
    ck_assert_int_eq(choose(-1, 0, false), -1);
    ck_assert(groups_set_why(&groups, "nobody answers"));
    ck_assert(!groups_set_why(&groups, "nobody answers"));
    ck_assert_str_eq(why, "nobody answers");
}
END_TEST

START_TEST(the_least_busy_group_gets_the_next_text)
{
    hold(0);
    hold(1);
    ck_assert(is_serving);
    set_load(0, 3, 1000);
    set_load(1, 2, 1000);
    ck_assert_int_eq(choose(-1, 0, false), 1);
    ck_assert_int_eq(choose(1, 0, false), 0); /* not that one */
    set_load(1, 2, 2000);                     /* (2 + 1) * 2 > (3 + 1) * 1 */
    ck_assert_int_eq(choose(-1, 0, false), 0);
    set_load(1, 3, 0); /* not known: as the others */
    ck_assert_int_eq(choose(-1, 0, false), 0);
    set_load(1, 2, 0);
    ck_assert_int_eq(choose(-1, 0, false), 1);
    ck_assert_int_eq(choose(-1, 1001, false), -1); /* longer than either can read */
}
END_TEST

START_TEST(texts_on_their_way_are_counted)
{
    struct job jobs[CAPACITY] = {0};
    void *item;
    hold(0);
    hold(1);
    for (int i = 0; i < CAPACITY; i++) {
        int seat = choose(-1, 0, false);
        ck_assert_int_eq(seat, i % 2);
        CHECK_OK(groups_send(&groups, seat, &jobs[i], &err));
    }
    CHECK_OK(queue_pop(queues[0], &item, 0, &err));
    groups_taken(&groups, 0, item);
    ck_assert_int_eq(choose(-1, 0, false), 0);
    groups_shut(&groups);
    CHECK_ERR(groups_send(&groups, 0, &jobs[0], &err), ERR_CLOSED, "shut");
    ck_assert_int_eq(atomic_load(&groups.seats[0].load.n_coming), 1);
}
END_TEST

START_TEST(an_idle_group_has_places_and_no_queue)
{
    hold(0);
    hold(1);
    set_load(0, 8, 10);
    ck_assert_int_eq(choose(1, 0, true), -1);
    set_load(0, 7, 10);
    ck_assert_int_eq(choose(1, 0, true), 0);
    atomic_store(&groups.seats[0].load.n_waiting, 1);
    ck_assert_int_eq(choose(1, 0, true), -1);
}
END_TEST

START_TEST(a_late_group_comes_last)
{
    hold(0);
    hold(1);
    set_load(1, 5, 1000);
    atomic_store(&groups.seats[0].load.late_us, 2000000);
    ck_assert_int_eq(choose(-1, 0, false), 1);
    ck_assert_int_eq(choose(1, 0, false), 0); /* better than none */
    ck_assert_int_eq(choose(1, 0, true), -1);
}
END_TEST

START_TEST(text_that_has_begun_goes_on_with_its_model)
{
    struct target_description other = model(2);
    struct seat_wish wish = {.from = 0, .has_begun = true};
    hold(0);
    groups_leave(&groups, 0, "it is gone", NULL);
    CHECK_OK(groups_hold(&groups, 1, &other, &err));
    ck_assert_int_eq(groups_choose(&groups, &wish), -1);
    wish.has_begun = false;
    ck_assert_int_eq(groups_choose(&groups, &wish), 1);
}
END_TEST

START_TEST(groups_of_one_model_serve_together)
{
    struct target_description other = model(2), same = model(1);
    hold(0);
    CHECK_ERR(groups_hold(&groups, 1, &other, &err), ERR_UNAVAILABLE, "when none of them is left");
    snprintf(same.arithmetic, sizeof same.arithmetic, "cpu-int8");
    CHECK_ERR(groups_check(&groups, 1, "b:1", &same, &err), ERR_UNAVAILABLE, "cpu-int8");
    groups_set_leaving(&groups, 0, "it leaves");
    CHECK_ERR(groups_check(&groups, 1, "b:1", &other, &err), ERR_UNAVAILABLE, "when none");
    groups_leave(&groups, 0, "it is gone", NULL);
    CHECK_OK(groups_hold(&groups, 1, &other, &err));
}
END_TEST

/* A request that leaves sampling open, or a conversation, would mean something else there. */
START_TEST(groups_of_other_conventions_wait)
{
    struct target_description first = model(1), other = model(1), unknown = model(1);
    const struct found_group group = {.n_ranks = 1, .addresses = {"a:1"}};
    struct found_group got;
    first.conventions = 5;
    other.conventions = 6;
    groups_offer(&groups, 0, &group);
    ck_assert(groups_take_offer(&groups, 0, &got));
    CHECK_OK(groups_hold(&groups, 0, &first, &err));
    CHECK_OK(groups_check(&groups, 1, "b:1", &unknown, &err)); /* nobody has asked yet */
    CHECK_OK(groups_check(&groups, 1, "b:1", &first, &err));
    CHECK_ERR(groups_check(&groups, 1, "b:1", &other, &err), ERR_UNAVAILABLE,
              "another chat template");
    groups_leave(&groups, 0, "it is gone", NULL);
    CHECK_OK(groups_check(&groups, 1, "b:1", &other, &err));
}
END_TEST

START_TEST(doors_are_told_when_the_last_group_goes)
{
    hold(0);
    hold(1);
    groups_leave(&groups, 0, "rank 0 is lost", NULL);
    ck_assert(is_serving);
    ck_assert_int_eq(choose(-1, 0, false), 1);
    groups_set_leaving(&groups, 1, "it leaves");
    ck_assert(!is_serving);
    ck_assert_str_eq(why, "it leaves");
    hold(2);
    ck_assert(is_serving);
    groups_set_stopping(&groups, "the end");
    ck_assert(!is_serving);
    groups_leave(&groups, 2, "it is gone", NULL);
    ck_assert_str_eq(why, "the end");
}
END_TEST

START_TEST(an_engine_that_knows_the_group_comes_first)
{
    const struct found_group one = {.n_ranks = 1, .addresses = {"a:1"}};
    const struct found_group two = {.n_ranks = 2, .addresses = {"b:1", "b:2"}};
    const struct error odd = {ERR_ARGUMENT, "odd"};
    struct error refusal;
    ck_assert_int_eq(groups_find_empty(&groups, &two), 0);
    hold(0);
    groups_offer(&groups, 1, &two);
    ck_assert_int_eq(groups_state(&groups, 1), SEAT_OFFERED);
    groups_leave(&groups, 1, odd.text, &odd);
    ck_assert_int_eq(groups_take_refusal(&groups, 1, &refusal), ERR_ARGUMENT);
    ck_assert_int_eq(groups_take_refusal(&groups, 1, &refusal), 0);
    groups_leave(&groups, 0, "gone", NULL);
    ck_assert_int_eq(groups_find_empty(&groups, &two), 1);
    ck_assert_int_eq(groups_find_empty(&groups, &one), 0);
}
END_TEST

/* Requests are still taken then, because the step may end after all. */
START_TEST(steps_that_are_overdue_everywhere_are_told)
{
    hold(0);
    hold(1);
    groups_set_overdue(&groups, 0, true);
    ck_assert(is_serving);
    groups_set_overdue(&groups, 1, true);
    ck_assert(!is_serving && is_overdue);
    ck_assert_msg(strstr(why, "does not answer") != NULL, "%s", why);
    ck_assert(groups_any_serving(&groups));
    struct seat_view view;
    ck_assert(groups_view(&groups, 0, &view) && view.is_serving && !view.is_measured);
    atomic_store(&groups.seats[0].load.is_measured, true);
    ck_assert(groups_view(&groups, 0, &view) && view.is_measured);
    ck_assert_msg(strstr(view.state, "does not answer") != NULL, "%s", view.state);
    groups_leave(&groups, 1, "it was lost", NULL);
    ck_assert(!is_serving && is_overdue);
    groups_set_overdue(&groups, 1, false);
    groups_set_overdue(&groups, 0, false);
    ck_assert(is_serving && !is_overdue);
    groups_set_overdue(&groups, 0, true);
    groups_leave(&groups, 0, "it was lost", NULL);
    ck_assert(!is_serving && !is_overdue);
    ck_assert_str_eq(why, "it was lost");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("groups");
    TCase *tcase = tcase_create("groups");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, no_group_serves_at_first);
    tcase_add_test(tcase, the_least_busy_group_gets_the_next_text);
    tcase_add_test(tcase, texts_on_their_way_are_counted);
    tcase_add_test(tcase, an_idle_group_has_places_and_no_queue);
    tcase_add_test(tcase, a_late_group_comes_last);
    tcase_add_test(tcase, text_that_has_begun_goes_on_with_its_model);
    tcase_add_test(tcase, groups_of_one_model_serve_together);
    tcase_add_test(tcase, groups_of_other_conventions_wait);
    tcase_add_test(tcase, doors_are_told_when_the_last_group_goes);
    tcase_add_test(tcase, an_engine_that_knows_the_group_comes_first);
    tcase_add_test(tcase, steps_that_are_overdue_everywhere_are_told);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
