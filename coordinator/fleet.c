/* Engines, each on a thread of its own, and the search for groups, on the caller's. */
#include "coordinator/fleet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/placement.h"
#include "coordinator/draft/options.h"
#include "coordinator/target/target.h"

enum {
    LOOK_US = 50000, /* how often it looks whether it is to stop, or an engine lost a group */
    BUSY_PAUSE_US = 200000, /* before a group that was lost is asked again, ... */
    ODD_PAUSE_US = 2000000, /* ... and one that does not fit */
    RETRY_US = 10000000     /* before another engine is opened after one could not be */
};

_Static_assert(GROUPS_MAX == 16, "each engine has a name");
const char *const fleet_thread_names[FLEET_THREADS] = {"engine 0",
                                                       "engine 1",
                                                       "engine 2",
                                                       "engine 3",
                                                       "engine 4",
                                                       "engine 5",
                                                       "engine 6",
                                                       "engine 7",
                                                       "engine 8",
                                                       "engine 9",
                                                       "engine 10",
                                                       "engine 11",
                                                       "engine 12",
                                                       "engine 13",
                                                       "engine 14",
                                                       "engine 15",
                                                       [FLEET_SEARCH] = "the search for groups"};

/* An engine and what it has alone. */
struct member {
    struct target *target;
    struct drafters drafters;
    /* [n_models] NULL: it has the first engine's, which the fleet was lent. */
    struct drafter *own_models[PLANNER_MODELS];
    struct queue *jobs;
    struct engine *engine;
    pthread_t thread;
    bool is_running, has_group; /* has_group: a group was given to it and not taken back */
    atomic_bool has_ended;      /* its thread has nothing to do any more */
    struct found_group group;
    struct beat *beat;
    int seat, cpu; /* cpu: that it is pinned to; -1 = none */
    int rc;        /* with which its thread ended */
    struct error err;
};

struct fleet {
    struct fleet_options options;
    struct discovery *discovery;
    struct member members[GROUPS_MAX];
    int n;
    int64_t open_us;            /* when another engine may be opened */
    char odd[ERROR_TEXT_BYTES]; /* what is of no use in --target; "" = nothing */
    atomic_bool is_stopping;
};

/* ---- engines ---- */

static void close_member(struct member *m)
{
    engine_close(m->engine);
    target_close(m->target);
    drafters_close(&m->drafters);
    for (int i = 0; i < PLANNER_MODELS; i++) {
        drafter_close(m->own_models[i]);
    }
    queue_close(m->jobs);
}

static int open_parts(struct fleet *f, struct member *m, struct error *err)
{
    const struct fleet_options *o = &f->options;
    const struct target_options target = {
        .tokenizer_fingerprint = o->tokenizer_fingerprint,
        .step_timeout_s = o->step_timeout_s,
        .certificates = o->certificates,
        .server_name = o->server_name,
        .group_key = o->group_key,
    };
    int rc = 0;
    TRY(queue_open(&m->jobs, o->queue_capacity, err));
    TRY(target_open(&m->target, &target, err));
    TRY(drafters_open(&m->drafters, NULL, &o->lookup, err));
    for (int i = 0; i < o->n_models; i++) {
        struct drafter_options draft = o->drafts[i];
        draft.like = o->models[i];
        draft.backend.cpus = NULL;
        if (f->n > 0) TRY(drafter_open(&m->own_models[i], &draft, o->engine.tok, err));
        drafters_add_model(&m->drafters, f->n > 0 ? m->own_models[i] : o->models[i]);
    }
    struct engine_options engine = o->engine;
    engine.target = m->target;
    engine.drafters = &m->drafters;
    engine.jobs = m->jobs;
    engine.seat = m->seat = f->n;
    m->beat = engine.beat;
    m->cpu = f->n == 0 ? o->cpu : -1; /* two engines on one CPU would wait for each other */
    TRY(engine_open(&m->engine, &engine, err));
out:
    return rc;
}

