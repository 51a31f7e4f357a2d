/* The engine's loop: connect, take jobs, give places, run a round, end what is done. */
#include "coordinator/engine/engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/options.h"
#include "coordinator/engine/internal.h"

enum {
    IDLE_US = 100000,       /* how often an idle engine looks at its streams */
    CLIENT_BYTES = 256,     /* of a client's name in --client-weight */
    WAITING_US = 10000,     /* the same while requests wait for a group or for their clients */
    PAUSE_US = 1000,        /* the same while all clients of running sequences are slow */
    CONNECT_US = 1000000,   /* shorter than the grace time after SIGTERM (coordinator/main.c) */
    QUIET_US = 1000000,     /* without work, after which memory is given back, ... */
    LARGE_BYTES = 16 << 20, /* ... if so much more of it is in use than the last time, ... */
    TRIM_US = 60000000      /* ... and in any case so often */
};

static int open_round(struct engine *e, struct error *err)
{
    e->tools = (struct round_tools){
        .target = e->options.target,
        .drafters = e->options.drafters,
        .appended = &e->appended,
        .target_pool = &e->target_pool,
        .planner = &e->planner,
        .scheduler = &e->scheduler,
        .tok = e->options.tok,
        .signals = e->options.signals,
        .watches = e->watches,
        .flush_answers = e->options.flush_answers,
        .flush_arg = e->options.flush_arg,
    };
    return round_open(&e->round, &e->tools, err);
}

/* "NAME=W" */
static int set_weight(struct engine *e, const char *text, struct error *err)
{
    char name[CLIENT_BYTES];
    const char *equals = strrchr(text, '=');
    int weight, rc = 0;
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name) {
        return error_set(err, ERR_ARGUMENT,
                         "--client-weight %.60s: expected NAME=W with a name of at most %d bytes",
                         text, CLIENT_BYTES - 1);
    }
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    TRY(options_int(&weight, "--client-weight", equals + 1, 1, WAITING_WEIGHT_MAX, err));
    rc = waiting_set_weight(e->waiting, name, weight, err);
out:
    return rc;
}

int engine_open(struct engine **engine, const struct engine_options *options, struct error *err)
{
    int rc = 0;
    struct engine *e = NULL;
    *engine = NULL;
    TRY(mem_array(&e, 1, sizeof *e, err));
    e->options = *options;
    e->start_us = clock_now_us();
    struct drafters *drafters = options->drafters;
    int n_models = drafters->n_models;
    if (n_models > 0 && drafters->models[n_models - 1]->head_folder) {
        e->head = drafters->models[n_models - 1];
        drafters_remove_model(drafters);
    }
    /* Every job may come back as all of its sequences, once they have had a place. */
    const struct waiting_options waiting = {
        .capacity = options->queue_capacity,
        .n_returned = SEQUENCES_MAX * GENERATE_SEQUENCES_MAX,
    };
    TRY(waiting_open(&e->waiting, &waiting, err));
    for (int i = 0; i < options->n_client_weights; i++) {
        TRY(set_weight(e, options->client_weights[i], err));
    }
    staged_begin(&e->staged, options->draft_staged, options->drafters, &e->planner);
    appended_begin(&e->appended, options->lookup_append, options->drafters, &e->planner);
    e->scheduler = (struct scheduler){
        .target = engine_group(e),
        .target_pool = &e->target_pool,
        .drafters = options->drafters,
        .planner = &e->planner,
        .step_stretch = options->step_stretch,
        .append_max = e->appended.finder ? PLANNER_APPEND_MAX : 0,
    };
    TRY(open_round(e, err));
    target_set_look(options->target, engine_look, e);
    *engine = e;
    e = NULL;
out:
    engine_close(e);
    return rc;
}

void engine_close(struct engine *e)
{
    struct sequence *seq;
    if (!e) return;
    for (int i = 0; i < e->n_active; i++) {
        engine_displace(e, e->active[i]);
        sequence_close(e->active[i]);
    }
    while (e->waiting && (seq = waiting_pop(e->waiting))) {
        sequence_close(seq);
    }
    waiting_close(e->waiting);
    engine_end_measuring(e);
    block_pool_close(&e->target_pool);
    round_close(e->round);
    buffer_free(&e->buffer);
    free(e);
}

