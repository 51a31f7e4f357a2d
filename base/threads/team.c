/* Fork and join with two counters: `job` tells the members that there is work, `n_busy` tells the
 * lead that all are done. Both sides spin for a bounded time and then sleep on a condition
 * variable. No thread spins on the CPU where the thread that it waits for was last seen, and the
 * lead does not spin for long if a member has not even begun, because then the spinning itself may
 * keep the other thread from running.
 *
 *   lead    fn, arg -> n_busy = n - 1 -> job + 1 -> anyone asleep? wake -> own part -> n_busy = 0?
 *   member  job changed? -> own part -> n_busy - 1 -> last, and the lead asleep? wake
 *
 * No wake-up is lost: a thread that goes to sleep first says so and then checks the counter again,
 * while the other side first changes the counter and then looks for sleepers, all in one
 * sequentially consistent order. The sleeping thread holds the lock from its check until it
 * waits. */
#include "base/threads/team.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    LINE_BYTES = 64,     /* each of the two counters has a cache line of its own */
    SPINS_PER_LOOK = 32, /* pauses between two looks at the clock */
    BEGIN_US = 30,       /* a thread that was woken on a free core has begun by then */
    THREAD_NAME_BYTES = 16
};

/* How far a member's range of the shared work is: how many units were taken from its front and its
 * back, and how many are done. The turn, which changes with every job that shares work, says
 * whether the counts are of this job; the others count as zero. So nothing has to be cleared before
 * a job. */
enum {
    COUNT_BITS = 21,
    FRONT_AT = 0,
    BACK_AT = COUNT_BITS,
    DONE_AT = 2 * COUNT_BITS,
    TURN_AT = 63
};
enum { TAKEN_SHARE = 4 }; /* of what is left of a range, one in so many units is taken at a time */

struct member {
    struct team *team;
    pthread_t thread;
    int index;
    atomic_int cpu;            /* where its newest job began; -1 before the first */
    atomic_uint begun;         /* number of that job */
    unsigned n_shared;         /* jobs that shared work; the same in all members */
    char gap0[2 * LINE_BYTES]; /* members write these while others read theirs */
    atomic_uint_least64_t progress;
    char gap1[2 * LINE_BYTES];
};

struct team {
    int n_members, n_started, spin_us;
    struct member *members; /* [n_members]; of entry 0 only what shared work needs */
    team_fn *fn;            /* NULL: end the thread */
    void *arg;
    char gap0[LINE_BYTES];
    atomic_uint job; /* number of the newest job */
    atomic_int n_asleep;
    atomic_int lead_cpu; /* where the newest job was posted */
    char gap1[LINE_BYTES];
    atomic_int n_busy; /* members that have not returned from the newest job */
    atomic_bool lead_asleep;
    char gap2[LINE_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t has_job, is_done;
};

static void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool job_is_new(struct team *team, unsigned seen)
{
    return atomic_load(&team->job) != seen;
}

static bool job_is_done(struct team *team)
{
    return atomic_load(&team->n_busy) == 0;
}

/* Spins until a job newer than `seen` is there, for spin_us at most. */
static bool spin_for_job(struct team *team, unsigned seen)
{
    if (team->spin_us == 0) return job_is_new(team, seen);
    int64_t until_us = clock_now_us() + team->spin_us;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (job_is_new(team, seen)) return true;
            cpu_pause();
        }
        if (sched_getcpu() == atomic_load(&team->lead_cpu)) return job_is_new(team, seen);
    } while (clock_now_us() < until_us);
    return false;
}

/* False if the spinning lead may be keeping a member from running. */
static bool members_can_run(struct team *team, int64_t waited_us)
{
    int cpu = sched_getcpu();
    unsigned job = atomic_load(&team->job);
    for (int i = 1; i < team->n_members; i++) {
        struct member *member = &team->members[i];
        if (atomic_load(&member->cpu) == cpu) return false;
        if (waited_us > BEGIN_US && atomic_load(&member->begun) != job) return false;
    }
    return true;
}

/* Spins, as the lead, until the members are done. */
static bool spin_for_done(struct team *team)
{
    if (team->spin_us == 0) return job_is_done(team);
    int64_t start_us = clock_now_us(), waited_us = 0;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (job_is_done(team)) return true;
            cpu_pause();
        }
        waited_us = clock_now_us() - start_us;
    } while (waited_us < team->spin_us && members_can_run(team, waited_us));
    return job_is_done(team);
}