static void *run_engine(void *member)
{
    struct member *m = member;
    prctl(PR_SET_NAME, fleet_thread_names[m->seat]); /* for top -H; best effort */
    /* Only now, because the threads that the engine's own starts inherit its CPU. */
    m->rc = m->cpu < 0 ? 0 : placement_enter(m->cpu, &m->err);
    if (!m->rc) m->rc = engine_run(m->engine, &m->err);
    beat_excuse(m->beat, m->seat);
    m->has_ended = true;
    return NULL;
}

/* Opens another engine, which waits for a group from now on. */
static int add_member(struct fleet *f, struct error *err)
{
    struct member *m = &f->members[f->n];
    int rc = 0;
    TRY(open_parts(f, m, err));
    groups_add(f->options.groups, m->jobs);
    m->is_running = pthread_create(&m->thread, NULL, run_engine, m) == 0;
    if (!m->is_running) {
        rc = error_set(err, ERR_NO_MEMORY, "cannot start an engine's thread");
        groups_remove_last(f->options.groups);
        goto out;
    }
    f->n++;
out:
    if (rc) {
        close_member(m);
        *m = (struct member){0};
    }
    return rc;
}

int fleet_open(struct fleet **fleet, const struct fleet_options *options, struct error *err)
{
    struct fleet *f = NULL;
    int rc = 0;
    *fleet = NULL;
    TRY(mem_array(&f, 1, sizeof *f, err));
    f->options = *options;
    if (f->options.n_groups > GROUPS_MAX) f->options.n_groups = GROUPS_MAX;
    const struct discovery_options discovery = {
        .list = options->list,
        .certificates = options->certificates,
        .server_name = options->server_name,
        .group_key = options->group_key,
    };
    TRY(discovery_open(&f->discovery, &discovery, err));
    f->options.server_name = discovery_server_name(f->discovery);
    TRY(add_member(f, err));
    *fleet = f;
    f = NULL;
out:
    fleet_close(f);
    return rc;
}

void fleet_stop(struct fleet *f)
{
    f->is_stopping = true;
    groups_shut(f->options.groups);
}

/* Waits until all engines have ended. */
static void join(struct fleet *f, struct error *err, int *rc)
{
    for (int i = 0; i < f->n; i++) {
        struct member *m = &f->members[i];
        if (!m->is_running) continue;
        pthread_join(m->thread, NULL);
        m->is_running = false;
        if (!*rc && m->rc) {
            *err = m->err;
            *rc = m->rc;
        }
    }
}

void fleet_end(struct fleet *f)
{
    struct error err;
    int rc = 0;
    if (!f) return;
    fleet_stop(f);
    join(f, &err, &rc);
}

void fleet_close(struct fleet *f)
{
    if (!f) return;
    fleet_end(f);
    for (int i = 0; i < f->n; i++) {
        close_member(&f->members[i]);
    }
    discovery_close(f->discovery);
    free(f);
}

/* ---- groups ---- */

/* An engine that could take a group; -1: there is none. Where all have one, another is opened. */
static int find_engine(struct fleet *f, const struct found_group *group)
{
    struct error err;
    int seat = groups_find_empty(f->options.groups, group);
    bool may_open = f->n < f->options.n_groups && clock_now_us() >= f->open_us && !f->is_stopping;
    if (seat >= 0 || !may_open) return seat;
    beat_excuse(f->options.engine.beat, FLEET_SEARCH); /* a draft may take long to open */
    if (!add_member(f, &err)) return f->n - 1;
    f->open_us = clock_now_us() + RETRY_US;
    log_line(LOG_LEVEL_ERROR, "group_not_used", "address=%s text=\"%s\"", group->addresses[0],
             err.text);
    return -1;
}

static bool have_group(const struct fleet *f)
{
    for (int i = 0; i < f->n; i++) {
        if (f->members[i].has_group) return true;
    }
    return false;
}

