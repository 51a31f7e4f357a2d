/* One rank of the target. Its threads are the engine thread (the caller, which runs steps and MPI,
 * and between steps the server's events), the server's network thread (events during a long step),
 * and the watchdog. They meet in the queue. */
#include "worker/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/least.h"
#include "base/log.h"
#include "base/system/process.h"
#include "base/threads/beat.h"
#include "model/checkpoint/served_name.h"
#include "model/checkpoint/type_counts.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/step_limit.h"
#include "worker/address.h"
#include "worker/conventions.h"
#include "worker/copies.h"
#include "worker/group.h"
#include "worker/held_head.h"
#include "worker/kv_room.h"
#include "worker/lead_watch.h"
#include "worker/listener.h"
#include "worker/probes.h"
#include "worker/rank_signals.h"
#include "worker/threads.h"
#include "worker/verifier.h"

enum {
    QUEUE_STEPS = 64,
    DECODE_ARENA_BYTES = 64 << 20,
    KV_TOKENS_DEFAULT = 16384, /* of all sequences; pages are taken when they are used */
    KV_BLOCKS_LATER = 1 << 24, /* described until --gpu-memory can be counted */
    CLOSE_GRACE_MS = 200,
    HANG_US = 10000000, /* between steps the engine thread comes round 20 times a second */
    ENDS_TEXT_BYTES = 16 * END_IDS_MAX,
    PIN_TEXT_BYTES = 256,
    BUSY_SAMPLE_MS = 20,
    EXIT_STUCK = 70
};

struct step_underway {
    uint64_t id;
    int n_lanes;
    int64_t limit_us, size; /* size: tokens and rows */
};

struct worker {
    struct worker_options options;
    struct threads threads;
    struct group group;
    struct checkpoint *checkpoint;
    struct held_head head; /* zeroed: --head is not given */
    struct tokenizer *tokenizer;
    struct backend *backend;
    struct verifier *verifier;
    struct queue *queue;
    struct watchdog *dog;
    struct listener *listener;
    struct rank_signals *signals;
    struct beat *beat;     /* the engine thread's, between steps; the watchdog guards these */
    struct probes *probes; /* NULL: --metrics is not given */
    struct arena arena;    /* of the decoded step */
    struct buffer out;     /* of the encoded reply */
    struct target_description description;
    struct buffer conventions; /* encoded */
    struct step_limit limit;
    struct step_underway step; /* written before the watchdog is armed */
    clockid_t engine_clock;    /* CPU time of the engine thread */
    bool has_engine_clock;
};

static int64_t microseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* How busy the engine thread is, in percent of a core: near 100 it computes, or waits in MPI or for
 * the GPU, which polls; near 0 it sleeps or gets no core. -1: not known. */
static int engine_busy_percent(const struct worker *w)
{
    const struct timespec pause = {.tv_nsec = BUSY_SAMPLE_MS * 1000000L};
    if (!w->has_engine_clock) return -1;
    int64_t start_us = clock_now_us(), busy_us = microseconds(w->engine_clock);
    nanosleep(&pause, NULL);
    busy_us = microseconds(w->engine_clock) - busy_us;
    int64_t took_us = clock_now_us() - start_us;
    return took_us > 0 ? (int)(100 * busy_us / took_us) : -1;
}

/* Tells if the rank waits for others. Sums on a device are only queued by its calls. */
static const char *waiting_text(const struct comm *comm)
{
    if (comm->device) return "unknown";
    return comm_is_waiting(comm) ? "yes" : "no";
}

/* The collective cannot be interrupted, and the other ranks wait in it, so the group ends here. */
static void on_stuck(void *arg)
{
    const struct worker *w = arg;
    const struct step_underway step = w->step;
    const char *waiting = waiting_text(w->group.comm);
    int busy_percent = engine_busy_percent(w);
    log_line(LOG_LEVEL_ERROR, "step_stuck",
             "rank=%d limit_ms=%lld step_timeout_s=%d step=%llu lanes=%d size=%lld waiting=%s "
             "engine_busy_percent=%d text=\"leaving the group\"",
             w->group.comm->rank, (long long)(step.limit_us / 1000), w->options.step_timeout_s,
             (unsigned long long)step.id, step.n_lanes, (long long)step.size, waiting,
             busy_percent);
    process_end_now(EXIT_STUCK);
}

