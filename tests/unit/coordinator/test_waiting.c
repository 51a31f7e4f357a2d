/* ctest: labels=quick libs=coordinator fail_alloc=yes timeout=60 */
/* The queue of waiting jobs: shares of classes and clients, order inside of them, and bounds on how
 * long anybody waits. */
#include <stdio.h>

#include "base/rng.h"
#include "coordinator/engine/waiting.h"
#include "tests/support/check_util.h"
#include "tests/support/fail_alloc.h"

enum { CAPACITY = 4000, RETURNED = 8, CLIENTS = 12, STEPS = 200000 };

/* A job of the tests; `item` points to it. */
struct work {
    struct waiting_job job;
    int client;
    bool is_here, came_back;
};

static struct error err;
static struct waiting *waiting;
static struct work works[CAPACITY + RETURNED];
static uint64_t n_arrived;
static int n_random;

static const char *const names[CLIENTS] = {"",  "a", "b", "c", "d", "e",
                                           "f", "g", "h", "i", "j", "a longer name"};

static int pick(int n)
{
    const struct rng_address at = {.seed = 4711};
    return (int)(rng_uniform(&at, RNG_LOAD, (uint32_t)n_random++) * n);
}

static void setup(void)
{
    const struct waiting_options options = {.capacity = CAPACITY, .n_returned = RETURNED};
    CHECK_OK(waiting_open(&waiting, &options, &err));
}

static void teardown(void)
{
    waiting_close(waiting);
}

static void push(struct work *work, enum job_class job_class, int client, int64_t n_tokens)
{
    *work = (struct work){{work, job_class, names[client], n_tokens, n_arrived++, 0}, client, 1, 0};
    if (waiting_push(waiting, &work->job, &err)) ck_abort_msg("%s", err.text);
}

static struct work *pop(void)
{
    struct work *next = waiting_peek(waiting), *work = waiting_pop(waiting);
    if (next != work) ck_abort_msg("pop returns another job than peek");
    if (work && !work->is_here) ck_abort_msg("a job was served that was not there");
    if (work) work->is_here = false;
    return work;
}

START_TEST(one_client_is_served_in_the_order_of_its_pushes)
{
    for (int i = 0; i < CAPACITY; i++) {
        push(&works[i], JOB_CLASS_NORMAL, 0, 1 + pick(3000));
    }
    ck_assert_int_eq(waiting_count(waiting), CAPACITY);
    for (int i = 0; i < CAPACITY; i++) {
        if (pop() != &works[i]) ck_abort_msg("job %d is not next", i);
    }
    ck_assert_ptr_null(waiting_pop(waiting));
    ck_assert_ptr_null(waiting_peek(waiting));
    ck_assert_int_eq(waiting_count(waiting), 0);
}
END_TEST

/* Serves n jobs; each that is served is followed by one more of its kind, so nobody runs out.
 * tokens[class][client] counts what each got. */
static void serve(int n, int most_tokens, double tokens[JOB_CLASSES][CLIENTS])
{
    for (int i = 0; i < n; i++) {
        struct work *work = pop();
        enum job_class job_class = work->job.job_class;
        tokens[job_class][work->client] += (double)work->job.n_tokens;
        push(work, job_class, work->client, 1 + pick(most_tokens));
    }
}

START_TEST(classes_and_clients_get_their_shares)
{
    static double tokens[JOB_CLASSES][CLIENTS];
    const int weights[CLIENTS] = {1, 1, 2, 5, 1, 10};
    for (int i = 2; i < 6; i++) {
        CHECK_OK(waiting_set_weight(waiting, names[i], weights[i], &err));
    }
    for (int i = 0; i < 600; i++) { /* client i % 6, with unlike sizes of jobs */
        push(&works[i], (enum job_class)(i / 6 % JOB_CLASSES), i % 6, 1 + pick(900));
    }
    serve(STEPS, 900, tokens);
    double all = 0, of_class[JOB_CLASSES] = {0};
    for (int c = 0; c < JOB_CLASSES; c++) {
        for (int i = 0; i < 6; i++) {
            of_class[c] += tokens[c][i];
        }
        all += of_class[c];
    }
    ck_assert(of_class[JOB_CLASS_HIGH] / all > 0.565 && of_class[JOB_CLASS_HIGH] / all < 0.578);
    ck_assert(of_class[JOB_CLASS_NORMAL] / all > 0.281 && of_class[JOB_CLASS_NORMAL] / all < 0.291);
    for (int c = 0; c < JOB_CLASSES; c++) {
        for (int i = 0; i < 6; i++) {
            double share = tokens[c][i] / of_class[c], wanted = weights[i] / 20.0;
            ck_assert_msg(share > 0.98 * wanted && share < 1.02 * wanted, "client %d has %g", i,
                          share);
        }
    }
}
END_TEST