/* Something that --target leads to is of no use, though there are groups. */
static void show_odd(struct fleet *f, const struct error *why)
{
    if (strcmp(f->odd, why->text) == 0) return;
    memcpy(f->odd, why->text, sizeof f->odd);
    log_line(LOG_LEVEL_WARN, "target_not_used", "text=\"%s\"", why->text);
}

/* The engine has lost or refused its group. */
static void take_from(struct fleet *f, struct member *m, bool is_odd)
{
    if (!m->has_group) return;
    discovery_give_back(f->discovery, &m->group, is_odd ? ODD_PAUSE_US : BUSY_PAUSE_US, !is_odd);
    m->has_group = false;
}

static void give_groups(struct fleet *f)
{
    struct groups *groups = f->options.groups;
    struct found_group group;
    struct error err;
    while (discovery_take(f->discovery, &group)) {
        bool is_odd = groups_check(groups, -1, group.addresses[0], &group.description, &err);
        int seat = is_odd ? -1 : find_engine(f, &group);
        if (is_odd) show_odd(f, &err);
        if (seat < 0) {
            discovery_give_back(f->discovery, &group, ODD_PAUSE_US, false);
            return;
        }
        take_from(f, &f->members[seat], false); /* what it has lost since take_back looked */
        f->members[seat].group = group;
        f->members[seat].has_group = true;
        groups_offer(groups, seat, &group);
    }
}

/* Takes back what engines have lost or refused. Errors: ERR_ARGUMENT as fleet_run. */
static int take_back(struct fleet *f, struct error *err)
{
    for (int i = 0; i < f->n; i++) {
        struct member *m = &f->members[i];
        struct error refusal;
        enum seat_state state = groups_state(f->options.groups, i);
        if (!m->has_group || (state != SEAT_EMPTY && state != SEAT_ENDED)) continue;
        groups_take_refusal(f->options.groups, i, &refusal);
        take_from(f, m, refusal.code && refusal.code != ERR_UNAVAILABLE);
        if (refusal.code != ERR_ARGUMENT) continue;
        if (!have_group(f) && !groups_have_served(f->options.groups)) {
            *err = refusal;
            return err->code;
        }
        show_odd(f, &refusal);
    }
    return 0;
}

/* Says why nobody serves. Errors: ERR_ARGUMENT as fleet_run. */
static int explain(struct fleet *f, struct error *err)
{
    struct groups *groups = f->options.groups;
    struct error why;
    if (!discovery_why(f->discovery, &why)) return 0;
    if (have_group(f)) { /* its engine will say how it went */
        if (why.code == ERR_ARGUMENT) show_odd(f, &why);
        return 0;
    }
    if (why.code == ERR_ARGUMENT && !groups_have_served(groups)) {
        *err = why;
        return why.code;
    }
    if (why.code == ERR_UNAVAILABLE || why.code == ERR_TIMEOUT) {
        error_wrap(&why, "the target group is not there");
    }
    if (groups_set_why(groups, why.text)) {
        log_line(LOG_LEVEL_WARN, "target_unreachable", "text=\"%s\"", why.text);
    }
    return 0;
}

/* While the engines drain, what waits there may still get its group back. One that ends by itself
 * ends all of them. */
static bool has_ended(const struct fleet *f)
{
    bool all = true, any = false;
    for (int i = 0; i < f->n; i++) {
        bool has = f->members[i].has_ended;
        all = all && has;
        any = any || has;
    }
    return all || (any && !f->is_stopping);
}

int fleet_run(struct fleet *f, struct error *err)
{
    int rc = 0;
    while (!has_ended(f)) {
        beat_mark(f->options.engine.beat, FLEET_SEARCH);
        TRY(take_back(f, err));
        discovery_run(f->discovery, clock_now_us() + LOOK_US);
        give_groups(f);
        TRY(explain(f, err));
    }
out:
    beat_excuse(f->options.engine.beat, FLEET_SEARCH);
    fleet_stop(f);
    join(f, err, &rc);
    return rc;
}
