/* ctest: labels=quick libs=coordinator timeout=60 */
/* The queue of waiting jobs against deficit round robin as its paper writes it: rings that are
 * arrays, one quantum a turn, nothing skipped. Who is next must be equal after every operation. */
#include <string.h>

#include "base/rng.h"
#include "coordinator/engine/waiting.h"
#include "tests/support/check_util.h"

enum { CLIENTS = 5, WORKS = 40, STEPS = 60000, MOST_TOKENS = 20 * WAITING_QUANTUM_TOKENS };

struct plain_share {
    int64_t weight, deficit, cost;
    bool has_turn;
    enum job_class job_class;
    int client;
};

/* shares[0] has its turn. */
struct plain_ring {
    struct plain_share *shares[CLIENTS + JOB_CLASSES];
    int n;
};

struct work {
    struct waiting_job job;
    int client;
    bool is_here, came_back;
    uint64_t pushed;
};

static struct error err;
static struct waiting *waiting;
static struct work works[WORKS];
static struct plain_share clients[JOB_CLASSES][CLIENTS], classes[JOB_CLASSES];
static struct plain_ring client_rings[JOB_CLASSES], class_ring;
static const char *const names[CLIENTS] = {"", "a", "b", "bb", "c"};
static int n_random;
static uint64_t n_pushed;

static int pick(int n)
{
    const struct rng_address at = {.seed = 99};
    return (int)(rng_uniform(&at, RNG_LOAD, (uint32_t)n_random++) * n);
}

static void plain_add(struct plain_ring *ring, struct plain_share *share)
{
    for (int i = 0; i < ring->n; i++) {
        if (ring->shares[i] == share) return;
    }
    share->deficit = 0;
    share->has_turn = false;
    ring->shares[ring->n++] = share;
}

static void plain_remove(struct plain_ring *ring, const struct plain_share *share)
{
    int n = 0;
    for (int i = 0; i < ring->n; i++) {
        if (ring->shares[i] != share) ring->shares[n++] = ring->shares[i];
    }
    ring->n = n;
}

static struct plain_share *plain_next(struct plain_ring *ring)
{
    for (;;) {
        struct plain_share *share = ring->shares[0];
        if (!share->has_turn) share->deficit += share->weight * WAITING_QUANTUM_TOKENS;
        share->has_turn = true;
        if (share->deficit >= share->cost) return share;
        share->has_turn = false;
        memmove(ring->shares, ring->shares + 1, (size_t)(ring->n - 1) * sizeof *ring->shares);
        ring->shares[ring->n - 1] = share;
    }
}

/* The first job of a client and class; with client -1 that of those that came back. */
static struct work *plain_first(int job_class, int client)
{
    struct work *first = NULL;
    for (int i = 0; i < WORKS; i++) {
        struct work *work = &works[i];
        bool is_like = client < 0 ? work->came_back
                                  : !work->came_back && work->client == client &&
                                        work->job.job_class == (enum job_class)job_class;
        if (!work->is_here || !is_like) continue;
        bool is_before = !first || work->pushed < first->pushed;
        if (client < 0 && first) {
            uint64_t arrival = work->job.arrival, other = first->job.arrival;
            is_before = arrival < other || (arrival == other && work->pushed < first->pushed);
        }
        if (is_before) first = work;
    }
    return first;
}

static int64_t plain_cost(int job_class, int client)
{
    const struct work *first = plain_first(job_class, client);
    return first ? first->job.n_tokens : 0;
}

static void plain_update(int job_class)
{
    for (int i = 0; i < client_rings[job_class].n; i++) {
        struct plain_share *share = client_rings[job_class].shares[i];
        share->cost = plain_cost(job_class, share->client);
    }
    classes[job_class].cost = plain_next(&client_rings[job_class])->cost;
}

static struct work *plain_peek(void)
{
    struct work *back = plain_first(0, -1);
    if (back || class_ring.n == 0) return back;
    for (int i = 0; i < class_ring.n; i++) {
        plain_update((int)class_ring.shares[i]->job_class);
    }
    enum job_class job_class = plain_next(&class_ring)->job_class;
    return plain_first((int)job_class, plain_next(&client_rings[job_class])->client);
}