/* The weight that a job brings counts for its client from then on, whatever was set by name. */
START_TEST(weight_of_a_job_is_that_of_its_client)
{
    static double tokens[JOB_CLASSES][CLIENTS];
    const int weights[2][CLIENTS] = {{0, 1, 3, 6}, {0, 6, 3, 1}};
    CHECK_OK(waiting_set_weight(waiting, names[2], 500, &err));
    for (int turn = 0; turn < 2; turn++) {
        memset(tokens, 0, sizeof tokens);
        for (int i = 0; i < 300; i++) {
            struct work *work = &works[300 * turn + i];
            int client = 1 + i % 3;
            *work = (struct work){{work, JOB_CLASS_LOW, names[client], 1 + pick(900), n_arrived++,
                                   weights[turn][client]},
                                  client,
                                  1,
                                  0};
            CHECK_OK(waiting_push(waiting, &work->job, &err));
        }
        serve(STEPS, 900, tokens);
        double all = tokens[JOB_CLASS_LOW][1] + tokens[JOB_CLASS_LOW][2] + tokens[JOB_CLASS_LOW][3];
        for (int c = 1; c < 4; c++) {
            double share = tokens[JOB_CLASS_LOW][c] / all, wanted = weights[turn][c] / 10.0;
            ck_assert_msg(share > 0.98 * wanted && share < 1.02 * wanted, "client %d has %g", c,
                          share);
        }
    }
}
END_TEST

/* The service that two clients of equal weight, both always waiting, got since any moment differs
 * by no more than two jobs and a quantum (Shreedhar and Varghese, theorem 2). */
START_TEST(no_client_gets_much_less_than_another)
{
    enum { MOST = 5000 };
    static double got[JOB_CLASSES][CLIENTS];
    double least = 0, most = 0;
    for (int i = 0; i < 400; i++) {
        push(&works[i], JOB_CLASS_LOW, i % 2, i % 2 ? 1 + pick(MOST) : 3);
    }
    for (int n = 0; n < 50000; n++) {
        struct work *work = pop();
        got[JOB_CLASS_LOW][work->client] += (double)work->job.n_tokens;
        push(work, JOB_CLASS_LOW, work->client, work->client ? 1 + pick(MOST) : 3);
        double ahead = got[JOB_CLASS_LOW][0] - got[JOB_CLASS_LOW][1];
        least = ahead < least ? ahead : least;
        most = ahead > most ? ahead : most;
    }
    ck_assert_msg(most - least <= 2 * MOST + WAITING_QUANTUM_TOKENS, "%g to %g", least, most);
}
END_TEST

START_TEST(a_greedy_client_does_not_delay_anothers_single_job)
{
    for (int i = 0; i < 2000; i++) {
        push(&works[i], JOB_CLASS_NORMAL, 1, 100);
    }
    for (int turn = 0; turn < 10; turn++) {
        int64_t n_before = 0;
        struct work *single = &works[2000 + turn];
        push(single, JOB_CLASS_NORMAL, 2, WAITING_QUANTUM_TOKENS);
        for (struct work *work; (work = pop()) != single;) {
            n_before += work->job.n_tokens;
        }
        ck_assert_int_le(n_before, WAITING_QUANTUM_TOKENS + 100);
    }
}
END_TEST

/* A job of the lowest class that is as large as can be, after clients that never run out. */
START_TEST(the_largest_job_of_the_lowest_class_is_served)
{
    enum { SMALL = 100000 };
    double n_before = 0;
    struct work *large = &works[100];
    for (int i = 0; i < 20; i++) {
        push(&works[i], i % 2 ? JOB_CLASS_HIGH : JOB_CLASS_NORMAL, i % CLIENTS, SMALL);
    }
    push(large, JOB_CLASS_LOW, 3, INT64_MAX); /* counts as WAITING_COST_MAX */
    for (struct work *work; (work = pop()) != large;) {
        n_before += (double)work->job.n_tokens;
        push(work, work->job.job_class, work->client, SMALL);
    }
    ck_assert(n_before <= 6.0 * WAITING_COST_MAX + 20.0 * SMALL);
    ck_assert(n_before >= 5.0 * WAITING_COST_MAX);
}
END_TEST

