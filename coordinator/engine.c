/* The engine's loop: connect, admit, run a round, end what is done. */
#include "coordinator/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/score.h"
#include "coordinator/sequence.h"

enum {
    /* K + 1 rows, each cut out of a whole vocabulary. Pages that no round needs are never
     * touched. */
    ROUND_ARENA_BYTES = 256 << 20,
    IDLE_US = 100000, /* how often an idle engine looks at its streams */
    DROP_US = 100000, /* how often the queue is searched for clients that have left */
    RECONNECT_US = 200000,
    CONNECT_US = 1000000, /* shorter than the grace time after SIGTERM (main.c) */
    STATE_BYTES = ERROR_TEXT_BYTES
};

struct engine {
    struct engine_options options;
    struct round_tools tools;
    struct block_pool target_pool;
    struct ahead *ahead;
    struct sequence sequences[ENGINE_SEQUENCES];
    struct planner planner; /* of the draft and the group in planner_group */
    struct target_description planner_group;
    struct arena arena;
    int64_t next_connect_us, next_drop_us;
    bool was_connected;
    char state[STATE_BYTES]; /* "serving", or why not */
};

int engine_open(struct engine **engine, const struct engine_options *options, struct error *err)
{
    int rc = 0;
    struct engine *e = NULL;
    *engine = NULL;
    TRY(mem_array(&e, 1, sizeof *e, err));
    e->options = *options;
    TRY(arena_open(&e->arena, ROUND_ARENA_BYTES, err));
    if (options->drafter) {
        TRY(ahead_open(&e->ahead, options->draft_ahead, options->drafter, err));
    }
    e->tools = (struct round_tools){
        .target = options->target,
        .drafter = options->drafter,
        .ahead = e->ahead,
        .target_pool = &e->target_pool,
        .planner = &e->planner,
        .tok = options->tok,
        .arena = &e->arena,
    };
    snprintf(e->state, sizeof e->state, "the target group has not been reached yet");
    *engine = e;
    e = NULL;
out:
    engine_close(e);
    return rc;
}

static void close_sequences(struct engine *e)
{
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        sequence_close(&e->sequences[i]);
        if (e->options.drafter) drafter_forget(e->options.drafter, i);
    }
    block_pool_close(&e->target_pool);
}

void engine_close(struct engine *e)
{
    if (!e) return;
    close_sequences(e);
    ahead_close(e->ahead);
    arena_close(&e->arena);
    free(e);
}

/* Forgets what was measured with another group, because it says nothing of this one. */
static void adopt_planner(struct engine *e, const struct target_description *d)
{
    const struct target_description *old = &e->planner_group;
    bool is_same = old->model_fingerprint == d->model_fingerprint && old->n_ranks == d->n_ranks &&
                   old->n_threads == d->n_threads && strcmp(old->arithmetic, d->arithmetic) == 0 &&
                   strcmp(old->kernels, d->kernels) == 0;
    if (!is_same) e->planner = (struct planner){0};
    if (!is_same && e->ahead) ahead_forget(e->ahead);
    e->planner_group = *d;
}

/* Opens sequences and blocks for the group that was just connected. */
static int adopt_group(struct engine *e, struct error *err)
{
    const struct target_description *d = target_description(e->options.target);
    int rc = 0, n_blocks = d->context_limit / d->block_tokens + 2;
    close_sequences(e);
    adopt_planner(e, d);
    TRY(block_pool_open(&e->target_pool, d->n_kv_blocks, d->block_tokens, err));
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        TRY(sequence_open(&e->sequences[i], i, d->context_limit, n_blocks, err));
    }
out:
    return rc;
}

static void set_state(struct engine *e, bool is_serving, const char *why)
{
    snprintf(e->state, sizeof e->state, "%s", is_serving ? "serving" : why);
    e->options.set_serving(e->options.serving_arg, is_serving);
}

/* Tries to connect every RECONNECT_US. Errors: ERR_ARGUMENT the first group that answers does not
 * fit. */
