/* A table of seats under one lock; what changes in every round is atomic. */
#include "coordinator/job/groups.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/job/job.h"

enum {
    LINE_BYTES = 1024,
    LATE_US = 1000000 /* a step that takes so long may be one that hangs */
};

static const char overdue_text[] =
    "the target group does not answer: its step takes seconds longer than steps like it";

/* ---- inside the lock ---- */

static const struct seat *serving_seat(const struct groups *g)
{
    for (int i = 0; i < g->n_seats; i++) {
        if (g->seats[i].state == SEAT_HELD) return &g->seats[i];
    }
    return NULL;
}

/* The step of every group is overdue. */
static bool are_overdue(const struct groups *g)
{
    for (int i = 0; i < g->n_seats; i++) {
        if (g->seats[i].state == SEAT_HELD && !g->seats[i].is_overdue) return false;
    }
    return true;
}

static void tell(struct groups *g, const struct seat *last)
{
    const struct seat *seat = serving_seat(g);
    const char *why = g->why;
    enum groups_service service = GROUPS_ABSENT;
    if (seat && !g->is_stopping) service = are_overdue(g) ? GROUPS_OVERDUE : GROUPS_SERVING;
    if (service == GROUPS_OVERDUE) why = overdue_text;
    if (!seat) seat = last ? last : &g->seats[0];
    if (g->set_serving) g->set_serving(g->arg, service, why, &seat->description);
}

static void set_why(struct groups *g, struct seat *seat, const char *why)
{
    if (seat) snprintf(seat->why, sizeof seat->why, "%s", why);
    if (!g->is_stopping) snprintf(g->why, sizeof g->why, "%s", why);
}

/* ---- open, close ---- */

void groups_open(struct groups *g)
{
    monitor_open(&g->monitor);
    snprintf(g->why, sizeof g->why, "the target group has not been reached yet");
}

void groups_listen(struct groups *g, groups_serving_fn *set_serving, void *arg)
{
    monitor_enter(&g->monitor);
    g->set_serving = set_serving;
    g->arg = arg;
    tell(g, NULL);
    monitor_leave(&g->monitor);
}

void groups_remove_last(struct groups *g)
{
    monitor_enter(&g->monitor);
    int index = atomic_load(&g->n_seats) - 1;
    atomic_store(&g->n_seats, index);
    g->seats[index].jobs = NULL;
    monitor_leave(&g->monitor);
}

void groups_close(struct groups *g)
{
    monitor_close(&g->monitor);
}

int groups_add(struct groups *g, struct queue *jobs)
{
    monitor_enter(&g->monitor);
    int index = atomic_load(&g->n_seats);
    struct seat *seat = &g->seats[index];
    seat->jobs = jobs;
    snprintf(seat->why, sizeof seat->why, "the target group has not been reached yet");
    if (g->is_shut) queue_shut(jobs);
    atomic_store(&g->n_seats, index + 1);
    monitor_leave(&g->monitor);
    return index;
}

/* ---- who finds groups ---- */

/* Ranks how much the group is like the seat's last one: the same addresses, or else as many ranks,
 * so that what was measured of it may still hold. */
static int likeness(const struct seat *seat, const struct found_group *group)
{
    if (seat->group.n_ranks != group->n_ranks) return 0;
    for (int i = 0; i < group->n_ranks; i++) {
        if (strcmp(seat->group.addresses[i], group->addresses[i]) != 0) return 1;
    }
    return 2;
}

int groups_find_empty(struct groups *g, const struct found_group *group)
{
    int best = -1, best_likeness = -1;
    monitor_enter(&g->monitor);
    for (int i = 0; i < g->n_seats; i++) {
        if (g->seats[i].state != SEAT_EMPTY) continue;
        int like = likeness(&g->seats[i], group);
        if (like <= best_likeness) continue;
        best = i;
        best_likeness = like;
    }
    monitor_leave(&g->monitor);
    return best;
}

void groups_offer(struct groups *g, int index, const struct found_group *group)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    seat->group = *group;
    seat->state = SEAT_OFFERED;
    seat->refusal = (struct error){0};
    queue_wake(seat->jobs);
    monitor_leave(&g->monitor);
}

enum seat_state groups_state(struct groups *g, int index)
{
    monitor_enter(&g->monitor);
    enum seat_state state = g->seats[index].state;
    monitor_leave(&g->monitor);
    return state;
}

int groups_take_refusal(struct groups *g, int index, struct error *refusal)
{
    monitor_enter(&g->monitor);
    *refusal = g->seats[index].refusal;
    g->seats[index].refusal = (struct error){0};
    monitor_leave(&g->monitor);
    return refusal->code;
}

