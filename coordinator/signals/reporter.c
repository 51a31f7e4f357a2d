/* Jobs come through a queue; between them the thread wakes for the line of figures. */
#include "coordinator/signals/reporter.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads/queue.h"

enum { QUEUE_JOBS = 1024 };

/* Counters at one moment. */
struct figures {
    int64_t at_us, n_tokens, n_prompt, n_reused, n_drafted, n_tested, n_accepted, n_rounds, n_jobs;
};

struct reporter {
    struct reporter_options options;
    struct queue *queue; /* of struct job_report */
    pthread_t thread;
};

/* ---- a job ---- */

/* True if the service failed; the client's or the operator's acts are no failure of ours. */
static bool is_failure(enum job_end end)
{
    return end == JOB_END_FAILED || end == JOB_END_UNAVAILABLE || end == JOB_END_SLOW_READER ||
           end == JOB_END_SHUTDOWN;
}

/* NaN, which the log leaves out, where it did not get so far. */
static double milliseconds(int64_t us)
{
    return us < 0 ? (double)NAN : (double)us / 1000;
}

static double quotient(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : (double)NAN;
}

/* A client that asks for nonsense again and again must not fill the disk: metrics count it. */
static enum log_level level_of(enum job_end end)
{
    if (end == JOB_END_REFUSED) return LOG_LEVEL_DEBUG;
    return is_failure(end) ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;
}

static void log_job(const struct job_report *r)
{
    const struct job_work *w = &r->work;
    const char *reason = r->failure.code ? error_name(r->failure.code) : "";
    log_line(level_of(r->end), "job_end",
             "request_id=%s stored_id=%s trace_id=%s client=\"%s\" kind=%s end=\"%s\" reason=%s "
             "prompt_tokens=%d reused_tokens=%d tokens=%d rounds=%d k_mean=%.2f alpha=%.3f "
             "queue_ms=%.1f first_token_ms=%.1f total_ms=%.1f text=\"%s\"",
             r->request_id, r->origin.stored_id, r->origin.trace_id, r->client,
             r->is_score ? "score" : "generate", job_end_names[r->end], reason, r->n_prompt,
             w->n_reused, w->n_tokens, w->n_rounds, quotient(w->n_drafted, w->n_rounds),
             quotient(w->n_accepted, w->n_accepted + w->n_rejections), milliseconds(r->queue_us),
             milliseconds(r->first_token_us), milliseconds(r->total_us),
             r->failure.code ? r->failure.text : "");
}

void reporter_job(struct reporter *reporter, const struct job_report *report)
{
    struct error err;
    struct job_report *kept;
    if (!reporter->options.has_jobs && !is_failure(report->end)) return;
    int rc = mem_array(&kept, 1, sizeof *kept, &err);
    if (!rc) {
        *kept = *report;
        rc = queue_push(reporter->queue, kept, &err);
    }
    if (!rc) return;
    free(kept);
    signals_add(reporter->options.signals, SIGNAL_LOST_LINES, 0, 1);
}

/* ---- the figures ---- */

static struct figures figures_now(const struct signals *s)
{
    struct figures f = {
        .at_us = clock_now_us(),
        .n_tokens = signals_get(s, SIGNAL_GENERATION_TOKENS, 0),
        .n_prompt = signals_get(s, SIGNAL_PROMPT_TOKENS, 0),
        .n_reused = signals_get(s, SIGNAL_PREFIX_HITS, 0),
        .n_drafted = signals_get(s, SIGNAL_DRAFT_TOKENS, 0),
        .n_accepted = signals_get(s, SIGNAL_ACCEPTED_TOKENS, 0),
        .n_rounds = signals_get(s, SIGNAL_DRAFT_LENGTH, 0),
    };
    for (int i = 0; i < DRAFT_MAX; i++) {
        f.n_tested += signals_get(s, SIGNAL_TESTED_AT, i);
    }
    for (int i = 0; i < JOB_ENDS; i++) {
        f.n_jobs += signals_get(s, SIGNAL_ENDS, i);
    }
    return f;
}

/* The figures since `last`, and what there is now; nothing when there was no work. */
static void log_load(const struct signals *s, const struct figures *last, const struct figures *now)
{
    long long n_running = signals_get(s, SIGNAL_RUNNING, 0);
    int64_t n_jobs = now->n_jobs - last->n_jobs, n_tokens = now->n_tokens - last->n_tokens;
    int64_t n_prompt = now->n_prompt - last->n_prompt;
    double seconds = (double)(now->at_us - last->at_us) * 1e-6;
    if (!n_running && !n_jobs && !n_tokens && !n_prompt) return;
    log_line(LOG_LEVEL_INFO, "load",
             "seconds=%.1f running=%lld waiting=%lld jobs=%lld tokens_per_s=%.1f "
             "prompt_tokens_per_s=%.1f alpha=%.3f k_mean=%.2f kv_ratio=%.3f reused_ratio=%.3f",
             seconds, n_running, (long long)signals_get(s, SIGNAL_WAITING, 0), (long long)n_jobs,
             (double)n_tokens / seconds, (double)n_prompt / seconds,
             quotient(now->n_accepted - last->n_accepted, now->n_tested - last->n_tested),
             quotient(now->n_drafted - last->n_drafted, now->n_rounds - last->n_rounds),
             (double)signals_get(s, SIGNAL_KV_USAGE, 0) * 1e-6,
             quotient(now->n_reused - last->n_reused, n_prompt));
}

/* ---- the thread ---- */

static void *run_reporter(void *arg)
{
    struct reporter *r = arg;
    const int64_t load_us = (int64_t)r->options.load_s * 1000000;
    struct figures last = figures_now(r->options.signals);
    struct error err;
    void *item;
    int rc;
    do {
        rc = queue_pop(r->queue, &item, load_us ? last.at_us + load_us : INT64_MAX, &err);
        if (item) log_job(item);
        free(item);
        if (load_us && clock_now_us() - last.at_us >= load_us) {
            signals_look(r->options.signals);
            struct figures now = figures_now(r->options.signals);
            log_load(r->options.signals, &last, &now);
            last = now;
        }
    } while (rc != ERR_CLOSED);
    return NULL;
}

int reporter_open(struct reporter **reporter, const struct reporter_options *options,
                  struct error *err)
{
    int rc = 0;
    struct reporter *r = NULL;
    *reporter = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    r->options = *options;
    TRY(queue_open(&r->queue, QUEUE_JOBS, err));
    if (pthread_create(&r->thread, NULL, run_reporter, r)) {
        rc = error_set(err, ERR_NO_MEMORY, "cannot start the thread that logs jobs");
        goto out;
    }
    *reporter = r;
    r = NULL;
out:
    if (r) queue_close(r->queue);
    free(r);
    return rc;
}

void reporter_close(struct reporter *r)
{
    if (!r) return;
    queue_shut(r->queue);
    pthread_join(r->thread, NULL);
    queue_close(r->queue);
    free(r);
}