/* In a group without MPI; under MPI, mpirun ends all ranks. */
static void on_rank_lost(void *arg)
{
    const struct worker *w = arg;
    log_line(LOG_LEVEL_ERROR, "rank_lost",
             "rank=%d text=\"another rank is gone: leaving the group\"", w->group.comm->rank);
    process_end_now(LEAD_WATCH_EXIT);
}

static int open_tokenizer(struct worker *w, struct error *err)
{
    int n_vocab = checkpoint_config(w->checkpoint)->vocab_size;
    if (checkpoint_is_synthetic(w->checkpoint)) {
        return tokenizer_open_bytes(&w->tokenizer, n_vocab, err);
    }
    int rc = tokenizer_open(&w->tokenizer, checkpoint_name(w->checkpoint), err);
    const char *remark = rc ? NULL : tokenizer_remark(w->tokenizer);
    if (remark && w->group.comm->rank == 0) {
        log_line(LOG_LEVEL_WARN, "model_remark", "model=%s text=\"%s\"", w->options.model, remark);
    }
    return rc;
}

/* Describes the KV cache. */
static void describe_kv(struct worker *w, int n_blocks)
{
    const struct model_config *cfg = checkpoint_config(w->checkpoint);
    int window = config_window(cfg), kv = n_blocks * KV_BLOCK_TOKENS;
    w->description.n_kv_blocks = n_blocks;
    w->description.context_limit = least(cfg->max_positions, kv);
    w->description.window = window < kv ? window : 0;
}

/* Describes the rank. Everything but the weights is known now; rank 0 tells the others about itself
 * before it loads them. Until then the fingerprint is that of samples.
 * Errors: ERR_UNSUPPORTED the model cannot be divided among so many ranks. */
static int describe(struct worker *w, const struct verifier_options *vo, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(w->checkpoint);
    struct shard shard;
    struct target_description *d = &w->description;
    int rc = shard_init(&shard, cfg, vo->n_vocab, w->group.comm->rank, w->group.comm->size, err);
    if (rc == ERR_ARGUMENT) rc = err->code = ERR_UNSUPPORTED; /* by this model, whenever asked */
    if (rc) return rc;
    *d = (struct target_description){
        .n_layers = cfg->n_layers,
        .dim = cfg->dim,
        .n_heads = cfg->n_heads,
        .n_kv_heads = cfg->n_kv_heads,
        .head_dim = cfg->head_dim,
        .ffn_dim = cfg->ffn_dim,
        .vocab_size = vo->n_vocab,
        .rank = shard.rank,
        .n_ranks = shard.n_ranks,
        .n_slices = shard.n_slices,
        .n_slots = vo->n_slots,
        .block_tokens = KV_BLOCK_TOKENS,
        .max_step_tokens = vo->max_step_tokens,
        .max_step_rows = vo->max_step_rows,
        .n_threads = w->options.backend.n_threads,
        .model_fingerprint = checkpoint_fingerprint(w->checkpoint),
        .tokenizer_fingerprint = tokenizer_fingerprint(w->tokenizer),
        .ends = cfg->ends,
        .look_ahead = {vo->look_ahead->digest, vo->look_ahead->n},
    };
    checkpoint_served_name(w->options.model, d->model, sizeof d->model);
    snprintf(d->architecture, sizeof d->architecture, "%.63s", cfg->architecture);
    snprintf(d->arithmetic, sizeof d->arithmetic, "%.31s", w->backend->ops->arithmetic);
    snprintf(d->kernels, sizeof d->kernels, "%.31s", w->backend->ops->kernels(w->backend));
    snprintf(d->group, sizeof d->group, "%s", w->group.id);
    describe_kv(w, vo->n_kv_blocks > 0 ? vo->n_kv_blocks : KV_BLOCKS_LATER);
    return 0;
}

/* Logs the remarks about the model; the first rank does it for all. */
static void show_remarks(const struct worker *w)
{
    for (int i = 0; w->group.comm->rank == 0 && i < CHECKPOINT_REMARKS; i++) {
        const char *text = checkpoint_remark(w->checkpoint, (enum checkpoint_remark)i);
        if (!text) continue;
        log_line(LOG_LEVEL_WARN, "model_remark", "model=%s text=\"%s\"", w->options.model, text);
    }
}