static void wait_for_job(struct team *team, unsigned seen)
{
    if (spin_for_job(team, seen)) return;
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->n_asleep, 1);
    while (!job_is_new(team, seen))
        pthread_cond_wait(&team->has_job, &team->lock);
    atomic_fetch_sub(&team->n_asleep, 1);
    pthread_mutex_unlock(&team->lock);
}

static void wait_for_done(struct team *team)
{
    if (spin_for_done(team)) return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->lead_asleep, true);
    while (!job_is_done(team))
        pthread_cond_wait(&team->is_done, &team->lock);
    atomic_store(&team->lead_asleep, false);
    pthread_mutex_unlock(&team->lock);
}

static void post_job(struct team *team)
{
    atomic_store_explicit(&team->lead_cpu, sched_getcpu(), memory_order_relaxed);
    atomic_fetch_add(&team->job, 1);
    if (atomic_load(&team->n_asleep) == 0) return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->has_job);
    pthread_mutex_unlock(&team->lock);
}

static void post_done(struct team *team)
{
    if (atomic_fetch_sub(&team->n_busy, 1) != 1) return;
    if (!atomic_load(&team->lead_asleep)) return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_signal(&team->is_done);
    pthread_mutex_unlock(&team->lock);
}

static void *member_main(void *arg)
{
    struct member *me = arg;
    struct team *team = me->team;
    for (unsigned seen = 0;; seen++) {
        wait_for_job(team, seen);
        if (!team->fn) return NULL;
        atomic_store_explicit(&me->cpu, sched_getcpu(), memory_order_relaxed);
        atomic_store_explicit(&me->begun, seen + 1, memory_order_relaxed);
        team->fn(team->arg, me->index, team->n_members);
        post_done(team);
    }
}

/* With more members than processors, a spinning thread holds the core that the awaited thread
 * needs. */
static int useful_spin_us(int n_members, int spin_us)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < n_members) return 0;
    return spin_us;
}

static int start_members(struct team *team, struct error *err)
{
    team->n_started = 1;
    for (int i = 1; i < team->n_members; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        atomic_init(&member->cpu, -1);
        int failure = pthread_create(&member->thread, NULL, member_main, member);
        if (failure) {
            return error_set(err, ERR_IO, "cannot start thread %d of %d: %s", i, team->n_members,
                             strerror(failure));
        }
        team->n_started++;
        char name[THREAD_NAME_BYTES];
        snprintf(name, sizeof name, "compute-%d", i & 0xFFFF);
        pthread_setname_np(member->thread, name); /* for top -H and perf; best effort */
    }
    return 0;
}

int team_open(struct team **team, int n_members, int spin_us, struct error *err)
{
    int rc = 0;
    struct team *t = NULL;
    *team = NULL;
    if (n_members < 1 || spin_us < 0) {
        return error_set(err, ERR_ARGUMENT,
                         "a team of %d threads that spin for %d us makes no sense", n_members,
                         spin_us);
    }
    TRY(mem_array(&t, 1, sizeof *t, err));
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->has_job, NULL);
    pthread_cond_init(&t->is_done, NULL);
    t->n_members = n_members;
    t->spin_us = useful_spin_us(n_members, spin_us);
    TRY(mem_array(&t->members, (size_t)n_members, sizeof *t->members, err));
    TRY(start_members(t, err));
    *team = t;
out:
    if (rc) team_close(t);
    return rc;
}

void team_close(struct team *team)
{
    if (!team) return;
    team->fn = NULL;
    post_job(team);
    for (int i = 1; i < team->n_started; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->is_done);
    pthread_cond_destroy(&team->has_job);
    pthread_mutex_destroy(&team->lock);
    free(team->members);
    free(team);
}

int team_pin(struct team *team, const int *cpus, struct error *err)
{
    for (int i = 1; i < team->n_members; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (cpus[i] >= 0 && cpus[i] < CPU_SETSIZE) CPU_SET((size_t)cpus[i], &set);
        int failure = pthread_setaffinity_np(team->members[i].thread, sizeof set, &set);
        if (failure) {
            return error_set(err, ERR_IO, "cannot keep thread %d on CPU %d: %s", i, cpus[i],
                             strerror(failure));
        }
    }
    return 0;
}

int team_size(const struct team *team)
{
    return team->n_members;
}

void team_run(struct team *team, team_fn *fn, void *arg)
{
    assert(fn);
    if (team->n_members > 1) {
        team->fn = fn;
        team->arg = arg;
        atomic_store(&team->n_busy, team->n_members - 1);
        post_job(team);
    }
    fn(arg, 0, team->n_members);
    if (team->n_members > 1) wait_for_done(team);
}