static int keep_connected(struct engine *e, struct error *err)
{
    if (target_is_connected(e->options.target)) return 0;
    if (clock_now_us() < e->next_connect_us) return 0;
    int rc = target_connect(e->options.target, clock_now_us() + CONNECT_US, err);
    if (!rc) {
        rc = adopt_group(e, err);
        if (rc) target_disconnect(e->options.target);
    }
    e->next_connect_us = clock_now_us() + RECONNECT_US;
    if (rc) {
        if (rc == ERR_UNAVAILABLE) error_wrap(err, "the target group is not there");
        bool is_news = strncmp(e->state, err->text, sizeof e->state - 1) != 0;
        set_state(e, false, err->text);
        if (is_news) log_line(LOG_LEVEL_WARN, "target_unreachable", "text=\"%s\"", err->text);
        return rc == ERR_ARGUMENT && !e->was_connected ? rc : 0;
    }
    const struct target_description *d = target_description(e->options.target);
    log_line(LOG_LEVEL_INFO, "target_ready", "model=%s ranks=%d arithmetic=%s group=%s context=%d",
             d->model, d->n_ranks, d->arithmetic, d->group, d->context_limit);
    e->was_connected = true;
    set_state(e, true, "");
    return 0;
}

/* Fails every job that is being served. */
static void fail_active(struct engine *e, const struct error *why)
{
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        struct sequence *seq = &e->sequences[i];
        if (!seq->is_active) continue;
        sequence_fail(seq, why);
        sequence_end(seq, &e->target_pool, e->options.drafter);
    }
    set_state(e, false, why->text);
}

/* The group is lost. Jobs that come before it is back are refused at once. */
static void lose_target(struct engine *e, const struct error *why)
{
    fail_active(e, why);
    e->next_connect_us = clock_now_us() + RECONNECT_US;
}

static void refuse(struct job *job, int code, const char *text)
{
    job->reply->ops->fail(job->reply, code, text);
    job_free(job);
}

static void answer_describe(struct engine *e, struct job *job)
{
    struct error err;
    const struct target_description *d = target_description(e->options.target);
    const struct drafter *drafter = e->options.drafter;
    int n_kernels, k = sequence_default_k(e->options.strategy, e->options.n_draft);
    const char *kernels[RANKS_MAX];
    target_kernels(e->options.target, kernels, &n_kernels);
    const struct service_description desc = {
        .version = OUTRIDER_VERSION,
        .target_model = e->options.target_name ? e->options.target_name : d->model,
        .target_architecture = d->architecture,
        .arithmetic = d->arithmetic,
        .draft_model = e->options.draft_name,
        .state = e->state,
        .n_ranks = d->n_ranks,
        .n_slices = d->n_slices,
        .vocab_size = d->vocab_size,
        .context_limit = d->context_limit,
        .default_n_draft = drafter ? k : 0,
        .default_strategy = e->options.strategy,
        .estimates = planner_estimates(&e->planner, NULL),
        .draft_support = e->options.draft_support,
        .n_kv_blocks = d->n_kv_blocks,
        .queue_capacity = e->options.queue_capacity,
        .model_fingerprint = d->model_fingerprint,
        .tokenizer_fingerprint = tokenizer_fingerprint(e->options.tok),
        .n_addresses = e->options.n_addresses,
        .addresses = e->options.addresses,
        .n_kernels = n_kernels,
        .kernels = kernels,
        .draft_kernels = drafter && drafter->kernels ? drafter->kernels : "",
    };
    job_end(job, job->reply->ops->description(job->reply, &desc, &err), &err);
    job_free(job);
}

static void answer_control(struct engine *e)
{
    struct error err;
    void *item;
    while (queue_pop(e->options.control, &item, 0, &err) == 0) {
        answer_describe(e, item);
    }
}

/* Starts a job on a free sequence. Errors: the group was lost while scoring. */
static int start_job(struct engine *e, struct sequence *seq, struct job *job, struct error *err)
{
    const struct target_description *d = target_description(e->options.target);
    const struct sequence_defaults defaults = {
        .n_draft = e->options.n_draft,
        .strategy = e->options.strategy,
        .threshold = e->options.threshold,
        .context_limit = d->context_limit,
        .vocab_size = d->vocab_size,
        .has_draft = e->options.drafter != NULL,
    };
    int rc = 0;
    if (job->kind == JOB_SCORE) {
        rc = score_run(&e->tools, job, seq, err);
        job_free(job);
        return rc;
    }
    if (sequence_begin(seq, job, e->options.tok, &defaults, err)) refuse(job, err->code, err->text);
    return 0;
}