START_TEST(the_next_job_stays_next_when_others_come)
{
    for (int turn = 0; turn < 300; turn++) {
        push(&works[0], JOB_CLASS_LOW, 1, 1 + pick(100000));
        struct work *next = waiting_peek(waiting);
        for (int i = 1; i < 30; i++) {
            push(&works[i], (enum job_class)pick(JOB_CLASSES), pick(CLIENTS), 1 + pick(1000));
            if (waiting_peek(waiting) != next) ck_abort_msg("push %d changed who is next", i);
        }
        while (pop()) {
        }
    }
}
END_TEST

START_TEST(jobs_that_come_back_are_first_and_cost_nothing_again)
{
    push(&works[0], JOB_CLASS_HIGH, 0, 10);
    const uint64_t arrivals[] = {30, 10, 20, 10};
    for (int i = 0; i < 4; i++) {
        struct work *work = &works[1 + i];
        *work = (struct work){{work, JOB_CLASS_LOW, "x", 1 << 20, arrivals[i], 0}, 1, true, true};
        CHECK_OK(waiting_push_front(waiting, &work->job, &err));
    }
    ck_assert_int_eq(waiting_class_count(waiting, JOB_CLASS_LOW), 4);
    const int order[] = {2, 4, 3, 1, 0};
    for (int i = 0; i < 5; i++) {
        ck_assert_ptr_eq(pop(), &works[order[i]]);
    }
    for (int i = 0; i < RETURNED; i++) {
        struct work *work = &works[i];
        *work = (struct work){{work, JOB_CLASS_LOW, "x", 1, 1, 0}, 1, true, true};
        CHECK_OK(waiting_push_front(waiting, &work->job, &err));
    }
    CHECK_ERR(waiting_push_front(waiting, &works[RETURNED].job, &err), ERR_EXHAUSTED,
              "8 requests that lost their place");
}
END_TEST

START_TEST(jobs_set_aside_are_passed_over_and_keep_their_turn)
{
    push(&works[0], JOB_CLASS_HIGH, 0, 10);
    for (int i = 1; i <= 3; i++) {
        struct work *work = &works[i];
        *work = (struct work){{work, JOB_CLASS_LOW, "x", 10, (uint64_t)i, 0}, 1, true, true};
        CHECK_OK(waiting_push_front(waiting, &work->job, &err));
    }
    waiting_set_aside(waiting, &works[0], true); /* it was pushed: nothing happens */
    waiting_set_aside(waiting, &works[9], true); /* it is not here */
    for (int i = 3; i >= 1; i--) {
        waiting_set_aside(waiting, &works[i], true);
        waiting_set_aside(waiting, &works[i], true);
    }
    ck_assert_ptr_eq(waiting_peek(waiting), &works[0]);
    ck_assert_int_eq(waiting_count(waiting), 4);
    ck_assert_int_eq(waiting_count_aside(waiting), 3);
    int n_seen = 0;
    for (int at = 0; waiting_next(waiting, &at); n_seen++) {
    }
    ck_assert_int_eq(n_seen, 4);
    ck_assert(waiting_remove(waiting, &works[2]));
    ck_assert_int_eq(waiting_count_aside(waiting), 2);
    waiting_set_aside(waiting, &works[3], false);
    waiting_set_aside(waiting, &works[1], false);
    ck_assert_ptr_eq(pop(), &works[1]);
    ck_assert_ptr_eq(pop(), &works[3]);
    ck_assert_ptr_eq(pop(), &works[0]);
    ck_assert_ptr_null(waiting_peek(waiting));
    ck_assert_int_eq(waiting_count(waiting), 0);
}
END_TEST

START_TEST(a_full_queue_refuses_and_still_takes_back)
{
    for (int i = 0; i < CAPACITY; i++) {
        push(&works[i], JOB_CLASS_NORMAL, i % CLIENTS, 5);
    }
    struct work *more = &works[CAPACITY];
    more->job = (struct waiting_job){more, JOB_CLASS_HIGH, "a", 5, 1, 0};
    CHECK_ERR(waiting_push(waiting, &more->job, &err), ERR_EXHAUSTED,
              "4000 requests are waiting already; try again later");
    CHECK_OK(waiting_push_front(waiting, &more->job, &err));
    ck_assert_ptr_eq(waiting_pop(waiting), more);
    ck_assert(waiting_remove(waiting, &works[77]));
    CHECK_OK(waiting_push(waiting, &more->job, &err));
    ck_assert_int_eq(waiting_count(waiting), CAPACITY);
}
END_TEST