/* Opens what decides whether this rank fits into its group. The weights are loaded after it has
 * joined. */
static int open_parts(struct worker *w, struct verifier_options *vo, struct error *err)
{
    int rc = 0;
    TRY(checkpoint_open(&w->checkpoint, w->options.model, err));
    if (w->options.is_strict) TRY(checkpoint_demand_known_keys(w->checkpoint, err));
    show_remarks(w);
    if (w->options.head) TRY(held_head_open(&w->head, w->options.head, w->checkpoint, err));
    TRY(open_tokenizer(w, err));
    w->options.backend.rank = w->group.comm->rank;
    w->options.backend.stored = checkpoint_config(w->checkpoint)->stored;
    TRY(threads_open_backend(&w->threads, &w->backend, &w->options.backend, err));
    const struct model_config *cfg = checkpoint_config(w->checkpoint);
    int n_vocab = tokenizer_vocab_size(w->tokenizer);
    int kv_tokens = w->options.kv_tokens;
    if (!kv_tokens) kv_tokens = KV_TOKENS_DEFAULT;
    if (w->options.gpu_memory > 0)
        kv_tokens = 0; /* as many as there is room for when all is loaded */
    *vo = (struct verifier_options){
        .n_slots = w->options.n_slots,
        .n_kv_blocks = (kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
        .max_step_tokens = w->options.max_step_tokens,
        .max_step_rows = w->options.max_step_rows,
        .n_vocab = n_vocab < cfg->vocab_size ? n_vocab : cfg->vocab_size,
        .look_ahead = &w->head.look_ahead,
    };
    TRY(describe(w, vo, err));
    TRY(conventions_read(&w->conventions, &w->description.ends, w->checkpoint, w->tokenizer,
                         vo->n_vocab, err));
out:
    return rc;
}

static int listen_at(struct worker *w, const char *address, struct error *err)
{
    const struct listener_options options = {.queue = w->queue,
                                             .beat = w->beat,
                                             .dog = w->dog,
                                             .on_rank_lost = on_rank_lost,
                                             .arg = w,
                                             .conventions = &w->conventions,
                                             .member_pass = w->group.member_pass,
                                             .n_members = group_n_members(&w->group),
                                             .certificates = w->options.group.certificates,
                                             .run_names = w->options.group.run_names,
                                             .key = w->options.group.key};
    return listener_open(&w->listener, address, &w->description, &options, err);
}

/* Without MPI, rank 0 listens first, because the others ask it where to meet. */
static int join(struct worker *w, const char *address, struct error *err)
{
    int rc = 0;
    if (group_is_lead(&w->group)) {
        TRY(group_offer(&w->group, &w->description, err));
        TRY(listen_at(w, address, err));
    }
    TRY(group_join(&w->group, &w->description, err));
out:
    return rc;
}

/* Makes as much KV as --gpu-memory leaves, equally much on all ranks. */
static int open_kv(struct worker *w, struct error *err)
{
    const struct kv_room_options options = {w->options.gpu_memory, w->options.max_step_tokens};
    int n_blocks = 0, rc = 0;
    TRY(kv_room_find(&options, &w->group, w->backend, verifier_model(w->verifier), &n_blocks, err));
    TRY(verifier_open_kv(w->verifier, n_blocks, err));
    describe_kv(w, n_blocks);
out:
    return rc;
}

/* Loads the weights and makes sure that all ranks have the same ones. */
static int load(struct worker *w, struct verifier_options *vo, struct error *err)
{
    int rc = 0;
    struct copies copies;
    TRY(copies_plan(&copies, &w->group, w->checkpoint, w->backend, err));
    vo->witnessed = copies.witnessed;
    log_line(LOG_LEVEL_INFO, "packing", "rank=%d model=%s", w->group.comm->rank, w->options.model);
    if (w->group.comm->rank == 0) vo->projection = w->head.head;
    TRY(verifier_open(&w->verifier, w->checkpoint, w->group.comm, w->backend, vo, err));
    TRY(copies_check(&copies, &w->group, w->checkpoint, w->backend, verifier_model(w->verifier),
                     &w->description.model_fingerprint, err));
    w->description.projection = model_projection(verifier_model(w->verifier));
    if (vo->n_kv_blocks == 0) TRY(open_kv(w, err));
out:
    return rc;
}

static int open_signals(struct worker *w, struct error *err)
{
    const struct model *model = verifier_model(w->verifier);
    const struct rank_signals_options options = {
        .description = &w->description,
        .version = OUTRIDER_VERSION,
        .collectives = w->group.comm->ops->name,
        .weight_bytes = model_weight_bytes(model),
        .kv_bytes = model_kv_bytes(model),
    };
    return rank_signals_open(&w->signals, &options, err);
}

/* The engine thread has made its first mark, so the listener is there. */
static void on_beat_change(void *arg, bool is_alive)
{
    const struct worker *w = arg;
    struct error err;
    listener_set_live(w->listener, is_alive);
    if (is_alive) {
        log_line(LOG_LEVEL_WARN, "engine_goes_on", "rank=%d", w->group.comm->rank);
    } else if (beat_check(w->beat, &err)) {
        log_line(LOG_LEVEL_ERROR, "engine_hangs", "rank=%d text=\"%s\"", w->group.comm->rank,
                 err.text);
    }
}

/* Before anything that takes long, so that probes are answered meanwhile. */
static int open_probes(struct worker *w, struct error *err)
{
    static const char *const names[] = {"the engine thread"};
    const struct beat_options beat = {
        .names = names, .n_threads = 1, .limit_us = HANG_US, .on_change = on_beat_change, .arg = w};
    char address[ADDRESS_BYTES];
    int rc = 0;
    TRY(beat_open(&w->beat, &beat, err));
    if (!w->options.metrics) return 0;
    TRY(group_address(&w->group, w->options.metrics, address, err));
    rc = probes_open(&w->probes, address, w->beat, err);
out:
    return rc;
}

/* A file of packed weights that cannot be used or written is no error, but the user should know. */
static void show_cache(const struct worker *w)
{
    const struct pack_cache_report *report = model_pack_report(verifier_model(w->verifier));
    if (!report || !report->text[0]) return;
    log_line(LOG_LEVEL_WARN, "pack_cache", "rank=%d state=%s text=\"%s\"", w->group.comm->rank,
             pack_cache_state_name(report->state), report->text);
}

/* Steps have the same bits without the copy, but take longer. */
static void show_left_out(const struct worker *w)
{
    size_t bytes = model_lacks_copy(verifier_model(w->verifier));
    if (!bytes) return;
    log_line(LOG_LEVEL_WARN, "embedding_on_host",
             "rank=%d table_mb=%zu text=\"the GPU has no room for the table of embeddings, so the "
             "host sends the rows of every step: fewer --kv-tokens leave room\"",
             w->group.comm->rank, bytes >> 20);
}

static void show_ready(const struct worker *w, int64_t load_ms)
{
    char pin[PIN_TEXT_BYTES], ends[ENDS_TEXT_BYTES];
    char tensors[TYPE_COUNTS_BYTES], rounded[TYPE_COUNTS_BYTES];
    const struct model *model = verifier_model(w->verifier);
    const struct pack_cache_report *report = model_pack_report(model);
    checkpoint_show_types(w->checkpoint, tensors, rounded);
    log_line(LOG_LEVEL_INFO, "ready",
             "rank=%d ranks=%d collectives=%s address=%s model=%s arithmetic=%s kernels=%s "
             "kernels_reason=\"%s\" threads=%d pin=%s weights_mb=%zu kv_mb=%zu pack_cache=%s "
             "load_ms=%lld ends=%s tensors=%s rounded_to_bf16=%s head=%s metrics=%s",
             w->group.comm->rank, w->group.comm->size, w->group.comm->ops->name,
             listener_address(w->listener), w->options.model, w->description.arithmetic,
             w->description.kernels, w->backend->kernels_reason, w->options.backend.n_threads,
             placement_show(&w->threads.placement, pin, sizeof pin),
             model_weight_bytes(model) >> 20, model_kv_bytes(model) >> 20,
             pack_cache_state_name(report ? report->state : PACK_CACHE_OFF), (long long)load_ms,
             conventions_show_ends(&w->description.ends, ends, sizeof ends), tensors, rounded,
             w->options.head ? w->options.head : "", probes_address(w->probes));
}

int worker_open(struct worker **worker, const struct worker_options *options, struct error *err)
{
    int rc = 0;
    struct worker *w = NULL;
    struct verifier_options vo;
    char address[ADDRESS_BYTES];
    int64_t start_ms = clock_now_ms();
    *worker = NULL;
    TRY(mem_array(&w, 1, sizeof *w, err));
    w->options = *options;
    step_limit_init(&w->limit, (int64_t)options->step_timeout_s * 1000000);
    if (options->group.n_ranks > 1 && strcmp(options->backend.device, "cpu") == 0) {
        rc = error_set(err, ERR_ARGUMENT,
                       "--ranks %d on the CPU: ranks without mpirun sum over NCCL, which needs "
                       "--device cuda; on CPUs start the ranks with mpirun",
                       options->group.n_ranks);
        goto out;
    }
    if (options->group.collectives == GROUP_AUTO && strcmp(options->backend.device, "cuda") == 0) {
        w->options.group.collectives = GROUP_NCCL; /* each rank has the GPU of its number */
    }
    TRY(group_open(&w->group, &w->options.group, err));
    TRY(group_address(&w->group, options->group.listen, address, err));
    TRY(open_probes(w, err));
    TRY(threads_choose(&w->threads, &w->options.backend, &w->options.pin_wish, &w->group, err));
    TRY(open_parts(w, &vo, err));
    TRY(arena_open(&w->arena, DECODE_ARENA_BYTES, err));
    TRY(queue_open(&w->queue, QUEUE_STEPS, err));
    TRY(watchdog_open(&w->dog, on_stuck, w, err));
    TRY(join(w, address, err));
    if (w->listener) listener_set_complete(w->listener);
    /* On the engine thread's own CPU, so that memory is allocated near the thread that reads it. */
    TRY(threads_enter(&w->threads, err));
    TRY(load(w, &vo, err));
    threads_leave(&w->threads);
    TRY(open_signals(w, err));
    show_cache(w);
    show_left_out(w);
    if (!w->listener) TRY(listen_at(w, address, err));
    TRY(listener_describe(w->listener, &w->description, err));
    listener_set_serving(w->listener, true); /* before a coordinator learns the address */
    TRY(group_place(&w->group, listener_address(w->listener), err));
    listener_expect_members(w->listener, group_n_members(&w->group));
    TRY(group_watch(&w->group, err));
    listener_set_complete(w->listener);
    probes_set_serving(w->probes, w->signals);
    TRY(group_announce(&w->group, listener_address(w->listener), err));
    show_ready(w, clock_now_ms() - start_ms);
    *worker = w;
    w = NULL;
out:
    /* Under MPI a failed start is not cleaned up, because MPI_Finalize would wait for peers that
     * wait for us. The process ends next, and mpirun ends the others. */
    if (!rc || !w || !w->group.world) worker_close(w);
    return rc;
}

static void empty(struct queue *queue)
{
    struct error err;
    void *item;
    while (queue_pop(queue, &item, 0, &err) == 0) {
        listened_free(item);
    }
}

void worker_close(struct worker *w)
{
    if (!w) return;
    probes_close(w->probes);
    beat_close(w->beat);
    listener_close(w->listener, CLOSE_GRACE_MS);
    if (w->queue) empty(w->queue);
    queue_close(w->queue);
    watchdog_close(w->dog);
    verifier_close(w->verifier);
    if (w->backend) w->backend->ops->close(w->backend);
    tokenizer_close(w->tokenizer);
    held_head_close(&w->head);
    checkpoint_close(w->checkpoint);
    arena_close(&w->arena);
    buffer_free(&w->out);
    buffer_free(&w->conventions);
    rank_signals_close(w->signals);
    group_close(&w->group);
    free(w);
}

/* The coordinator watches this rank's health. If another rank of the group ends first, the
 * coordinator lets go of all of them, so that is no failure. */
static void drain_stream(struct worker *w)
{
    int64_t deadline_us = clock_now_us() + (int64_t)w->options.drain_timeout_s * 1000000;
    probes_set_draining(w->probes);
    if (!listener_drain(w->listener)) return;
    log_line(LOG_LEVEL_INFO, "draining", "rank=%d drain_timeout_s=%d", w->group.comm->rank,
             w->options.drain_timeout_s);
    if (listener_wait_drained(w->listener, deadline_us)) return;
    log_line(LOG_LEVEL_WARN, "drain_timeout",
             "rank=%d text=\"the coordinator has not let go in time\"", w->group.comm->rank);
}

void worker_stop(struct worker *w)
{
    group_leave(&w->group);
    listener_set_leaving(w->listener);
    if (w->options.drain_timeout_s > 0) drain_stream(w);
    queue_shut(w->queue);
    process_hasten(WORKER_STOP_GRACE_MS);
}

/* Runs the step within its time limit. Errors: only those that end the group. */
static int run_step(struct worker *w, const struct listened *item, const struct step *step,
                    struct step_reply *reply, int64_t start_us, struct error *err)
{
    const struct step_work work = step_work_of(step);
    w->step = (struct step_underway){.id = step->id,
                                     .n_lanes = step->n_lanes,
                                     .limit_us = step_limit_us(&w->limit, &work),
                                     .size = work.n};
    watchdog_arm(w->dog, w->step.limit_us);
    beat_excuse(w->beat, 0);
    /* The stream may have ended while the step was in the queue, before the watchdog was armed. */
    if (rpc_call_is_cancelled(item->call)) watchdog_hasten(w->dog, LISTENER_ORPHAN_US);
    int rc = verifier_step(w->verifier, step, reply, err);
    beat_mark(w->beat, 0);
    watchdog_disarm(w->dog);
    if (rc) return rc;
    int64_t took_us = clock_now_us() - start_us;
    bool was_paused = took_us > w->step.limit_us; /* which says nothing of steps */
    if (!reply->error_text && !was_paused) step_limit_observe(&w->limit, &work, took_us);
    reply->queue_us = (uint32_t)(start_us - item->received_us);
    return 0;
}

/* Sends the reply, and then records the step. When the coordinator is gone or does not read, the
 * group goes on. */
static void answer_step(struct worker *w, const struct listened *item, const struct step *step,
                        const struct step_reply *reply, int64_t start_us)
{
    struct error err;
    int rc = step_reply_encode(&w->out, reply, &err);
    int64_t total_us = clock_now_us() - start_us;
    listener_expect(w->listener);
    if (!rc) rc = rpc_call_send(item->call, w->out.data, w->out.len, &err);
    if (rc) {
        rank_signals_lost_reply(w->signals);
        rpc_call_finish(item->call, rc, err.text);
    }
    const struct rank_signals_step record = {
        .step = step,
        .reply = reply,
        .bytes_in = item->len,
        .bytes_out = w->out.len,
        .total_us = total_us,
        .n_blocks_written = verifier_blocks_written(w->verifier),
    };
    rank_signals_step(w->signals, &record);
}

/* Decodes the step, runs it and answers. Errors: only those that end the group. */
static int handle_step(struct worker *w, const struct listened *item, struct error *err)
{
    struct step step;
    struct step_reply reply;
    int64_t start_us = clock_now_us();
    arena_reset(&w->arena);
    if (step_decode(item->data, item->len, &w->arena, &step, err)) {
        rank_signals_bad_message(w->signals);
        rpc_call_finish(item->call, err->code, err->text);
        return 0;
    }
    int rc = run_step(w, item, &step, &reply, start_us, err);
    if (!rc) answer_step(w, item, &step, &reply, start_us);
    return rc;
}

int worker_run(struct worker *w, struct error *err)
{
    void *popped;
    int rc = threads_enter(&w->threads, err);
    if (rc) return rc;
    w->has_engine_clock = pthread_getcpuclockid(pthread_self(), &w->engine_clock) == 0;
    for (;;) {
        listener_wait(w->listener);
        rc = queue_pop(w->queue, &popped, 0, err);
        if (rc) return rc == ERR_CLOSED ? 0 : rc;
        struct listened *item = popped;
        if (item->kind == LISTENED_BEGIN) {
            verifier_reset(w->verifier);
            rank_signals_stream(w->signals);
        } else {
            rc = handle_step(w, item, err);
        }
        listened_free(item);
        if (rc) return error_wrap(err, "rank %d", w->group.comm->rank);
    }
}
