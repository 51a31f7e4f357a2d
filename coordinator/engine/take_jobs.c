/* Jobs on their way to a place, and what is asked of the coordinator itself. */
#include <stdio.h>

#include "base/clock.h"
#include "coordinator/engine/internal.h"
#include "coordinator/schedule/places.h"

enum { PAUSED_US = 200000 /* for which a client must not have read before its text gives way */ };

static struct sequence_defaults defaults_now(const struct engine *e)
{
    return (struct sequence_defaults){
        .n_draft = e->options.n_draft,
        .strategy = e->options.strategy,
        .threshold = e->options.threshold,
        .context_limit = engine_group(e)->context_limit,
        .vocab_size = engine_group(e)->vocab_size,
        .n_layers = engine_group(e)->n_layers,
        .ends = &engine_group(e)->ends,
        .sampling = e->options.ignores_generation_config ? NULL : &e->sampling,
        .has_draft = drafters_any(e->options.drafters),
        .siblings_max = e->options.trees.mode == TREES_OFF ? 0 : SIBLINGS_MAX,
        .grows = e->options.trees.mode == TREES_AUTO,
        .follows_q = e->options.trees.follows_q,
        .tree_follows_q = e->options.trees.fixed_follows_q,
        .tree = e->options.trees.fixed.n > 0 ? &e->options.trees.fixed : NULL,
        .has_chains = e->options.trees.fixed.is_independent && e->options.drafters->n_models > 0,
        .tree_rule = e->options.tree_rule,
    };
}

/* Checks a job and lets its first sequence wait for a place. */
static int queue_job(struct engine *e, struct job *job, struct error *err)
{
    const struct sequence_defaults defaults = defaults_now(e);
    struct sequence *seq;
    int rc = sequence_open(&seq, job, 0, e->options.tok, &defaults, err);
    if (rc) return rc;
    rc = engine_queue(e, seq, err);
    if (!rc) return 0;
    job->n_open++; /* the job remains the caller's */
    sequence_close(seq);
    job->n_open--;
    return rc;
}

/* There is no group here: another engine may have one. */
static void pass_on(struct engine *e, struct job *job)
{
    struct error err;
    if (!groups_place(e->options.groups, e->options.seat, job, &err)) return;
    engine_refuse(e, job, JOB_END_UNAVAILABLE, &err);
}

static void take_job(struct engine *e, struct job *job)
{
    struct error err;
    enum job_end end;
    groups_taken(e->options.groups, e->options.seat, job);
    engine_served(e);
    job->reply->buffer = &e->buffer;
    if (job->moved) {
        engine_take_moved(e, job);
        return;
    }
    job_name(job);
    if (engine_must_end(job, clock_now_us(), &end, &err)) {
        engine_refuse(e, job, end, &err);
    } else if (!target_is_connected(e->options.target) || e->is_leaving) {
        pass_on(e, job);
    } else if (queue_job(e, job, &err)) {
        engine_refuse(e, job, JOB_END_REFUSED, &err);
    }
}

/* Takes the jobs that have come; waits a little when there is nothing to do. Errors: ERR_CLOSED it
 * is time to stop. */
int engine_take_jobs(struct engine *e, int64_t patience_us, struct error *err)
{
    void *item;
    int64_t until_us = patience_us ? clock_now_us() + patience_us : 0;
    for (;; until_us = 0) {
        int rc = queue_pop(e->options.jobs, &item, until_us, err);
        if (rc == ERR_TIMEOUT) return 0;
        if (rc) return rc;
        take_job(e, item);
    }
}

static int free_slot(const struct engine *e)
{
    int slot = 0;
    while (e->slots[slot]) {
        slot++;
    }
    return slot;
}

/* Blocks that the sequence's text is still without, and one for what follows. */
static int n_lacking(const struct engine *e, const struct sequence *seq)
{
    return block_table_lacks(&seq->target_blocks, &e->target_pool, seq->n_tokens + 1);
}

/* Blocks that are left for the text of one more beside those that have places: each of them may
 * still need what its text is without, and a block more, so that nobody is displaced again at
 * once. */
static int64_t room_beside(const struct engine *e)
{
    int64_t room = block_pool_room(&e->target_pool);
    for (int i = 0; i < e->n_active; i++) {
        int lacking = n_lacking(e, e->active[i]);
        room -= lacking > 1 ? lacking : 1;
    }
    return room;
}

/* A sequence that found no room is not tried again before there is more. */
static bool is_still_blocked(const struct engine *e, const struct sequence *seq)
{
    return e->n_active > 0 && seq->id == e->blocked_id && room_beside(e) <= e->blocked_room;
}