/* ---- the group ---- */

/* Tells the planner what it has to know of a model before it has measured anything. */
static void learn_model(struct engine *e, const struct drafter *model)
{
    e->planner.models[model->model] = (struct planner_model){.is_parallel = model->is_parallel,
                                                             .lane_rows = model->lane_rows,
                                                             .rereads = model->features != NULL};
}

/* Forgets what was measured with another group, because it says nothing of this one. */
static bool adopt_planner(struct engine *e, const struct target_description *d)
{
    const struct target_description *old = &e->planner_group;
    bool is_same = old->model_fingerprint == d->model_fingerprint && old->n_ranks == d->n_ranks &&
                   old->n_threads == d->n_threads && strcmp(old->arithmetic, d->arithmetic) == 0 &&
                   strcmp(old->kernels, d->kernels) == 0;
    if (is_same) return false;
    const struct drafters *drafters = e->options.drafters;
    e->planner = (struct planner){0};
    for (int m = 0; m < drafters->n_models; m++) {
        learn_model(e, drafters->models[m]);
    }
    if (e->head) learn_model(e, e->head);
    memset(e->watches, 0, sizeof e->watches);
    return true;
}

/* Sequences that waited through the loss of a group go on with one of the same model, and with no
 * other: what they have and what was checked for them says nothing of it. */
static void check_waiting(struct engine *e, const struct target_description *d)
{
    const struct target_description *old = &e->planner_group;
    struct error why;
    bool is_same = groups_are_alike(old, d) && old->context_limit <= d->context_limit;
    if (is_same || !e->was_connected) return;
    error_set(&why, ERR_UNAVAILABLE,
              "the target group was lost, and another one has come: send the request again");
    engine_end_waiting(e, JOB_END_UNAVAILABLE, &why);
    e->options.flush_answers(e->options.flush_arg, false); /* it may be measured next */
}

/* Sets the labels of the metrics that name the group. */
static int name_group(struct engine *e, const struct target_description *d, struct error *err)
{
    const struct signals_group group = {
        .model = d->model,
        .arithmetic = d->arithmetic,
        .kernels = d->kernels,
        .n_ranks = d->n_ranks,
        .n_kv_blocks = d->n_kv_blocks,
        .block_tokens = d->block_tokens,
    };
    return signals_set_group(e->options.signals, &group, err);
}

/* Opens places and blocks for the group that was just connected, which knows nothing of earlier
 * sequences. */
static int adopt_group(struct engine *e, struct error *err)
{
    const struct target_description *d = engine_group(e);
    int rc = 0;
    check_waiting(e, d);
    const struct drafters of_head = {.n_models = 1, .models = {e->head}};
    TRY(drafters_check_target(e->head ? &of_head : e->options.drafters, d->n_layers, d->dim, err));
    TRY(drafters_check_look_ahead(e->options.drafters, &d->look_ahead, err));
    TRY(name_group(e, d, err));
    struct drafters *drafters = e->options.drafters;
    bool is_another = !groups_are_alike(&e->planner_group, d);
    for (int m = 0; m < drafters->n_models && is_another; m++) {
        drafter_forget_target(drafters->models[m]);
    }
    if (e->head && is_another) drafter_forget_target(e->head);
    bool is_new = adopt_planner(e, d);
    block_pool_close(&e->target_pool);
    TRY(block_pool_open(&e->target_pool, d->n_kv_blocks, d->block_tokens, err));
    e->target_pool.window = d->window;
    e->blocked_id = 0;
    e->n_places = d->n_slots < e->options.n_sequences ? d->n_slots : e->options.n_sequences;
    atomic_store(&e->options.admission->n_vocab, d->vocab_size);
    drafters_set_vocabulary(e->options.drafters, d->vocab_size);
    drafters_set_projection(e->options.drafters, &d->projection);
    e->planner_group = *d;
    TRY(engine_begin_proof(e, err));
    rc = engine_begin_measuring(e, is_new, err);
out:
    return rc;
}

