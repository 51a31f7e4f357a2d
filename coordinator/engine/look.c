/* Looks after requests while a step is late: they end in time also where a rank hangs. A sequence
 * of the step is answered and its client let go, but its slot and its blocks stay, because the
 * ranks may still write there: they are free when the step is answered or the group is lost. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/engine/internal.h"

/* A step that the end of the drain meets may still be answered, so that the ranks need not throw it
 * away. Shorter than the grace time after draining (coordinator/main.c). */
enum { LAST_STEP_US = 300000 };

void engine_is_not_late(struct engine *e)
{
    e->late_us = 0;
    atomic_store_explicit(&load_of(e)->late_us, 0, memory_order_relaxed);
    if (e->is_overdue) groups_set_overdue(e->options.groups, e->options.seat, false);
    e->is_overdue = false;
}

static void note_late(struct engine *e, int64_t now_us, bool is_overdue)
{
    if (!e->late_us) e->late_us = now_us;
    atomic_store_explicit(&load_of(e)->late_us, (int)(now_us - e->late_us), memory_order_relaxed);
    if (is_overdue == e->is_overdue) return;
    e->is_overdue = is_overdue;
    groups_set_overdue(e->options.groups, e->options.seat, is_overdue);
    if (!is_overdue) return;
    log_line(LOG_LEVEL_WARN, "step_overdue", "group=%s late_ms=%lld running=%d waiting=%d",
             engine_group(e)->group, (long long)(now_us - e->late_us) / 1000,
             engine_count_running(e), waiting_count(e->waiting));
}

/* The drain's time is over, or nothing is left to finish. False: the step is not waited for any
 * longer. */
static bool end_drained(struct engine *e, int64_t now_us, bool is_overdue)
{
    struct error why;
    error_set(&why, ERR_UNAVAILABLE, "the coordinator is shutting down");
    engine_fail_active(e, JOB_END_SHUTDOWN, &why);
    engine_end_waiting(e, JOB_END_SHUTDOWN, &why);
    return !is_overdue && now_us < e->drain_until_us + LAST_STEP_US;
}

bool engine_look(void *engine, bool is_overdue)
{
    struct engine *e = engine;
    struct error err;
    int64_t now_us = clock_now_us();
    beat_mark(e->options.beat, e->options.seat);
    note_late(e, now_us, is_overdue);
    engine_answer_control(e);
    bool is_shut = engine_take_jobs(e, 0, &err) == ERR_CLOSED;
    engine_drop_waiting(e);
    engine_end_unwanted(e);
    engine_move_waiting(e);
    bool goes_on = !is_shut || engine_drains(e) || end_drained(e, now_us, is_overdue);
    engine_show_load(e);
    e->options.flush_answers(e->options.flush_arg, false);
    return goes_on;
}
