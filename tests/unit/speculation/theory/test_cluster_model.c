/* ctest: labels=quick libs=speculation timeout=60 */
/* Predictions for a cluster, against formulas that are known and against rounds that are counted
 * one by one. */
#include <math.h>

#include "speculation/theory/cluster_model.h"
#include "speculation/theory/speedup.h"
#include "tests/support/check_util.h"

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* A step of 1000 us, 20 us more for each further row, a guess of 100 us. */
static struct cluster_costs costs_of(double alpha)
{
    struct cluster_costs c = {
        .guess = {1, {1}, {100}},
        .step = {2, {1, 101}, {1000, 3000}},
        .n_ranks = 1,
        .sharded_ratio = 1,
        .n_sums = 10,
        .n_measured = 1,
        .sums = {{.n_ranks = 2, .us = 3, .row_us = 1}},
        .n_lanes_max = 64,
        .n_engines = 1,
        .slowdown = 1,
        .busy_most = 0.8,
    };
    for (int i = 0; i < DRAFT_MAX; i++) {
        c.alpha[i] = alpha;
    }
    return c;
}

static const struct cluster_question one = {
    .n_groups = 1, .n_ranks = 1, .n_clients = 1, .n_tokens = 100, .k = -1, .n_coordinators = 1};

/* One stream without anything else: Theorem 3.8, with rows and round trips as speedup.h has them.
 */
START_TEST(one_stream_is_the_theory_of_one_stream)
{
    for (int k = 0; k <= 8; k++) {
        struct cluster_costs costs = costs_of(0.7);
        struct cluster_question q = one;
        q.k = k;
        q.link_us = 150;
        struct speedup_costs theory = {.alpha = 0.7, .c = 0.1, .row = 0.02, .rtt = 0.3};
        struct cluster_answer a = cluster_predict(&costs, &q, 16);
        ck_assert(is_near(a.speedup, speedup_in_rounds(&theory, k)));
        ck_assert(is_near(a.tokens_per_second, 1e6 * a.tokens_per_round / a.round_us));
        ck_assert(is_near(a.token_us, a.round_us / a.tokens_per_round));
        costs.step = (struct cluster_curve){1, {1}, {1000}};
        q.link_us = 0;
        theory.row = theory.rtt = 0;
        ck_assert(is_near(cluster_predict(&costs, &q, 16).speedup, speedup_ideal(&theory, k)));
    }
}
END_TEST

START_TEST(predicted_best_k_has_the_most_tokens_per_second)
{
    const struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    struct cluster_answer best = cluster_predict(&costs, &q, 16);
    for (q.k = 0; q.k <= 16; q.k++) {
        ck_assert(cluster_predict(&costs, &q, 16).tokens_per_second <= best.tokens_per_second);
    }
    ck_assert_int_gt(best.k, 0);
    const struct cluster_costs useless = costs_of(0);
    q.k = -1;
    ck_assert_int_eq(cluster_predict(&useless, &q, 16).k, 0);
}
END_TEST

START_TEST(a_curve_is_interpolated_and_goes_on)
{
    const struct cluster_curve curve = {3, {2, 4, 8}, {100, 120, 200}};
    ck_assert(is_near(cluster_curve_at(&curve, 1), 100));
    ck_assert(is_near(cluster_curve_at(&curve, 3), 110));
    ck_assert(is_near(cluster_curve_at(&curve, 8), 200));
    ck_assert(is_near(cluster_curve_at(&curve, 10), 240));
    ck_assert(is_near(cluster_curve_at(&(struct cluster_curve){0}, 10), 0));
}
END_TEST

/* 1000 / 2 + 10 sums of 3 us. What T does not divide stays. */
START_TEST(ranks_divide_the_compute_and_add_sums)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    q.k = 0;
    q.n_ranks = 2;
    ck_assert(is_near(cluster_predict(&costs, &q, 16).round_us, 530));
    costs.sharded_ratio = 0.9;
    ck_assert(is_near(cluster_predict(&costs, &q, 16).round_us, 580));
    costs.n_ranks = 2; /* the step was measured with two */
    ck_assert(is_near(cluster_predict(&costs, &q, 16).round_us, 1030));
}
END_TEST