bool groups_set_why(struct groups *g, const char *why)
{
    monitor_enter(&g->monitor);
    bool is_news =
        !serving_seat(g) && !g->is_stopping && strncmp(g->why, why, sizeof g->why - 1) != 0;
    if (is_news) {
        set_why(g, NULL, why);
        tell(g, NULL);
    }
    monitor_leave(&g->monitor);
    return is_news;
}

void groups_copy_why(struct groups *g, char why[ERROR_TEXT_BYTES])
{
    monitor_enter(&g->monitor);
    memcpy(why, g->why, ERROR_TEXT_BYTES);
    monitor_leave(&g->monitor);
}

bool groups_any_serving(struct groups *g)
{
    monitor_enter(&g->monitor);
    bool is_serving = serving_seat(g) != NULL;
    monitor_leave(&g->monitor);
    return is_serving;
}

bool groups_have_served(struct groups *g)
{
    monitor_enter(&g->monitor);
    bool have_served = g->has_served;
    monitor_leave(&g->monitor);
    return have_served;
}

void groups_shut(struct groups *g)
{
    monitor_enter(&g->monitor);
    g->is_shut = true;
    for (int i = 0; i < g->n_seats; i++) {
        queue_shut(g->seats[i].jobs);
    }
    monitor_leave(&g->monitor);
}

void groups_wake(struct groups *g)
{
    monitor_enter(&g->monitor);
    for (int i = 0; i < g->n_seats; i++) {
        queue_wake(g->seats[i].jobs);
    }
    monitor_leave(&g->monitor);
}

bool groups_are_shut(struct groups *g)
{
    monitor_enter(&g->monitor);
    bool is_shut = g->is_shut;
    monitor_leave(&g->monitor);
    return is_shut;
}

/* ---- engines ---- */

bool groups_take_offer(struct groups *g, int index, struct found_group *group)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    bool is_offered = seat->state == SEAT_OFFERED;
    if (is_offered) *group = seat->group;
    monitor_leave(&g->monitor);
    return is_offered;
}

/* Also where one of them has not been asked yet. */
static bool have_same_conventions(const struct target_description *a,
                                  const struct target_description *b)
{
    return !a->conventions || !b->conventions || a->conventions == b->conventions;
}

bool groups_are_alike(const struct target_description *a, const struct target_description *b)
{
    bool has_same_ends =
        a->ends.n == b->ends.n &&
        memcmp(a->ends.ids, b->ends.ids, (size_t)a->ends.n * sizeof *a->ends.ids) == 0;
    return has_same_ends && a->model_fingerprint == b->model_fingerprint &&
           a->vocab_size == b->vocab_size && a->block_tokens == b->block_tokens &&
           have_same_conventions(a, b) && strcmp(a->arithmetic, b->arithmetic) == 0;
}

/* Inside the lock. The others may be leaving, but their texts may still come here. */
static int check(const struct groups *g, int index, const char *address,
                 const struct target_description *d, struct error *err)
{
    for (int i = 0; i < g->n_seats; i++) {
        const struct seat *other = &g->seats[i];
        const struct target_description *o = &other->description;
        if (i == index || (other->state != SEAT_HELD && other->state != SEAT_LEAVING)) continue;
        if (groups_are_alike(o, d)) continue;
        if (o->model_fingerprint == d->model_fingerprint && !have_same_conventions(o, d)) {
            return error_set(err, ERR_UNAVAILABLE,
                             "the folder of the group at %s has another chat template, other texts "
                             "of special tokens or other defaults of sampling than those of the "
                             "groups that serve: it is used when none of them is left",
                             address);
        }
        return error_set(err, ERR_UNAVAILABLE,
                         "the group at %s has %s (%016" PRIx64 ", %s), but others serve %s "
                         "(%016" PRIx64 ", %s): it is used when none of them is left",
                         address, d->model, d->model_fingerprint, d->arithmetic, o->model,
                         o->model_fingerprint, o->arithmetic);
    }
    return 0;
}

int groups_check(struct groups *g, int index, const char *address,
                 const struct target_description *d, struct error *err)
{
    monitor_enter(&g->monitor);
    int rc = check(g, index, address, d, err);
    monitor_leave(&g->monitor);
    return rc;
}

int groups_hold(struct groups *g, int index, const struct target_description *d, struct error *err)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    int rc = check(g, index, seat->group.addresses[0], d, err);
    if (!rc) {
        seat->description = *d;
        seat->state = SEAT_HELD;
        seat->why[0] = '\0';
        g->has_served = true;
        tell(g, seat);
    }
    monitor_leave(&g->monitor);
    return rc;
}

void groups_set_overdue(struct groups *g, int index, bool is_overdue)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    bool is_news = seat->is_overdue != is_overdue;
    seat->is_overdue = is_overdue;
    if (is_news && seat->state == SEAT_HELD) tell(g, seat);
    monitor_leave(&g->monitor);
}