/* The group that was found for this engine does not serve. */
static void refuse_group(struct engine *e, struct error *why)
{
    engine_end_measuring(e);
    target_disconnect(e->options.target);
    if (why->code == ERR_UNAVAILABLE || why->code == ERR_TIMEOUT) {
        error_wrap(why, "the target group is not there");
    }
    groups_leave(e->options.groups, e->options.seat, why->text, why);
    if (strcmp(e->refused, why->text) == 0) return;
    memcpy(e->refused, why->text, sizeof e->refused);
    log_line(LOG_LEVEL_WARN, "target_unreachable", "text=\"%s\"", why->text);
}

/* Before the group serves, so that its first request is served by them. */
static void take_conventions(struct engine *e)
{
    const struct engine_options *o = &e->options;
    const struct target_conventions *c = target_conventions(o->target);
    e->sampling = (struct sampling_defaults){
        .sampling = {.temperature = c->temperature,
                     .top_k = c->top_k,
                     .top_p = c->top_p,
                     .min_p = c->min_p},
        .repetition_penalty = c->repetition_penalty,
    };
    if (o->take_conventions) o->take_conventions(o->conventions_arg, c);
}

/* Names the features that the draft model reads of the group. */
static const char *name_features(const struct engine *e)
{
    const struct drafter *reader = drafters_reader(e->options.drafters);
    if (!reader) return "none";
    return reader->features->projection.key.digest ? "projected" : "plain";
}

/* Connects to the group that was found for this engine, if there is one. */
static void keep_connected(struct engine *e)
{
    struct groups *groups = e->options.groups;
    struct found_group group;
    struct error err;
    int rc = 0, seat = e->options.seat;
    if (target_is_connected(e->options.target)) return;
    if (!groups_take_offer(groups, seat, &group)) return;
    const struct target_description *d = engine_group(e);
    TRY(target_connect(e->options.target, &group, clock_now_us() + CONNECT_US, &err));
    TRY(groups_check(groups, seat, group.addresses[0], d, &err));
    take_conventions(e);
    TRY(adopt_group(e, &err));
    engine_is_not_late(e);
    engine_show_load(e); /* with what was kept of it */
    TRY(groups_hold(groups, seat, d, &err));
    log_line(LOG_LEVEL_INFO, "target_ready",
             "model=%s ranks=%d arithmetic=%s group=%s context=%d places=%d features=%s "
             "address=%s",
             d->model, d->n_ranks, d->arithmetic, d->group, d->context_limit, e->n_places,
             name_features(e), group.addresses[0]);
    e->was_connected = true;
    e->is_leaving = false;
    e->refused[0] = '\0';
    signals_add(e->options.signals, SIGNAL_TARGET_CONNECTS, 0, 1);
out:
    if (rc) refuse_group(e, &err);
}

/* The group is lost. */
static void lose_target(struct engine *e, const struct error *why)
{
    /* First, so that nobody whose job fails submits it in vain. */
    groups_leave(e->options.groups, e->options.seat, why->text, NULL);
    engine_end_measuring(e);
    engine_fail_active(e, JOB_END_UNAVAILABLE, why);
    e->is_leaving = false;
    e->lost_us = clock_now_us();
}

/* A rank has said that it is going to end: nothing new begins here, what runs goes on with another
 * group, or here if there is none, and then the group is let go. */
static void leave_target(struct engine *e)
{
    struct groups *groups = e->options.groups;
    static const char why[] = "the target group is going to end";
    if (!e->is_leaving) {
        e->is_leaving = true;
        groups_set_leaving(groups, e->options.seat, why);
        log_line(LOG_LEVEL_INFO, "target_leaving", "group=%s running=%d waiting=%d",
                 engine_group(e)->group, e->n_active, waiting_count(e->waiting));
    }
    if (!groups_are_shut(groups)) engine_evict_some(e);
    /* Sequences that have begun go to another group next, or get a place here again. */
    if (e->n_active > 0 || waiting_count_returned(e->waiting) > 0) return;
    engine_end_measuring(e);
    target_disconnect(e->options.target);
    groups_leave(groups, e->options.seat, why, NULL);
    e->is_leaving = false;
    e->lost_us = clock_now_us();
}

/* Counts what the round has committed, and with the first of it the prompt. Sequences that the
 * round has ended still have their tokens. */