/* T = 8 on hosts of 4: two hops near, one far, and three times the bytes. */
START_TEST(sums_that_were_not_measured_come_from_hops)
{
    struct cluster_costs costs = costs_of(0.7);
    ck_assert(cluster_knows_ranks(&costs, 1) && cluster_knows_ranks(&costs, 2));
    ck_assert(!cluster_knows_ranks(&costs, 8));
    costs.hops = (struct cluster_hops){.us = 4, .per_host = 4, .host_us = 20};
    ck_assert(cluster_knows_ranks(&costs, 8));
    ck_assert(is_near(cluster_sum_us(&costs, 8, 1), 28));
    ck_assert(is_near(cluster_sum_us(&costs, 4, 1), 8));
    costs.sum_bytes = 1000;
    costs.hops.bytes_per_second = 1e9;
    ck_assert(is_near(cluster_sum_us(&costs, 8, 5), 28 + 15));
    ck_assert(is_near(cluster_sum_us(&costs, 2, 5), 7)); /* measured */
    ck_assert(is_near(cluster_sum_us(&costs, 1, 5), 0));
}
END_TEST

/* Rounds of some groups whose coordinator works on one at a time, first come first served; returns
 * rounds a second in the long run. */
static double count_rounds(int n_groups, double engine_us, double away_us)
{
    enum { ROUNDS = 20000 };
    double back_us[64] = {0}, free_us = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int next = 0;
        for (int g = 1; g < n_groups; g++) {
            if (back_us[g] < back_us[next]) next = g;
        }
        free_us = fmax(free_us, back_us[next]) + engine_us;
        back_us[next] = free_us + away_us;
    }
    return ROUNDS * 1e6 / free_us;
}

START_TEST(many_groups_saturate_the_engine_as_counted)
{
    struct cluster_costs costs = costs_of(0.7);
    costs.round_us = 120;
    for (int n = 1; n <= 24; n++) {
        struct cluster_question q = one;
        q.k = 2;
        q.n_groups = q.n_clients = n;
        const struct cluster_answer a = cluster_predict(&costs, &q, 16);
        double engine = a.draft_us + a.coordinator_us;
        double counted = count_rounds(n, engine, a.round_us - engine);
        ck_assert_msg(fabs(a.rounds_per_second / counted - 1) < 0.01, "%d groups: %g, counted %g",
                      n, a.rounds_per_second, counted);
        ck_assert_int_eq(a.limit == CLUSTER_LIMIT_ENGINE, n > a.groups_saturating);
    }
}
END_TEST

/* An engine for each group, and one device that drafts for all of them. */
START_TEST(one_drafting_device_limits_all_engines)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    costs.round_us = 120;
    costs.n_engines = 0;
    q.k = 2;
    q.n_groups = q.n_clients = 16;
    const struct cluster_answer apart = cluster_predict(&costs, &q, 16);
    ck_assert(apart.limit == CLUSTER_LIMIT_GROUPS && apart.groups_saturating == 0);
    costs.n_drafts = 1;
    const struct cluster_answer shared = cluster_predict(&costs, &q, 16);
    ck_assert(is_near(shared.rounds_per_second, 1e6 / 200));
    ck_assert_int_eq(shared.limit, CLUSTER_LIMIT_ENGINE);
    ck_assert(is_near(shared.groups_saturating, shared.round_us / 200));
}
END_TEST

START_TEST(as_many_coordinators_as_keep_below_the_utilization)
{
    struct cluster_costs costs = costs_of(0.7);
    costs.round_us = 120;
    for (int n = 1; n <= 1250; n = n * 5 / 3 + 1) {
        struct cluster_question q = one;
        q.n_coordinators = 0;
        q.k = 2;
        q.n_groups = n;
        q.n_clients = 8 * n;
        const struct cluster_answer a = cluster_predict(&costs, &q, 16);
        ck_assert(a.engine_busy <= 0.8);
        costs.n_groups_most = 3;
        const struct cluster_answer three = cluster_predict(&costs, &q, 16);
        ck_assert(three.groups_each <= 3 && three.n_coordinators * 3 >= n);
        costs.n_groups_most = 0;
        if (a.n_coordinators == 1) continue;
        q.n_coordinators = a.n_coordinators - 1; /* fewer are too busy, or share out as unevenly */
        const struct cluster_answer fewer = cluster_predict(&costs, &q, 16);
        ck_assert(fewer.engine_busy > 0.8 || fewer.groups_each == a.groups_each);
    }
}
END_TEST

