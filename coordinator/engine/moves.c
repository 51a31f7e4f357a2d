/* Texts that wait go to other engines, where they are served sooner. With one arithmetic their
 * tokens are the same there (docs/design.md section 4). */
#include "base/clock.h"
#include "coordinator/engine/internal.h"
#include "coordinator/schedule/places.h"

/* The seat of another engine for a text that is here; -1: there is none. */
static int find_other(const struct engine *e, int n_context, bool must_be_idle)
{
    const struct seat_wish wish = {.from = e->options.seat,
                                   .n_context = n_context,
                                   .has_begun = true,
                                   .must_be_idle = must_be_idle};
    return groups_choose(e->options.groups, &wish);
}

/* The sequences of a job go together. */
static bool job_fits_elsewhere(const struct engine *e, const struct job *job)
{
    int most = 0;
    for (int i = 0; i < e->n_active; i++) {
        const struct sequence *seq = e->active[i];
        if (seq->job == job && seq->end > most) most = seq->end;
    }
    return find_other(e, most, false) >= 0;
}

void engine_evict_some(struct engine *e)
{
    if (find_other(e, 0, false) < 0) return;
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *seq = e->active[i];
        if (seq->is_over || !job_fits_elsewhere(e, seq->job)) continue;
        places_evict(seq, &e->target_pool, e->options.drafters);
    }
    engine_leave(e);
}

/* ---- away ---- */

/* Takes a sequence out of the queue, and appends it to the list of its job, whose sequences move
 * together. */
static void take_out(struct engine *e, struct sequence *seq, struct job **jobs)
{
    struct job *job = seq->job;
    waiting_remove(e->waiting, seq);
    seq->last_round = 0; /* rounds of this engine mean nothing elsewhere */
    seq->next_moved = NULL;
    if (!job->moved) {
        struct job **end = jobs;
        while (*end) {
            end = &(*end)->next_moved;
        }
        job->next_moved = NULL;
        *end = job;
        job->moved = seq;
        return;
    }
    struct sequence *last = job->moved;
    while (last->next_moved) {
        last = last->next_moved;
    }
    last->next_moved = seq;
}

/* Sends a job with its sequences to an engine; if that cannot be, it waits here again. */
static void send(struct engine *e, int seat, struct job *job)
{
    struct error err;
    if (groups_send(e->options.groups, seat, job, &err)) engine_take_moved(e, job);
}

static int longest(const struct job *job)
{
    int most = 0;
    for (const struct sequence *seq = job->moved; seq; seq = seq->next_moved) {
        if (seq->end > most) most = seq->end;
    }
    return most;
}

/* There is no group here. Nothing runs, so all sequences of every job are in the queue, and they
 * stay together. */
static void move_all(struct engine *e)
{
    struct job *jobs = NULL;
    struct sequence *seq;
    if (find_other(e, 0, false) < 0) return;
    for (int at = 0; (seq = waiting_next(e->waiting, &at));) {
        if (!seq->job->is_over) take_out(e, seq, &jobs);
    }
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next_moved;
        int seat = find_other(e, longest(job), false);
        if (seat >= 0)
            send(e, seat, job);
        else
            engine_take_moved(e, job);
    }
}

/* The next one has not begun, and another engine could begin with it at once. One that came so
 * stays, or two engines without KV for it could send it to and fro. */
static void move_next(struct engine *e)
{
    struct job *jobs = NULL;
    struct sequence *seq = waiting_peek(e->waiting);
    bool has_begun = seq && (seq->admitted_us || seq->index > 0);
    if (!seq || has_begun || seq->job->is_over || seq->job->was_moved) return;
    int seat = find_other(e, seq->end, true);
    if (seat < 0) return;
    seq->job->was_moved = true;
    take_out(e, seq, &jobs);
    send(e, seat, jobs);
}

void engine_move_waiting(struct engine *e)
{
    if (waiting_count(e->waiting) == 0 || groups_are_shut(e->options.groups)) return;
    bool is_useless = !target_is_connected(e->options.target) || e->is_leaving;
    if (!is_useless) {
        move_next(e);
    } else if (e->n_active == 0) {
        move_all(e);
    }
}

/* ---- here ---- */

/* One that had a place goes first, as it did where it was. */
static int queue_again(struct engine *e, struct sequence *seq, struct error *err)
{
    bool had_place = seq->admitted_us || seq->index > 0;
    return had_place ? engine_return_to_queue(e, seq, err) : engine_queue(e, seq, err);
}

void engine_take_moved(struct engine *e, struct job *job)
{
    struct sequence *seq = job->moved, *next;
    job->moved = NULL;
    job->next_moved = NULL;
    for (; seq; seq = next) {
        struct error err;
        next = seq->next_moved; /* the job is freed with its last sequence */
        seq->next_moved = NULL;
        if (!queue_again(e, seq, &err)) continue;
        if (!seq->admitted_us && seq->index == 0) admission_begun(e->options.admission);
        engine_fail(e, seq, JOB_END_FAILED, &err);
        sequence_close(seq);
    }
}