void team_range(int n_items, int unit, int member, int n_members, int *begin, int *end)
{
    int64_t n_units = ((int64_t)n_items + unit - 1) / unit;
    int64_t first = n_units * member / n_members * unit;
    int64_t last = n_units * (member + 1) / n_members * unit;
    *begin = (int)(first < n_items ? first : n_items);
    *end = (int)(last < n_items ? last : n_items);
}

/* ---- work that is handed out while a job runs ---- */

static void own_range(struct team_share *share, int owner)
{
    share->owner = owner;
    team_range(share->n_columns, 1, owner, share->n_members, &share->range_begin,
               &share->range_end);
}

static int range_units(const struct team_share *share)
{
    return (share->range_end - share->range_begin) * share->n_rows;
}

struct team_share team_share_begin(struct team *team, int member, int n_members, int n_columns,
                                   int n_rows)
{
    struct team_share share = {.team = team,
                               .member = member,
                               .n_members = n_members,
                               .n_columns = n_columns,
                               .n_rows = n_rows};
    own_range(&share, member);
    assert((int64_t)(n_columns / n_members + 1) * n_rows < 1 << COUNT_BITS);
    if (!team || n_members == 1) {
        share.team = NULL;
        share.row = -1;
        share.until = range_units(&share);
    } else {
        share.turn = (uint64_t)(++team->members[member].n_shared % 2) << TURN_AT;
    }
    return share;
}

static int count_at(uint64_t progress, int at)
{
    return (int)(progress >> at & ((1u << COUNT_BITS) - 1));
}

/* Returns the progress that `seen` means in this job. */
static uint64_t progress_now(const struct team_share *share, uint64_t seen)
{
    return seen >> TURN_AT == share->turn >> TURN_AT ? seen : share->turn;
}

static int units_left(uint64_t progress, int n_units)
{
    return n_units - count_at(progress, FRONT_AT) - count_at(progress, BACK_AT);
}

/* Takes units of the range that share->owner has; false when none are left. Every owner does this
 * in every job that shares work, even with an empty range, so its turn is never older than the job
 * before. */
static bool take_units(struct team_share *share)
{
    atomic_uint_least64_t *progress = &share->team->members[share->owner].progress;
    uint64_t seen = atomic_load_explicit(progress, memory_order_relaxed), now, next;
    bool is_own = share->owner == share->member;
    int n_units = range_units(share), n;
    do {
        now = progress_now(share, seen);
        int left = units_left(now, n_units);
        if (left == 0 && now == seen) return false;
        n = (left + TAKEN_SHARE - 1) / TAKEN_SHARE;
        next = now + ((uint64_t)n << (is_own ? FRONT_AT : BACK_AT));
    } while (!atomic_compare_exchange_weak_explicit(progress, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    share->first = is_own ? count_at(now, FRONT_AT) : n_units - count_at(next, BACK_AT);
    share->at = share->first;
    share->until = share->first + n;
    return n > 0;
}

/* Turns to the range that has most left, or, of equal ones, to that of the first member after this
 * one; false when nothing is left. */
static bool find_range(struct team_share *share)
{
    int most = 0, best = share->member;
    for (int i = 1; i < share->n_members; i++) {
        int owner = (share->member + i) % share->n_members;
        atomic_uint_least64_t *progress = &share->team->members[owner].progress;
        uint64_t seen = atomic_load_explicit(progress, memory_order_relaxed);
        own_range(share, owner);
        int left = units_left(progress_now(share, seen), range_units(share));
        if (left <= most) continue;
        most = left;
        best = owner;
    }
    own_range(share, best);
    return most > 0;
}

/* Takes units of the range at hand, then of others. */
static bool take_more(struct team_share *share)
{
    while (!take_units(share)) {
        if (!find_range(share)) return false;
    }
    return true;
}

bool team_share_next(struct team_share *share)
{
    if (share->at < share->until) { /* the next row of what was taken */
        share->row++;
        share->begin = share->range_begin;
    } else {
        if (!share->team || !take_more(share)) return false;
        int width = share->range_end - share->range_begin;
        share->row = share->at / width;
        share->begin = share->range_begin + share->at % width;
    }
    int n = share->until - share->at, n_row = share->range_end - share->begin;
    if (n > n_row) n = n_row;
    share->end = share->begin + n;
    share->at += n;
    return true;
}

bool team_share_completes(struct team_share *share)
{
    if (share->at < share->until) return false;
    if (!share->team) return true;
    int n = share->until - share->first;
    uint64_t before =
        atomic_fetch_add(&share->team->members[share->owner].progress, (uint64_t)n << DONE_AT);
    return count_at(before, DONE_AT) + n == range_units(share);
}