/* A million names, all of which are gone again: the queue has room for as many at once as jobs. */
START_TEST(clients_without_jobs_use_no_memory)
{
    static char own[CAPACITY][20];
    struct fail_alloc_live before = fail_alloc_live(), after;
    for (int i = 0; i < 1000000; i++) {
        int at = i % CAPACITY;
        struct work *work = &works[at];
        if (work->is_here && i % 2) {
            if (!waiting_remove(waiting, work)) ck_abort_msg("job %d is not there", i);
        } else if (work->is_here) {
            while (pop() != work) {
            }
        }
        snprintf(own[at], sizeof own[at], "client %d", i);
        *work =
            (struct work){{work, JOB_CLASS_NORMAL, own[at], 100, (uint64_t)i, 0}, 0, true, false};
        if (waiting_push(waiting, &work->job, &err)) ck_abort_msg("%s", err.text);
    }
    ck_assert(fail_alloc_is_as_before(&before, &after));
    while (pop()) {
    }
    for (int i = 0; i < CAPACITY; i++) { /* all places are free */
        push(&works[i], JOB_CLASS_LOW, 0, 1);
    }
}
END_TEST

START_TEST(a_job_that_is_gone_saves_nothing_for_others)
{
    for (int i = 0; i < 2000; i++) { /* a client saves for a large job, and then withdraws it */
        push(&works[i], JOB_CLASS_NORMAL, i % 2 ? 1 : 2, 100);
    }
    push(&works[2000], JOB_CLASS_NORMAL, 3, 40000);
    for (int i = 2001; i < 2500; i++) {
        push(&works[i], JOB_CLASS_NORMAL, 3, 100);
    }
    for (int i = 0; i < 700; i++) {
        pop();
    }
    ck_assert(waiting_remove(waiting, &works[2000]));
    int n_in_a_row = 0, most = 0;
    for (int i = 0; i < 300; i++) {
        n_in_a_row = pop()->client == 3 ? n_in_a_row + 1 : 0;
        most = n_in_a_row > most ? n_in_a_row : most;
    }
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, 2 * WAITING_QUANTUM_TOKENS / 100 + 1);
}
END_TEST

START_TEST(iterating_sees_every_job_once_and_may_remove_it)
{
    for (int i = 0; i < 1000; i++) {
        push(&works[i], (enum job_class)pick(JOB_CLASSES), pick(CLIENTS), 1 + pick(100));
    }
    int at = 0, i = 0;
    for (struct work *work; (work = waiting_next(waiting, &at)); i++) {
        if (work != &works[i]) ck_abort_msg("job %d is not at its place", i);
        if (i % 3 == 0 || i == 999) ck_assert(waiting_remove(waiting, work));
    }
    ck_assert_int_eq(i, 1000);
    ck_assert(!waiting_remove(waiting, &works[0]));
    ck_assert_ptr_null(waiting_next(waiting, &at));
    ck_assert_int_eq(waiting_count(waiting), 666);
    for (i = 0, at = 0; waiting_next(waiting, &at); i++) {
    }
    ck_assert_int_eq(i, 666);
}
END_TEST

START_TEST(weights_that_make_no_sense_are_refused)
{
    char name[20];
    CHECK_ERR(waiting_set_weight(waiting, "a", 0, &err), ERR_ARGUMENT,
              "weight 0 of client 'a' is not within 1 to 1000");
    CHECK_ERR(waiting_set_weight(waiting, "a", 1001, &err), ERR_ARGUMENT, "weight 1001");
    for (int i = 0; i < WAITING_WEIGHTS_MAX; i++) {
        snprintf(name, sizeof name, "client %d", i);
        CHECK_OK(waiting_set_weight(waiting, name, 1 + i, &err));
    }
    CHECK_OK(waiting_set_weight(waiting, "client 7", 3, &err));
    CHECK_ERR(waiting_set_weight(waiting, "b", 3, &err), ERR_EXHAUSTED,
              "256 clients have a weight already; client 'b' gets none");
}
END_TEST

static int n_here(enum job_class job_class)
{
    int n = 0;
    for (int i = 0; i < CAPACITY; i++) {
        n += works[i].is_here && works[i].job.job_class == job_class;
    }
    return n;
}

