/* The target groups of a coordinator, each with an engine of its own (coordinator/engine/engine.h):
 * what every engine tells the others of its group, which group the next request goes to, and what
 * all of them do together. Locked inside, or atomic; any thread. */
#pragma once

#include <stdatomic.h>

#include "base/text/buffer.h"
#include "base/threads/monitor.h"
#include "base/threads/queue.h"
#include "coordinator/discovery/discovery.h"
#include "coordinator/signals/signals.h"
#include "proto/target_wire.h"

struct job;

enum { GROUPS_DEFAULT = 8, GROUPS_ALPHAS = DRAFT_MAX };

/* State of an engine: EMPTY it has no group, OFFERED one was found for it, HELD it is connected to
 * it, LEAVING it finishes what it has and lets go, ENDED it takes none any more. */
enum seat_state { SEAT_EMPTY, SEAT_OFFERED, SEAT_HELD, SEAT_LEAVING, SEAT_ENDED };

/* Load of an engine at this moment; written by the engine's thread. */
struct seat_load {
    atomic_int n_running, n_waiting, n_waiting_again, n_places;
    atomic_int n_coming;     /* texts that were sent here and that the engine has not taken yet */
    atomic_int step_us;      /* of a step of one row, as measured; 0 = not known */
    atomic_bool is_measured; /* no calibration of the pair is left to do */
    atomic_int late_us;      /* for which it has waited for the step that is running */
    atomic_int kv_blocks[SIGNALS_BLOCK_STATES], draft_kv_blocks[SIGNALS_BLOCK_STATES];
    _Atomic float alpha[GROUPS_ALPHAS];
    atomic_ullong n_steps;
};

struct seat {
    _Atomic(enum seat_state) state; /* written inside the lock */
    bool is_overdue;                /* its step takes seconds longer than expected */
    struct found_group group;
    struct target_description description; /* of the group that is or was held last */
    char why[ERROR_TEXT_BYTES];            /* it does not serve */
    struct error refusal;                  /* the group that was offered does not fit */
    struct queue *jobs;                    /* of the engine; NULL = there is none yet */
    struct seat_load load;
};

/* State of all groups together: ABSENT a request would be refused, OVERDUE it would be taken, but
 * as far as can be seen the groups hang, so clients that know another coordinator should ask there,
 * SERVING it would be served. */
enum groups_service { GROUPS_ABSENT, GROUPS_OVERDUE, GROUPS_SERVING };

/* Hears what becomes of a request now; why: it is not served; group: one that serves, or the last
 * that did. Called inside the lock of the groups, so that two changes are told in their order; it
 * must not call them. */
typedef void groups_serving_fn(void *arg, enum groups_service service, const char *why,
                               const struct target_description *group);

struct groups {
    struct monitor monitor;
    atomic_bool is_calibrating;
    struct seat seats[GROUPS_MAX];
    atomic_int n_seats; /* that have an engine */
    bool has_served, is_stopping, is_shut;
    char why[ERROR_TEXT_BYTES]; /* nobody serves: the last reason */
    groups_serving_fn *set_serving;
    void *arg;
};

void groups_open(struct groups *groups);
void groups_close(struct groups *groups);

/* set_serving is called now, and whenever its answer may have changed. */
void groups_listen(struct groups *groups, groups_serving_fn *set_serving, void *arg);

/* A new engine, whose queue of jobs this is; returns its seat. At most GROUPS_MAX. */
int groups_add(struct groups *groups, struct queue *jobs);

/* The engine that was added last could not be started. */
void groups_remove_last(struct groups *groups);

/* ---- who finds groups ---- */

/* An engine without a group; -1: there is none. An engine that knows such a group is taken before
 * others. */
int groups_find_empty(struct groups *groups, const struct found_group *group);
void groups_offer(struct groups *groups, int seat, const struct found_group *group);
enum seat_state groups_state(struct groups *groups, int seat);
/* The refusal of the seat's last group, which is forgotten then; code 0 = it was not refused. */
int groups_take_refusal(struct groups *groups, int seat, struct error *refusal);
/* Why nobody serves, as seen from outside of the engines. True: that is news. */
bool groups_set_why(struct groups *groups, const char *why);
void groups_copy_why(struct groups *groups, char why[ERROR_TEXT_BYTES]);
bool groups_any_serving(struct groups *groups);
bool groups_have_served(struct groups *groups);
/* The queues of all engines take nothing any more, and neither will those of engines to come. */
void groups_shut(struct groups *groups);
/* Engines that wait for jobs look at what else there is. */
void groups_wake(struct groups *groups);
bool groups_are_shut(struct groups *groups);