void groups_set_leaving(struct groups *g, int index, const char *why)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    if (seat->state == SEAT_HELD) {
        seat->state = SEAT_LEAVING;
        set_why(g, seat, why);
        tell(g, seat);
    }
    monitor_leave(&g->monitor);
}

void groups_leave(struct groups *g, int index, const char *why, const struct error *refusal)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    seat->state = SEAT_EMPTY;
    if (refusal) seat->refusal = *refusal;
    set_why(g, seat, why);
    tell(g, seat);
    monitor_leave(&g->monitor);
}

void groups_end(struct groups *g, int index)
{
    struct seat *seat = &g->seats[index];
    monitor_enter(&g->monitor);
    seat->state = SEAT_ENDED;
    atomic_store(&seat->load.n_running, 0);
    atomic_store(&seat->load.n_places, 0);
    set_why(g, seat, "its engine has ended");
    tell(g, seat);
    monitor_leave(&g->monitor);
}

void groups_set_stopping(struct groups *g, const char *why)
{
    monitor_enter(&g->monitor);
    if (!g->is_stopping) {
        set_why(g, NULL, why);
        g->is_stopping = true;
        tell(g, NULL);
    }
    monitor_leave(&g->monitor);
}

bool groups_enter_calibration(struct groups *g)
{
    return !atomic_exchange(&g->is_calibrating, true);
}

void groups_leave_calibration(struct groups *g)
{
    atomic_store(&g->is_calibrating, false);
}

/* ---- placing ---- */

static int n_texts(const struct seat_load *load)
{
    return atomic_load(&load->n_running) + atomic_load(&load->n_waiting) +
           atomic_load(&load->n_coming);
}

/* The mean of what is known of those that serve; 1 = nothing is. */
static int mean_step_us(const struct groups *g)
{
    int64_t sum_us = 0;
    int n = 0;
    for (int i = 0; i < g->n_seats; i++) {
        int step_us = atomic_load(&g->seats[i].load.step_us);
        if (g->seats[i].state != SEAT_HELD || step_us <= 0) continue;
        sum_us += step_us;
        n++;
    }
    return n ? (int)(sum_us / n) : 1;
}

static bool can_take(const struct groups *g, int index, const struct seat_wish *wish)
{
    const struct seat *seat = &g->seats[index],
                      *from = wish->from < 0 ? NULL : &g->seats[wish->from];
    const struct seat_load *load = &seat->load;
    if (index == wish->from || seat->state != SEAT_HELD) return false;
    if (wish->n_context > seat->description.context_limit) return false;
    if (wish->has_begun && from && !groups_are_alike(&from->description, &seat->description)) {
        return false;
    }
    return !wish->must_be_idle ||
           (n_texts(load) < atomic_load(&load->n_places) && atomic_load(&load->n_waiting) == 0);
}

/* Inside the lock. Steps of a group take their time whatever the others have, so the next text is
 * done first where texts and time of a step have the smallest product. */
static int choose(const struct groups *g, const struct seat_wish *wish, bool may_be_late)
{
    int best = -1;
    double best_cost = 0;
    const int unknown_us = mean_step_us(g);
    for (int i = 0; i < g->n_seats; i++) {
        const struct seat_load *load = &g->seats[i].load;
        int step_us = atomic_load(&load->step_us);
        if (!can_take(g, i, wish)) continue;
        if (!may_be_late && atomic_load(&load->late_us) > LATE_US) continue;
        double cost = (double)(n_texts(load) + 1) * (step_us > 0 ? step_us : unknown_us);
        if (best >= 0 && cost >= best_cost) continue;
        best = i;
        best_cost = cost;
    }
    return best;
}

int groups_choose(struct groups *g, const struct seat_wish *wish)
{
    monitor_enter(&g->monitor);
    int seat = choose(g, wish, false);
    if (seat < 0 && !wish->must_be_idle) seat = choose(g, wish, true);
    monitor_leave(&g->monitor);
    return seat;
}

int groups_send(struct groups *g, int index, struct job *job, struct error *err)
{
    struct seat *seat = &g->seats[index];
    int n = job_n_texts(job);
    atomic_fetch_add(&seat->load.n_coming, n);
    int rc = queue_push(seat->jobs, job, err);
    if (rc) atomic_fetch_sub(&seat->load.n_coming, n);
    return rc;
}

int groups_place(struct groups *g, int from, struct job *job, struct error *err)
{
    struct seat_wish wish = {.from = from, .n_context = (int)job->prompt.n + 1};
    char why[ERROR_TEXT_BYTES];
    int seat = groups_choose(g, &wish);
    wish.n_context = 0; /* an engine says how long a text may be */
    if (seat < 0) seat = groups_choose(g, &wish);
    if (seat >= 0) return groups_send(g, seat, job, err);
    groups_copy_why(g, why);
    return error_set(err, ERR_UNAVAILABLE, "%.400s", why);
}