static void plain_forget(struct plain_share *share)
{
    int64_t quantum = share->weight * WAITING_QUANTUM_TOKENS;
    int64_t most = share->cost > quantum ? share->cost : quantum;
    share->deficit = share->deficit < most ? share->deficit : most;
}

/* The job is out; its client and class may be without jobs now. */
static void plain_take(struct work *work, bool is_served)
{
    enum job_class job_class = work->job.job_class;
    struct plain_share *client = &clients[job_class][work->client];
    work->is_here = false;
    if (work->came_back) return;
    client->deficit -= is_served ? work->job.n_tokens : 0;
    classes[job_class].deficit -= is_served ? work->job.n_tokens : 0;
    client->cost = plain_cost((int)job_class, work->client);
    if (client->cost == 0) plain_remove(&client_rings[job_class], client);
    if (client->cost > 0 && !is_served) plain_forget(client);
    if (client_rings[job_class].n == 0) {
        plain_remove(&class_ring, &classes[job_class]);
    } else if (!is_served) {
        plain_update((int)job_class);
        plain_forget(&classes[job_class]);
    }
}

static void push(struct work *work)
{
    int client = pick(CLIENTS);
    int64_t n_tokens = 1 + (pick(4) ? pick(300) : pick(MOST_TOKENS));
    enum job_class job_class = (enum job_class)pick(JOB_CLASSES);
    *work = (struct work){
        {work, job_class, names[client], n_tokens, n_pushed, 0}, client, true, false, n_pushed};
    n_pushed++;
    if (waiting_push(waiting, &work->job, &err)) ck_abort_msg("%s", err.text);
    plain_add(&client_rings[job_class], &clients[job_class][client]);
    plain_add(&class_ring, &classes[job_class]);
}

static void push_front(struct work *work)
{
    work->is_here = work->came_back = true;
    work->pushed = n_pushed++;
    if (waiting_push_front(waiting, &work->job, &err)) ck_abort_msg("%s", err.text);
}

static void set_weight(int client, int weight)
{
    CHECK_OK(waiting_set_weight(waiting, names[client], weight, &err));
    for (int c = 0; c < JOB_CLASSES; c++) {
        clients[c][client].weight = weight;
    }
}

static void random_step(void)
{
    struct work *work = &works[pick(WORKS)];
    int kind = pick(100);
    if (kind < 45) {
        if (!work->is_here) push(work);
    } else if (kind < 50) {
        if (!work->is_here && work->job.client) push_front(work);
    } else if (kind < 60) {
        if (waiting_remove(waiting, work) != work->is_here) ck_abort_msg("remove is wrong");
        if (work->is_here) plain_take(work, false);
    } else if (kind < 61) {
        set_weight(pick(CLIENTS), 1 + pick(9));
    } else {
        work = plain_peek();
        if (waiting_pop(waiting) != work) ck_abort_msg("another job was served");
        if (work) plain_take(work, true);
    }
}

START_TEST(the_order_is_that_of_plain_deficit_round_robin)
{
    const int weights[JOB_CLASSES] = {
        [JOB_CLASS_HIGH] = 5, [JOB_CLASS_NORMAL] = 0, [JOB_CLASS_LOW] = 0};
    struct waiting_options options = {.capacity = WORKS, .n_returned = WORKS};
    memcpy(options.class_weights, weights, sizeof weights);
    CHECK_OK(waiting_open(&waiting, &options, &err));
    for (int c = 0; c < JOB_CLASSES; c++) {
        int64_t weight = c == JOB_CLASS_HIGH ? 5 : c == JOB_CLASS_NORMAL ? 2 : 1;
        classes[c] = (struct plain_share){.weight = weight, .job_class = (enum job_class)c};
        for (int i = 0; i < CLIENTS; i++) {
            clients[c][i] = (struct plain_share){.weight = 1, .client = i};
        }
    }
    for (int i = 0; i < STEPS; i++) {
        random_step();
        if (pick(3) == 0) continue; /* many operations may come between two questions */
        const struct work *wanted = plain_peek(), *got = waiting_peek(waiting);
        if (got != wanted) ck_abort_msg("step %d: another job is next", i);
    }
    waiting_close(waiting);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("waiting_order");
    TCase *tcase = tcase_create("waiting_order");
    tcase_set_timeout(tcase, 50);
    tcase_add_test(tcase, the_order_is_that_of_plain_deficit_round_robin);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
