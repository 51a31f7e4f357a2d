/* How jobs and sequences end, and how those that lose their place wait again. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/engine/internal.h"
#include "coordinator/round/score.h"
#include "coordinator/schedule/places.h"

enum {
    /* How often the queue is searched for clients that have left; with the step that is running
     * they are noticed within 10 ms. */
    DROP_US = 5000,
    GROUP_AWAITED_US = 10000000 /* jobs that wait for their first round wait so long for a group */
};

void engine_displace(struct engine *e, struct sequence *seq)
{
    if (seq->slot < 0) return;
    e->slots[seq->slot] = false;
    places_withdraw(seq, &e->target_pool, e->options.drafters);
}

/* Counts and logs how the job has ended, if it has, wherever that was; once. */
static void note_end(struct engine *e, struct job *job)
{
    struct job_report report;
    if (!job->is_over || job->is_counted) return;
    job->is_counted = true;
    job_make_report(job, &report);
    signals_job(e->options.signals, &report);
    reporter_job(e->options.reporter, &report);
}

void engine_fail(struct engine *e, struct sequence *seq, enum job_end end, const struct error *why)
{
    sequence_fail(seq, end, why);
    note_end(e, seq->job);
}

/* A job that has no sequence. */
void engine_refuse(struct engine *e, struct job *job, enum job_end end, const struct error *why)
{
    job_end(job, end, why->code, why);
    note_end(e, job);
    job_free(job);
    admission_begun(e->options.admission);
}

/* Fails all sequences that have a place. */
void engine_fail_active(struct engine *e, enum job_end end, const struct error *why)
{
    for (int i = 0; i < e->n_active; i++) {
        engine_fail(e, e->active[i], end, why);
    }
}

/* Takes a sequence out of the queue. A job that never had a place has not begun. */
static void stop_waiting(struct engine *e, struct sequence *seq)
{
    waiting_remove(e->waiting, seq);
    if (!seq->admitted_us && seq->index == 0) admission_begun(e->options.admission);
}

/* A sequence that had a place says what its draft did not have to compute. */
static void count_draft_reuse(struct engine *e, const struct sequence *seq)
{
    signals_add(e->options.signals, SIGNAL_DRAFT_PREFIX_HITS, 0, seq->counters.draft_reused);
}

/* Ends all sequences that wait. */
void engine_end_waiting(struct engine *e, enum job_end end, const struct error *why)
{
    struct sequence *seq;
    for (int at = 0; (seq = waiting_next(e->waiting, &at));) {
        stop_waiting(e, seq);
        engine_fail(e, seq, end, why);
        if (seq->admitted_us) count_draft_reuse(e, seq);
        sequence_close(seq);
    }
}

/* Why a job must end now; false: it need not. */
bool engine_must_end(const struct job *job, int64_t now_us, enum job_end *end, struct error *why)
{
    const struct error *failure = job_failure(job);
    if (failure) {
        *why = *failure;
        *end = job_end_of_error(failure->code);
        return true;
    }
    if (job_is_cancelled(job)) {
        error_set(why, ERR_CANCELLED, "the client is gone");
        *end = JOB_END_CANCELLED;
        return true;
    }
    if (now_us < job->deadline_us) return false;
    error_set(why, ERR_TIMEOUT, "the request's time is over");
    *end = JOB_END_DEADLINE;
    return true;
}

/* A client that reads too slowly is waited for, and ended when it does not read at all. */
static void watch_reader(struct engine *e, struct sequence *seq, int64_t now_us)
{
    const struct reply *reply = seq->job->reply;
    struct error why;
    if (!reply->ops->progress) return;
    int64_t idle_us = backpressure_look(&seq->backpressure, reply->ops->progress(reply), now_us);
    if (idle_us <= e->options.reader_timeout_us) return;
    error_set(&why, ERR_EXHAUSTED, "the client has not read its answer for %lld s",
              (long long)e->options.reader_timeout_us / 1000000);
    engine_fail(e, seq, JOB_END_SLOW_READER, &why);
}

/* Closes a sequence that waits when its client has left, its time is over or another sequence of
 * its job has failed; false: it goes on waiting. */
bool engine_drop_if_ended(struct engine *e, struct sequence *seq, int64_t now_us)
{
    struct error why;
    enum job_end end;
    bool must_end = !seq->job->is_over && engine_must_end(seq->job, now_us, &end, &why);
    if (must_end) engine_fail(e, seq, end, &why);
    if (!seq->job->is_over) return false;
    stop_waiting(e, seq);
    if (seq->admitted_us) count_draft_reuse(e, seq);
    sequence_close(seq);
    return true;
}