/* Returns true if a text that was begun with one group may go on with the other, and a request
 * means the same to both. */
bool groups_are_alike(const struct target_description *a, const struct target_description *b);

/* ---- engines ---- */

/* The group that was found for the engine; false: none. */
bool groups_take_offer(struct groups *groups, int seat, struct found_group *group);

/* The engine is connected to its group and serves from now on, if the others serve the same model
 * with the same arithmetic. Errors: ERR_UNAVAILABLE they do not: this group may serve when no other
 * is left. */
int groups_hold(struct groups *groups, int seat, const struct target_description *description,
                struct error *err);
/* Checks that groups_hold would succeed now; address: where the group is. Errors: as there. */
int groups_check(struct groups *groups, int seat, const char *address,
                 const struct target_description *description, struct error *err);
/* Notes that the step of the engine's group takes seconds longer than expected, or no more. */
void groups_set_overdue(struct groups *groups, int seat, bool is_overdue);
/* The engine takes nothing new any more, but goes on with what it has. */
void groups_set_leaving(struct groups *groups, int seat, const char *why);
/* The engine has no group any more. refusal: it did not fit; NULL = it was lost or let go. */
void groups_leave(struct groups *groups, int seat, const char *why, const struct error *refusal);
/* The engine takes no group any more. */
void groups_end(struct groups *groups, int seat);
/* All engines say so: no request is taken any more. */
void groups_set_stopping(struct groups *groups, const char *why);

/* Only one engine at a time is between these two. False: another one is. */
bool groups_enter_calibration(struct groups *groups);
void groups_leave_calibration(struct groups *groups);

/* ---- placing ---- */

/* Conditions for a seat that a text may go to. */
struct seat_wish {
    int from;          /* the engine that has the text, which is not meant; -1 = none */
    int n_context;     /* the most tokens that it may have; 0 = any */
    bool has_begun;    /* it goes on: only the model that its engine serves or served will do */
    bool must_be_idle; /* with a place free and nothing that waits */
};

/* The seat for another text: that of the group which is expected to be least busy, by the texts
 * that it has and the time of its step. One whose step is late is taken only if there is no other.
 * -1: no such group serves. */
int groups_choose(struct groups *groups, const struct seat_wish *wish);
/* Sends a job to an engine. Errors: ERR_EXHAUSTED, ERR_CLOSED. */
int groups_send(struct groups *groups, int seat, struct job *job, struct error *err);
/* Sends a job that has not begun to the engine that groups_choose finds, where its prompt fits, if
 * it fits anywhere. from: not to this one; -1 = to any. Errors: as groups_send; ERR_UNAVAILABLE
 * nobody serves, with the reason. */
int groups_place(struct groups *groups, int from, struct job *job, struct error *err);
/* The engine has taken a job that was sent to it. */
void groups_taken(struct groups *groups, int seat, const struct job *job);

/* ---- all together ---- */

/* Neither this, groups_count nor groups_write_metrics takes a lock. */
void groups_add_loads(struct groups *groups, struct signals_load *load, float alpha[GROUPS_ALPHAS]);
/* Texts that wait for a place, and steps. */
void groups_count(struct groups *groups, int *n_waiting, uint64_t *n_steps);

/* Copies what is told of a seat; false: it has no engine. */
struct seat_view {
    bool is_serving, is_measured;
    char state[ERROR_TEXT_BYTES]; /* "serving", or why not, or that its step is overdue */
    struct found_group group;     /* n_ranks 0: it has none */
    char kernels[32];
    int n_running, n_waiting, n_places;
};
bool groups_view(struct groups *groups, int seat, struct seat_view *view);

/* Appends the metrics that have a label for each group, beside `labels`, which all metrics have.
 * Errors: ERR_NO_MEMORY. */
int groups_write_metrics(struct groups *groups, const char *labels, struct buffer *out,
                         struct error *err);