/* The first of its client and class, or of those that came back. */
static void expect_first(const struct work *work)
{
    for (int i = 0; i < CAPACITY; i++) {
        const struct work *other = &works[i];
        if (!other->is_here || other == work) continue;
        if (other->came_back && !work->came_back) ck_abort_msg("one that came back waits");
        bool is_like = other->came_back == work->came_back;
        is_like = is_like && (work->came_back || (other->client == work->client &&
                                                  other->job.job_class == work->job.job_class));
        if (is_like && other->job.arrival < work->job.arrival) ck_abort_msg("an earlier one waits");
    }
}

/* One random operation on a random job; returns who was served, -1 nobody. */
static int random_step(int n_works)
{
    struct work *work = &works[pick(n_works)];
    int kind = pick(10), n_back = 0;
    for (int i = 0; i < n_works; i++) {
        n_back += works[i].is_here && works[i].came_back;
    }
    if (kind < 4 && !work->is_here) {
        push(work, (enum job_class)pick(JOB_CLASSES), pick(CLIENTS), 1 + pick(3000));
    } else if (kind < 5 && !work->is_here && work->job.client && n_back < RETURNED) {
        work->is_here = work->came_back = true;
        if (waiting_push_front(waiting, &work->job, &err)) ck_abort_msg("%s", err.text);
    } else if (kind < 6) {
        if (waiting_remove(waiting, work) != work->is_here) ck_abort_msg("remove is wrong");
        work->is_here = false;
    } else if (kind < 9 && (work = waiting_peek(waiting))) {
        expect_first(work);
        return (int)(pop() - works);
    }
    return -1;
}

static void random_run(int n_steps, int *served)
{
    for (int i = 0; i < n_steps; i++) {
        served[i] = random_step(60);
        if (i % 100) continue;
        for (int c = 0; c < JOB_CLASSES; c++) {
            if (waiting_class_count(waiting, (enum job_class)c) != n_here((enum job_class)c)) {
                ck_abort_msg("class %d is miscounted at step %d", c, i);
            }
        }
    }
}

START_TEST(random_operations_keep_the_order_and_repeat_themselves)
{
    enum { N_STEPS = 20000 };
    static int first[N_STEPS], again[N_STEPS];
    random_run(N_STEPS, first);
    waiting_close(waiting);
    setup();
    memset(works, 0, sizeof works);
    n_random = 0;
    n_arrived = 0;
    random_run(N_STEPS, again);
    ck_assert(memcmp(first, again, sizeof first) == 0);
}
END_TEST

static int open_and_weigh(void *arg, struct error *error)
{
    struct waiting *own;
    (void)arg;
    const struct waiting_options options = {.capacity = 10, .n_returned = 1};
    int rc = waiting_open(&own, &options, error);
    if (!rc) rc = waiting_set_weight(own, "a", 2, error);
    waiting_close(own);
    return rc;
}

START_TEST(opening_without_memory_leaks_nothing)
{
    fail_alloc_each("waiting_open", open_and_weigh, NULL, FAIL_OURS, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("waiting");
    TCase *tcase = tcase_create("waiting");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 50);
    tcase_add_test(tcase, one_client_is_served_in_the_order_of_its_pushes);
    tcase_add_test(tcase, classes_and_clients_get_their_shares);
    tcase_add_test(tcase, weight_of_a_job_is_that_of_its_client);
    tcase_add_test(tcase, no_client_gets_much_less_than_another);
    tcase_add_test(tcase, a_greedy_client_does_not_delay_anothers_single_job);
    tcase_add_test(tcase, the_largest_job_of_the_lowest_class_is_served);
    tcase_add_test(tcase, the_next_job_stays_next_when_others_come);
    tcase_add_test(tcase, jobs_that_come_back_are_first_and_cost_nothing_again);
    tcase_add_test(tcase, jobs_set_aside_are_passed_over_and_keep_their_turn);
    tcase_add_test(tcase, a_full_queue_refuses_and_still_takes_back);
    tcase_add_test(tcase, clients_without_jobs_use_no_memory);
    tcase_add_test(tcase, a_job_that_is_gone_saves_nothing_for_others);
    tcase_add_test(tcase, iterating_sees_every_job_once_and_may_remove_it);
    tcase_add_test(tcase, weights_that_make_no_sense_are_refused);
    tcase_add_test(tcase, random_operations_keep_the_order_and_repeat_themselves);
    tcase_add_test(tcase, opening_without_memory_leaks_nothing);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