static void count_served(struct engine *e)
{
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *seq = e->active[i];
        if (seq->is_score) continue;
        int first =
            seq->index > 0 && seq->n_counted < seq->n_prompt ? seq->n_prompt : seq->n_counted;
        served_tokens_count(e->options.served, seq->tokens + first, seq->n_tokens - first);
        seq->n_counted = seq->n_tokens;
    }
    served_tokens_tick(e->options.served, clock_now_us(), e->n_active == 0);
}

static void stop_all(struct engine *e)
{
    struct error err, why;
    void *item;
    error_set(&why, ERR_UNAVAILABLE, "the coordinator is shutting down");
    groups_set_stopping(e->options.groups, why.text);
    engine_fail_active(e, JOB_END_SHUTDOWN, &why);
    engine_leave(e);
    while (queue_pop(e->options.jobs, &item, 0, &err) == 0) {
        struct job *job = item;
        if (job->moved)
            engine_take_moved(e, job);
        else
            engine_refuse(e, job, JOB_END_SHUTDOWN, &why);
    }
    engine_end_waiting(e, JOB_END_SHUTDOWN, &why);
    e->options.flush_answers(e->options.flush_arg, false);
}

/* Large requests leave holes that the next ones may use; when none come, others may. */
static void give_back_memory(struct engine *e)
{
    int64_t now_us = clock_now_us();
    bool has_work = e->n_active > 0 || waiting_count(e->waiting) > 0 ||
                    budget_used(e->options.admission->budget) > 0;
    if (has_work || !e->busy_us) e->busy_us = now_us;
    if (now_us - e->busy_us < QUIET_US) return;
    bool is_due = now_us - e->trimmed_us >= TRIM_US;
    e->busy_us = now_us;
    if (is_due) e->trimmed_us = now_us;
    mem_trim(&e->resident_bytes, is_due ? 0 : LARGE_BYTES);
}

/* Errors: ERR_CLOSED it is time to stop. */
static int take_jobs(struct engine *e, int64_t patience_us, struct error *err)
{
    int rc = engine_take_jobs(e, patience_us, err);
    if (rc != ERR_CLOSED || !engine_drains(e)) return rc;
    if (patience_us) clock_sleep_us(patience_us < PAUSE_US ? patience_us : PAUSE_US);
    return 0;
}

int engine_run(struct engine *e, struct error *err)
{
    bool is_idle = false;
    int rc = 0;
    for (;;) {
        beat_mark(e->options.beat, e->options.seat);
        engine_is_not_late(e);
        /* A round lets answers leave while it waits for the ranks; where none follows, they leave
         * before anything is waited for. */
        if (e->n_active == 0 || is_idle) e->options.flush_answers(e->options.flush_arg, false);
        keep_connected(e);
        engine_answer_control(e);
        int64_t most_us = e->n_active == 0 ? IDLE_US : is_idle ? PAUSE_US : 0;
        int64_t patience_us = engine_patience_us(e, most_us);
        if (e->n_active == 0 && waiting_count(e->waiting) > 0) {
            bool can_begin = target_is_connected(e->options.target) && !e->is_leaving &&
                             waiting_peek(e->waiting);
            patience_us = can_begin ? 0 : WAITING_US;
        }
        TRY(take_jobs(e, patience_us, err));
        give_back_memory(e);
        if (target_poll(e->options.target, err)) lose_target(e, err);
        if (target_is_leaving(e->options.target)) leave_target(e);
        if (engine_measure(e, err)) lose_target(e, err);
        engine_drop_waiting(e);
        engine_end_finished(e);
        if (target_is_connected(e->options.target)) engine_admit(e);
        engine_move_waiting(e);
        engine_show_load(e);
        if (e->n_active == 0) continue;
        if (round_run(e->round, e->active, e->n_active, &is_idle, err)) lose_target(e, err);
        engine_served(e);
        count_served(e);
        engine_split_jobs(e);
        engine_end_finished(e);
        engine_show_load(e);
    }
out:
    stop_all(e);
    groups_end(e->options.groups, e->options.seat);
    engine_keep_times(e);
    return rc == ERR_CLOSED ? 0 : rc;
}