/* The work of all groups takes at least its sum over the cores. */
START_TEST(cores_of_one_host_are_shared)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    costs.n_cores = 2;
    costs.is_shared = true;
    q.k = 0;
    double alone = cluster_predict(&costs, &q, 16).rounds_per_second;
    q.n_groups = q.n_clients = 2;
    ck_assert(is_near(cluster_predict(&costs, &q, 16).rounds_per_second, 2 * alone));
    q.n_groups = q.n_clients = 3;
    const struct cluster_answer three = cluster_predict(&costs, &q, 16);
    ck_assert(is_near(three.rounds_per_second, 2 * alone));
    ck_assert_int_eq(three.limit, CLUSTER_LIMIT_CORES);
    costs.slowdown = 1.25; /* of two busy cores */
    ck_assert(is_near(cluster_predict(&costs, &q, 16).rounds_per_second, 2 * alone / 1.25));
    q.n_groups = q.n_clients = 2;
    double two = cluster_predict(&costs, &q, 16).rounds_per_second;
    ck_assert(two < 2 * alone && two > 1.6 * alone - 1);
    q.n_groups = q.n_clients = 1;
    ck_assert(is_near(cluster_predict(&costs, &q, 16).rounds_per_second, alone));
}
END_TEST

START_TEST(bytes_of_a_link_are_a_limit)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    costs.n_engines = 0;
    costs.row_bytes = 1000;
    costs.wire_bytes_per_second = 1e6; /* a row takes a millisecond */
    q.k = 0;
    q.n_groups = q.n_clients = 4;
    const struct cluster_answer a = cluster_predict(&costs, &q, 16);
    ck_assert_int_eq(a.limit, CLUSTER_LIMIT_WIRE);
    ck_assert(is_near(a.tokens_per_second, 1000) && is_near(a.bytes_per_second, 1e6));
}
END_TEST

/* Little's law: clients = rate * (queue + time in service). */
START_TEST(clients_beyond_the_lanes_wait)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    costs.n_lanes_max = 4;
    costs.prompt_us = 10;
    q.n_clients = 12;
    q.n_prompt = 50;
    const struct cluster_answer a = cluster_predict(&costs, &q, 16);
    double service_us = q.n_tokens * a.token_us;
    ck_assert(is_near(a.lanes, 4));
    ck_assert(is_near(a.requests_per_second * (a.queue_us + service_us) / 1e6, 12));
    ck_assert(a.first_token_us > a.queue_us);
}
END_TEST

START_TEST(a_price_is_that_of_an_hour_over_its_tokens)
{
    struct cluster_costs costs = costs_of(0.7);
    struct cluster_question q = one;
    costs.rank_price = 2;
    costs.coordinator_price = 1;
    q.n_groups = q.n_clients = 3;
    const struct cluster_answer a = cluster_predict(&costs, &q, 16);
    ck_assert(is_near(a.price_per_million, 7 / (a.tokens_per_second * 3600) * 1e6));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_model");
    TCase *tcase = tcase_create("predictions");
    tcase_add_test(tcase, one_stream_is_the_theory_of_one_stream);
    tcase_add_test(tcase, predicted_best_k_has_the_most_tokens_per_second);
    tcase_add_test(tcase, a_curve_is_interpolated_and_goes_on);
    tcase_add_test(tcase, ranks_divide_the_compute_and_add_sums);
    tcase_add_test(tcase, sums_that_were_not_measured_come_from_hops);
    tcase_add_test(tcase, many_groups_saturate_the_engine_as_counted);
    tcase_add_test(tcase, one_drafting_device_limits_all_engines);
    tcase_add_test(tcase, as_many_coordinators_as_keep_below_the_utilization);
    tcase_add_test(tcase, cores_of_one_host_are_shared);
    tcase_add_test(tcase, bytes_of_a_link_are_a_limit);
    tcase_add_test(tcase, clients_beyond_the_lanes_wait);
    tcase_add_test(tcase, a_price_is_that_of_an_hour_over_its_tokens);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