/* One that lost its place, and whose client does not read, gets a place when it reads again. */
static void watch_waiting_reader(struct engine *e, struct sequence *seq, int64_t now_us)
{
    if (!seq->backpressure.slow_us) return;
    watch_reader(e, seq, now_us);
    waiting_set_aside(e->waiting, seq, seq->backpressure.slow_us != 0);
}

/* Frees the jobs whose clients have left or whose time is over while they waited, so that they take
 * no place in the queue. */
void engine_drop_waiting(struct engine *e)
{
    struct sequence *seq;
    struct error why;
    int64_t now_us = clock_now_us();
    if (now_us < e->next_drop_us) return;
    e->next_drop_us = now_us + DROP_US;
    for (int at = 0; (seq = waiting_next(e->waiting, &at));) {
        watch_waiting_reader(e, seq, now_us);
        engine_drop_if_ended(e, seq, now_us);
    }
    if (!target_is_connected(e->options.target) && now_us - e->lost_us > GROUP_AWAITED_US) {
        char state[ERROR_TEXT_BYTES];
        groups_copy_why(e->options.groups, state);
        error_set(&why, ERR_UNAVAILABLE, "%.400s", state);
        engine_end_waiting(e, JOB_END_UNAVAILABLE, &why);
    }
}

/* Sends the summary of a text, or ends the scoring of one, when nothing is left to do. */
static void finish(struct engine *e, struct sequence *seq)
{
    struct error err;
    if (seq->is_score && seq->n_target_kv == seq->n_tokens) {
        int rc = score_finish(seq, e->options.tok, &err);
        signals_prompt(e->options.signals, seq->n_prompt, (int)seq->counters.target_reused, -1);
        seq->is_over = true;
        job_end(seq->job, rc ? job_end_of_error(rc) : JOB_END_ANSWERED, rc, &err);
    } else if (seq->finish_reason) {
        sequence_finish(seq, engine_group(e)->arithmetic, &e->planner);
        drafters_observe_text(e->options.drafters, seq);
    }
}

/* After a round: closes the sequences that are over and queues those that have lost their place. */
void engine_leave(struct engine *e)
{
    int n = 0;
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *seq = e->active[i];
        struct error err;
        if (!seq->is_over && !seq->is_evicted) {
            e->active[n++] = seq;
            continue;
        }
        if (seq->is_evicted) {
            e->slots[seq->evicted_slot] = false;
            signals_add(e->options.signals, SIGNAL_PREEMPTIONS, 0, 1);
        }
        if (!seq->is_over) {
            if (!engine_return_to_queue(e, seq, &err)) continue;
            engine_fail(e, seq, JOB_END_FAILED, &err);
        }
        count_draft_reuse(e, seq);
        engine_displace(e, seq);
        sequence_close(seq);
    }
    e->n_active = n;
}

void engine_end_unwanted(struct engine *e)
{
    int64_t now_us = clock_now_us();
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *seq = e->active[i];
        struct error why;
        enum job_end end;
        if (seq->is_over || seq->job->is_over) continue;
        if (engine_must_end(seq->job, now_us, &end, &why)) {
            engine_fail(e, seq, end, &why);
        } else {
            watch_reader(e, seq, now_us);
        }
    }
}

int engine_count_running(const struct engine *e)
{
    int n = 0;
    for (int i = 0; i < e->n_active; i++) {
        n += e->active[i]->job->is_over ? 0 : 1;
    }
    return n;
}

/* Ends the sequences that are done and those that nobody waits for any more. */
void engine_end_finished(struct engine *e)
{
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *seq = e->active[i];
        if (seq->job->is_over) seq->is_over = true; /* another sequence of it may have failed */
        if (!seq->is_over) finish(e, seq);
        note_end(e, seq->job); /* a round may have failed it */
    }
    engine_end_unwanted(e);
    engine_leave(e);
}

bool engine_drains(struct engine *e)
{
    int64_t now_us = clock_now_us();
    int n_running = engine_count_running(e), n_waiting = waiting_count(e->waiting);
    if (!e->drain_until_us) {
        e->drain_until_us = now_us + e->options.drain_us;
        groups_set_stopping(e->options.groups, "the coordinator is shutting down");
        log_line(LOG_LEVEL_INFO, "draining", "running=%d waiting=%d timeout_ms=%lld", n_running,
                 n_waiting, (long long)e->options.drain_us / 1000);
    }
    return (n_running > 0 || n_waiting > 0) && now_us < e->drain_until_us;
}
