/* ctest: labels=quick libs=skip timeout=60 */
/* The search for layers with a worth that is known: it finds the best set, measures none twice,
 * keeps to its time and passes failures on. */
#include "client/skip/search.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/check_util.h"

enum { N_LAYERS = 9, SETS_MAX = 1 << N_LAYERS };

/* A set is worth the sum of its layers, or only that where `needs` is in it. */
struct world {
    double worth[N_LAYERS];
    int needs; /* -1: none */
    int n_measured, n_allowed, fails_at;
    bool was_seen[SETS_MAX];
};

static int measure(void *context, struct skip_candidate *candidate, struct error *err)
{
    struct world *w = context;
    int layers[SKIP_LAYERS_MAX], n = skip_candidate_layers(candidate, layers);
    unsigned mask = 0;
    ck_assert_int_eq(n, candidate->n);
    ck_assert_int_gt(n, 0);
    ck_assert_int_lt(n, N_LAYERS); /* the whole is no draft */
    for (int i = 0; i < n; i++) {
        mask |= 1u << layers[i];
        candidate->speed_up += w->worth[layers[i]];
    }
    if (w->needs >= 0 && !candidate->has[w->needs]) candidate->speed_up = 0.1 / n;
    ck_assert(!w->was_seen[mask]);
    w->was_seen[mask] = true;
    if (++w->n_measured == w->fails_at)
        return error_set(err, ERR_UNAVAILABLE, "the device is lost");
    return 0;
}

static bool is_over(void *context)
{
    const struct world *w = context;
    return w->n_measured >= w->n_allowed;
}

static struct skip_search search_of(struct world *w)
{
    return (struct skip_search){
        .n_layers = N_LAYERS, .measure = measure, .is_over = is_over, .context = w};
}

START_TEST(the_best_set_is_found)
{
    struct world w = {
        .worth = {1, -1, 2, -2, 3, -1, 0.5, -4, 1}, .needs = -1, .n_allowed = SETS_MAX};
    struct skip_search s = search_of(&w);
    struct error err;
    static const int best[] = {0, 2, 4, 6, 8};
    int layers[SKIP_LAYERS_MAX];
    CHECK_OK(skip_search_run(&s, &err));
    ck_assert_int_eq(skip_candidate_layers(&s.found[0], layers), 5);
    ck_assert_mem_eq(layers, best, sizeof best);
    ck_assert_int_eq(s.n_found, w.n_measured);
    for (int i = 1; i < s.n_found; i++) {
        ck_assert(s.found[i - 1].speed_up >= s.found[i].speed_up);
    }
    free(s.found);
}
END_TEST

/* No early exit but the longest one has the last layers, and one alone is worth the most. */
START_TEST(layers_are_left_out_of_the_whole)
{
    struct world w = {
        .worth = {-1, -1, -1, -1, -1, -1, -1, -1, 20}, .needs = 8, .n_allowed = SETS_MAX};
    struct skip_search s = search_of(&w);
    struct error err;
    CHECK_OK(skip_search_run(&s, &err));
    ck_assert_int_eq(s.found[0].n, 1);
    ck_assert(s.found[0].has[8]);
    free(s.found);
}
END_TEST

START_TEST(the_time_is_kept)
{
    for (int n_allowed = 0; n_allowed < 40; n_allowed++) {
        struct world w = {.worth = {1, -1, 2}, .needs = -1, .n_allowed = n_allowed};
        struct skip_search s = search_of(&w);
        struct error err;
        CHECK_OK(skip_search_run(&s, &err));
        ck_assert_int_eq(s.n_found, n_allowed ? n_allowed : 1);
        free(s.found);
    }
}
END_TEST

START_TEST(a_failure_ends_the_search)
{
    for (int fails_at = 1; fails_at < 30; fails_at++) {
        struct world w = {
            .worth = {1, -1, 2}, .needs = -1, .n_allowed = SETS_MAX, .fails_at = fails_at};
        struct skip_search s = search_of(&w);
        struct error err;
        CHECK_ERR(skip_search_run(&s, &err), ERR_UNAVAILABLE, "the device is lost");
        ck_assert_int_eq(s.n_found, fails_at - 1);
        free(s.found);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skip_search");
    TCase *tcase = tcase_create("search");
    tcase_add_test(tcase, the_best_set_is_found);
    tcase_add_test(tcase, layers_are_left_out_of_the_whole);
    tcase_add_test(tcase, the_time_is_kept);
    tcase_add_test(tcase, a_failure_ends_the_search);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