/* In order of age. */
static void insert_active(struct engine *e, struct sequence *seq)
{
    int at = e->n_active++;
    for (; at > 0 && e->active[at - 1]->id > seq->id; at--) {
        e->active[at] = e->active[at - 1];
    }
    e->active[at] = seq;
}

/* The youngest sequence whose client does not read gives up its place; false: there is none. As
 * many as have places may wait for their clients, which bounds what all of them hold. */
static bool evict_paused(struct engine *e)
{
    int64_t now_us = clock_now_us();
    if (waiting_count_aside(e->waiting) >= e->n_places) return false;
    for (int i = e->n_active - 1; i >= 0; i--) {
        struct sequence *seq = e->active[i];
        if (!seq->backpressure.slow_us || seq->is_over ||
            now_us - seq->backpressure.slow_us < PAUSED_US)
            continue;
        places_evict(seq, &e->target_pool, e->options.drafters);
        engine_leave(e);
        return true;
    }
    return false;
}

/* Gives the sequence that is next a place; false: there is no room. One that fails is closed. */
static bool place(struct engine *e, struct sequence *seq)
{
    struct error err;
    int slot = free_slot(e);
    bool is_new = !seq->admitted_us;
    int rc = places_give(seq, slot, &e->target_pool, e->options.drafters, &err);
    if (!rc && e->n_active > 0 && n_lacking(e, seq) > room_beside(e)) {
        places_withdraw(seq, &e->target_pool, e->options.drafters);
        e->blocked_id = seq->id;
        e->blocked_room = room_beside(e);
        return false;
    }
    waiting_pop(e->waiting);
    if (is_new && seq->index == 0) admission_begun(e->options.admission);
    if (rc) {
        engine_fail(e, seq, JOB_END_FAILED, &err);
        sequence_close(seq);
        return true;
    }
    sequence_admit(seq);
    e->slots[slot] = true;
    insert_active(e, seq);
    return true;
}

/* Gives places to those that wait, in their order, as long as there is room. Nobody waits for a
 * client that does not read. A group that is going to end takes only what has begun. */
void engine_admit(struct engine *e)
{
    struct sequence *seq;
    while ((seq = waiting_peek(e->waiting))) {
        if (engine_drop_if_ended(e, seq, clock_now_us())) continue;
        if (e->is_leaving && !seq->admitted_us && seq->index == 0) return;
        bool is_placed = e->n_active < e->n_places && !is_still_blocked(e, seq) && place(e, seq);
        if (!is_placed && !evict_paused(e)) return;
    }
}

/* Starts the other sequences of a job after the prefill of the first one, whose KV of the prompt
 * they share. */
void engine_split_jobs(struct engine *e)
{
    const struct sequence_defaults defaults = defaults_now(e);
    for (int i = 0; i < e->n_active; i++) {
        struct sequence *first = e->active[i], *seq;
        struct job *job = first->job;
        struct error err;
        int rc = 0;
        if (first->is_score || job->is_split || job->is_over) continue;
        if (first->n_tokens == first->n_prompt) continue;
        job->is_split = true;
        for (int index = 1; index < job->generate.n && !rc; index++) {
            rc = sequence_open(&seq, job, index, e->options.tok, &defaults, &err);
            if (rc) break;
            rc = engine_return_to_queue(e, seq, &err);
            if (rc) sequence_close(seq);
        }
        if (rc) engine_fail(e, first, JOB_END_FAILED, &err);
    }
}

/* ---- Describe ---- */

static struct kv_blocks count_blocks(const int blocks[SIGNALS_BLOCK_STATES])
{
    return (struct kv_blocks){blocks[SIGNALS_IN_USE], blocks[SIGNALS_FREE], blocks[SIGNALS_CACHED]};
}

static struct service_load load_now(struct engine *e)
{
    const struct signals *s = e->options.signals;
    uint64_t reused = (uint64_t)signals_get(s, SIGNAL_PREFIX_HITS, 0);
    float alpha[GROUPS_ALPHAS];
    struct signals_load all;
    int n_waiting;
    uint64_t n_steps;
    groups_add_loads(e->options.groups, &all, alpha);
    groups_count(e->options.groups, &n_waiting, &n_steps);
    struct service_load load = {
        .sequences_max = all.n_places,
        .running = all.n_running,
        .waiting = n_waiting,
        .target_kv = count_blocks(all.kv_blocks),
        .draft_kv = count_blocks(all.draft_kv_blocks),
        .prompt_tokens_reused = reused,
        .prompt_tokens_computed = (uint64_t)signals_get(s, SIGNAL_PREFIX_QUERIES, 0) - reused,
        .preemptions = (uint64_t)signals_get(s, SIGNAL_PREEMPTIONS, 0),
        .uptime_us = (uint64_t)(clock_now_us() - e->start_us),
        .draft_prompt_tokens_reused = (uint64_t)signals_get(s, SIGNAL_DRAFT_PREFIX_HITS, 0),
        .steps = n_steps,
    };
    for (int i = 0; i < JOB_ENDS; i++) {
        load.ends[i] = (uint64_t)signals_get(s, SIGNAL_ENDS, i);
    }
    return load;
}