void groups_taken(struct groups *g, int index, const struct job *job)
{
    atomic_fetch_sub(&g->seats[index].load.n_coming, job_n_texts(job));
}

/* ---- all together ---- */

void groups_add_loads(struct groups *g, struct signals_load *load, float alpha[GROUPS_ALPHAS])
{
    *load = (struct signals_load){.alpha = alpha};
    const struct seat *serving = serving_seat(g);
    const struct seat_load *known = &(serving ? serving : &g->seats[0])->load;
    for (int i = 0; i < GROUPS_ALPHAS; i++) {
        alpha[i] = atomic_load(&known->alpha[i]);
    }
    for (int i = 0; i < g->n_seats; i++) {
        const struct seat_load *l = &g->seats[i].load;
        load->n_running += atomic_load(&l->n_running);
        load->n_places += atomic_load(&l->n_places);
        load->n_waiting_again += atomic_load(&l->n_waiting_again);
        for (int k = 0; k < SIGNALS_BLOCK_STATES; k++) {
            load->kv_blocks[k] += atomic_load(&l->kv_blocks[k]);
            load->draft_kv_blocks[k] += atomic_load(&l->draft_kv_blocks[k]);
        }
    }
}

void groups_count(struct groups *g, int *n_waiting, uint64_t *n_steps)
{
    *n_waiting = 0;
    *n_steps = 0;
    for (int i = 0; i < g->n_seats; i++) {
        const struct seat_load *l = &g->seats[i].load;
        *n_waiting += atomic_load(&l->n_waiting) + atomic_load(&l->n_coming);
        *n_steps += atomic_load(&l->n_steps);
    }
}

bool groups_view(struct groups *g, int index, struct seat_view *view)
{
    const struct seat *seat = &g->seats[index];
    if (index >= g->n_seats) return false;
    monitor_enter(&g->monitor);
    bool has_group = seat->state == SEAT_HELD || seat->state == SEAT_LEAVING;
    *view = (struct seat_view){
        .is_serving = seat->state == SEAT_HELD,
        .is_measured = has_group && atomic_load(&seat->load.is_measured),
        .n_running = atomic_load(&seat->load.n_running),
        .n_waiting = atomic_load(&seat->load.n_waiting) + atomic_load(&seat->load.n_coming),
        .n_places = has_group ? atomic_load(&seat->load.n_places) : 0,
    };
    if (has_group) view->group = seat->group;
    snprintf(view->kernels, sizeof view->kernels, "%s", seat->description.kernels);
    const char *state = view->is_serving ? "serving" : seat->why;
    if (view->is_serving && seat->is_overdue) state = overdue_text;
    snprintf(view->state, sizeof view->state, "%s", state);
    monitor_leave(&g->monitor);
    return true;
}

static int append(struct buffer *out, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int append(struct buffer *out, struct error *err, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (n >= (int)sizeof line) n = (int)sizeof line - 1;
    return buffer_append(out, line, (size_t)n, err);
}

/* A family of gauges, one line for each group. */
static int write_family(struct groups *g, const char *labels, const char *const family[2],
                        size_t at, struct buffer *out, struct error *err)
{
    int rc = 0;
    TRY(append(out, err, "# HELP outrider_%s %s\n# TYPE outrider_%s gauge\n", family[0], family[1],
               family[0]));
    for (int i = 0; i < g->n_seats; i++) {
        const struct seat *seat = &g->seats[i];
        const int values[] = {seat->state == SEAT_HELD, atomic_load(&seat->load.n_running),
                              atomic_load(&seat->load.n_waiting) +
                                  atomic_load(&seat->load.n_coming),
                              atomic_load(&seat->load.n_places),
                              seat->state == SEAT_HELD && atomic_load(&seat->load.is_measured)};
        TRY(append(out, err, "outrider_%s{%s,group=\"%d\"} %d\n", family[0], labels, i,
                   values[at]));
    }
out:
    return rc;
}

int groups_write_metrics(struct groups *g, const char *labels, struct buffer *out,
                         struct error *err)
{
    static const char *const families[][2] = {
        {"group_up", "1 while this target group serves."},
        {"group_requests_running", "Texts that are being made on this group."},
        {"group_requests_waiting", "Texts that wait for a place on this group."},
        {"group_places", "Texts that can be made at a time on this group."},
        {"group_measured", "1 once no calibration of this group and the draft is left to do."},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families && !rc; i++) {
        rc = write_family(g, labels, families[i], i, out, err);
    }
    return rc;
}