static struct sequence *free_sequence(struct engine *e)
{
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        if (!e->sequences[i].is_active) return &e->sequences[i];
    }
    return NULL;
}

static int list_active(struct engine *e, struct sequence **active)
{
    int n = 0;
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        if (e->sequences[i].is_active) active[n++] = &e->sequences[i];
    }
    return n;
}

/* Takes jobs while there is a free sequence; waits a little when there is nothing to do at all.
 * Errors: ERR_CLOSED it is time to stop. */
static int admit(struct engine *e, struct error *err)
{
    struct sequence *active[ENGINE_SEQUENCES];
    void *item;
    int rc = 0;
    while (free_sequence(e)) {
        int64_t patience = list_active(e, active) ? 0 : clock_now_us() + IDLE_US;
        rc = queue_pop(e->options.jobs, &item, patience, err);
        if (rc) return rc == ERR_TIMEOUT ? 0 : rc;
        struct job *job = item;
        if (job_is_cancelled(job)) {
            refuse(job, ERR_CANCELLED, "the client is gone");
        } else if (!target_is_connected(e->options.target)) {
            refuse(job, ERR_UNAVAILABLE, e->state);
        } else if (start_job(e, free_sequence(e), job, err)) {
            lose_target(e, err);
        }
        if (!target_is_connected(e->options.target)) return 0;
    }
    return queue_is_shut(e->options.jobs) ? error_set(err, ERR_CLOSED, "the queue is shut") : 0;
}

/* Ends the sequences that are done and those that nobody waits for any more. */
static void end_finished(struct engine *e)
{
    for (int i = 0; i < ENGINE_SEQUENCES; i++) {
        struct sequence *seq = &e->sequences[i];
        if (!seq->is_active) continue;
        if (seq->finish_reason) {
            sequence_finish(seq, target_description(e->options.target)->arithmetic, &e->planner);
        } else if (job_is_cancelled(seq->job)) {
            struct error gone;
            error_set(&gone, ERR_CANCELLED, "the client is gone");
            sequence_fail(seq, &gone);
        } else {
            continue;
        }
        sequence_end(seq, &e->target_pool, e->options.drafter);
    }
}

/* Frees the jobs whose clients have left while they waited, so that they take no place in the
 * queue. */
static void drop_cancelled(struct engine *e)
{
    struct queue *jobs = e->options.jobs;
    int64_t now_us = clock_now_us();
    if (now_us < e->next_drop_us) return;
    e->next_drop_us = now_us + DROP_US;
    const struct job *job;
    for (int i = 0; (job = queue_peek(jobs, i));) {
        if (job_is_cancelled(job)) {
            refuse(queue_take(jobs, i), ERR_CANCELLED, "the client is gone");
        } else {
            i++;
        }
    }
}

/* Counts what the round has committed, and with the first of it the prompt. Sequences that the
 * round has ended still have their tokens. */
static void count_served(struct engine *e, struct sequence **seqs, int n)
{
    for (int i = 0; i < n; i++) {
        struct sequence *seq = seqs[i];
        served_tokens_count(e->options.served, seq->tokens + seq->n_counted,
                            seq->n_tokens - seq->n_counted);
        seq->n_counted = seq->n_tokens;
    }
    served_tokens_tick(e->options.served, clock_now_us(), n == 0);
}

static void stop_all(struct engine *e)
{
    struct error err, why;
    void *item;
    error_set(&why, ERR_UNAVAILABLE, "the coordinator is shutting down");
    fail_active(e, &why);
    while (queue_pop(e->options.jobs, &item, 0, &err) == 0) {
        refuse(item, why.code, why.text);
    }
    queue_shut(e->options.control);
    while (queue_pop(e->options.control, &item, 0, &err) == 0) {
        refuse(item, why.code, why.text);
    }
}

int engine_run(struct engine *e, struct error *err)
{
    struct sequence *active[ENGINE_SEQUENCES];
    int rc = 0;
    for (;;) {
        TRY(keep_connected(e, err));
        answer_control(e);
        TRY(admit(e, err));
        if (target_poll(e->options.target, err)) lose_target(e, err);
        int n = list_active(e, active);
        if (n && round_run(&e->tools, active, n, err)) lose_target(e, err);
        count_served(e, active, n);
        end_finished(e);
        drop_cancelled(e);
    }
out:
    stop_all(e);
    return rc == ERR_CLOSED ? 0 : rc;
}