/* All groups, as Describe tells of them. */
struct seats_shown {
    char state[ERROR_TEXT_BYTES];
    struct seat_view views[GROUPS_MAX];
    struct service_group groups[GROUPS_MAX];
    const char *addresses[GROUPS_MAX * RANKS_MAX];
    int n, n_addresses;
};

static void show_seats(struct engine *e, struct seats_shown *shown)
{
    bool is_serving = groups_any_serving(e->options.groups);
    groups_copy_why(e->options.groups, shown->state);
    if (is_serving) snprintf(shown->state, sizeof shown->state, "serving");
    shown->n = shown->n_addresses = 0;
    while (shown->n < GROUPS_MAX &&
           groups_view(e->options.groups, shown->n, &shown->views[shown->n])) {
        const struct seat_view *view = &shown->views[shown->n];
        const char **addresses = &shown->addresses[shown->n_addresses];
        for (int i = 0; i < view->group.n_ranks; i++) {
            shown->addresses[shown->n_addresses++] = view->group.addresses[i];
        }
        shown->groups[shown->n++] = (struct service_group){
            .state = view->state,
            .kernels = view->kernels,
            .n_addresses = view->group.n_ranks,
            .addresses = addresses,
            .running = view->n_running,
            .waiting = view->n_waiting,
            .places = view->n_places,
            .is_measured = view->is_measured,
        };
    }
}

static void answer_describe(struct engine *e, struct job *job)
{
    struct error err;
    job->reply->buffer = &e->buffer;
    struct seats_shown shown;
    show_seats(e, &shown);
    const struct target_description *d = engine_group(e);
    const struct drafters *drafters = e->options.drafters;
    const struct drafter *model = drafters->n_models > 0 ? drafters->models[0] : NULL;
    const struct drafter *head = e->head ? e->head : drafters_reader(drafters);
    int n_kernels, k = sequence_default_k(e->options.strategy, e->options.n_draft);
    const char *kernels[RANKS_MAX];
    target_kernels(e->options.target, kernels, &n_kernels);
    struct service_description desc = {
        .version = OUTRIDER_VERSION,
        .target_model = e->options.target_name ? e->options.target_name : d->model,
        .target_architecture = d->architecture,
        .arithmetic = d->arithmetic,
        .draft_model = e->options.draft_name,
        .draft_kind = head ? head->head_format : NULL,
        .state = shown.state,
        .n_ranks = d->n_ranks,
        .n_slices = d->n_slices,
        .vocab_size = d->vocab_size,
        .context_limit = d->context_limit,
        .default_n_draft = drafters_any(e->options.drafters) ? k : 0,
        .default_strategy = e->options.strategy,
        .estimates = planner_estimates(&e->planner, NULL),
        .draft_support = e->options.draft_support,
        .n_kv_blocks = d->n_kv_blocks,
        .queue_capacity = e->options.queue_capacity,
        .model_fingerprint = d->model_fingerprint,
        .tokenizer_fingerprint = tokenizer_fingerprint(e->options.tok),
        .n_addresses = shown.n_addresses,
        .addresses = shown.addresses,
        .n_groups = shown.n,
        .groups = shown.groups,
        .n_kernels = n_kernels,
        .kernels = kernels,
        .draft_kernels = model && model->kernels ? model->kernels : "",
        .load = load_now(e),
        .has_chat = e->options.chat && served_chat_has(e->options.chat),
    };
    planner_times(&e->planner, &desc.times);
    int rc = job->reply->ops->description(job->reply, &desc, &err);
    job_end(job, JOB_END_ANSWERED, rc, &err);
    job_free(job);
}

/* An engine that serves answers, because it knows its group; where none does, the first one. */
void engine_answer_control(struct engine *e)
{
    struct error err;
    void *item;
    bool is_serving = target_is_connected(e->options.target) && !e->is_leaving;
    if (!is_serving && (e->options.seat > 0 || groups_any_serving(e->options.groups))) return;
    bool has_answered = false;
    while (queue_pop(e->options.control, &item, 0, &err) == 0) {
        answer_describe(e, item);
        has_answered = true;
    }
    if (has_answered) e->options.flush_answers(e->options.flush_arg, false);
}
