/* Opens the coordinator's modules and connects them. Threads: the one that looks for groups (the
 * caller of coordinator_run), an engine for each group, the gateway's network thread, the intake's,
 * and the draft's team. The network thread hands messages to the intake, which decodes them and
 * fills the queues of the engines; those share out the draft's work to their teams. */
#include "coordinator/coordinator.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/least.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/system/hub_cache.h"
#include "base/threads/pool.h"
#include "comm/roster.h"
#include "coordinator/credentials.h"
#include "coordinator/draft/options.h"
#include "coordinator/engine/served_tokens.h"
#include "coordinator/fleet.h"
#include "coordinator/grpc/gateway.h"
#include "coordinator/job/sender.h"
#include "coordinator/job/served_chat.h"
#include "coordinator/job/served_model.h"
#include "coordinator/openai/api.h"
#include "coordinator/sequence/sequence.h"
#include "coordinator/store/job_watch.h"
#include "coordinator/store/jobs.h"
#include "http/metrics_server.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/layers.h"
#include "model/checkpoint/served_name.h"
#include "model/gguf/gguf.h"
#include "model/look_ahead.h"
#include "model/tokenizer/guard.h"

enum {
    CONTROL_QUEUE = 64,
    INTAKE_THREADS = 2, /* so that one long text does not delay everybody's next request */
    INTAKE_QUEUE = 4096,
    CLOSE_GRACE_MS = 300, /* for clients to read what has ended, if there is no more time left */
    HANG_US = 30000000,   /* a thread hangs without a turn; a step of the draft may take seconds */
    EVENTS_IDLE_S = 15,   /* proxies close what is silent for longer */
    PIN_TEXT_BYTES = 256
};

static const struct credentials no_credentials;

struct coordinator {
    struct coordinator_options options;
    struct topology topology;
    struct placement placement; /* of the draft's threads */
    struct roster_entry *roster;
    struct target_list list; /* of --target */
    struct tokenizer *tok;
    const char *look_ahead;                 /* a folder of look-ahead embeddings; NULL = none */
    int n_drafts;                           /* draft models */
    const char *drafts[PLANNER_MODELS];     /* as drafter_find knows them; those of `models` */
    struct drafter *models[PLANNER_MODELS]; /* of the first engine */
    struct drafter_options
        options_of[PLANNER_MODELS];          /* of them, and of those of further engines */
    char *head_name;                         /* one of `drafts` */
    char draft_name[COORDINATOR_NAME_BYTES]; /* what clients are told; "" = no draft */
    struct signals *signals;
    struct reporter *reporter;
    struct served_tokens *served; /* NULL: nothing is counted */
    struct groups groups;
    struct beat *beat; /* of the engines and the search for groups */
    struct queue *control;
    struct budget budget; /* of the memory of requests */
    struct pool *intake;
    struct jobs *submitted;
    struct admission admission; /* of all doors */
    struct job_watch *watch;
    struct sender *sender;
    struct served_model model; /* for the doors */
    struct served_chat chat;
    struct gateway *gateway;
    struct openai_api *openai;      /* NULL = there is no HTTP door */
    struct metrics_server *metrics; /* NULL: --metrics is not given */
    struct fleet *fleet;
    bool has_been_ready;         /* inside the lock of groups */
    atomic_bool is_draining;     /* no door says that it serves any more */
    atomic_llong drain_until_us; /* what has ended may be read until then; 0 = it does not drain */
};

/* Asks the workers of the same mpirun for their addresses. */
static int learn_addresses(struct coordinator *c, struct error *err)
{
    int rc = 0;
    struct comm *world = c->options.world;
    TRY(mem_array(&c->roster, (size_t)world->size, sizeof *c->roster, err));
    TRY(roster_share(world, ROSTER_COORDINATOR, 0, "", c->roster, err));
    for (int i = 0; i < world->size; i++) {
        if (c->roster[i].role != ROSTER_WORKER) continue;
        TRY(target_list_add_address(&c->list, c->roster[i].address, err));
    }
out:
    return rc;
}

/* Lists the draft models: a draft, and after it a head, which has an option of its own. */
static int name_drafts(struct coordinator *c, struct error *err)
{
    const char *prefix = "head:";
    int rc = 0;
    if (strcmp(c->options.draft, "none") != 0) {
        if (checkpoint_is_head_folder(c->options.draft)) {
            return error_set(err, ERR_ARGUMENT,
                             "%s is a head: name it with --head in place of --draft, and the "
                             "folder of its target with --tokenizer",
                             c->options.draft);
        }
        c->drafts[c->n_drafts++] = c->options.draft;
    }
    if (c->options.head && look_ahead_is_folder(c->options.head)) {
        c->look_ahead =
            c->options.head; /* the target's workers guess, and nothing is opened here */
        return 0;
    }
    if (!c->options.head) return 0;
    size_t size = strlen(prefix) + strlen(c->options.head) + 1;
    TRY(mem_array(&c->head_name, size, 1, err));
    snprintf(c->head_name, size, "%s%s", prefix, c->options.head);
    c->drafts[c->n_drafts++] = c->head_name;
out:
    return rc;
}

/* A draft whose tokenizer is its target's, too; NULL: there is none. */
static const char *draft_with_tokenizer(const struct coordinator *c)
{
    for (int i = 0; i < c->n_drafts; i++) {
        if (drafter_find(c->drafts[i])->has_tokenizer) return c->drafts[i];
    }
    return NULL;
}

/* The folder, or the synthetic name, whose tokenizer is ours; NULL = the options name none. */
static const char *tokenizer_name(const struct coordinator *c)
{
    return c->options.tokenizer ? c->options.tokenizer : draft_with_tokenizer(c);
}

static int open_synthetic_tokenizer(struct coordinator *c, const char *name, struct error *err)
{
    struct checkpoint *ck = NULL;
    int rc = 0;
    TRY(checkpoint_open(&ck, name, err));
    TRY(tokenizer_open_bytes(&c->tok, checkpoint_config(ck)->vocab_size, err));
out:
    checkpoint_close(ck);
    return rc;
}

/* A model's folder; NULL: it is a synthetic one, or there is none. The caller frees it. */
static int folder_of(char **folder, const char *name, struct error *err)
{
    char *model = NULL, path[HUB_PATH_BYTES];
    int rc = 0;
    *folder = NULL;
    if (!name || strncmp(name, "synthetic:", 10) == 0) return 0;
    TRY(layers_strip(&model, name, err));
    TRY(hub_cache_resolve(path, model, err));
    *folder = strdup(path);
    if (!*folder) rc = error_set(err, ERR_NO_MEMORY, "no memory for the name of a folder");
out:
    free(model);
    return rc;
}

static int open_chat(struct coordinator *c, struct error *err)
{
    if (c->options.guards_users && !guard_is_possible(c->tok)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "--user-special-tokens off: this tokenizer has a special token of one "
                         "character, or one that is found in normalized text only, which cannot "
                         "be kept apart; leave the option out");
    }
    char *tokenizer = NULL, *draft = NULL;
    int rc = 0;
    TRY(folder_of(&tokenizer, c->options.tokenizer, err));
    TRY(folder_of(&draft, draft_with_tokenizer(c), err));
    const struct served_chat_options options = {
        .file = c->options.chat_template, .tokenizer = tokenizer, .draft = draft};
    TRY(served_chat_open(&c->chat, &options, err));
out:
    free(tokenizer);
    free(draft);
    return rc;
}

static void take_conventions(void *coordinator, const struct target_conventions *conventions)
{
    struct coordinator *c = coordinator;
    served_chat_take_target(&c->chat, conventions);
}

static int open_tokenizer(struct coordinator *c, struct error *err)
{
    int rc = 0;
    const char *name = tokenizer_name(c);
    char *folder = NULL;
    if (!name) {
        return error_set(err, ERR_ARGUMENT,
                         "--tokenizer is missing: --draft %s brings none; name the target's folder",
                         c->options.draft);
    }
    bool is_synthetic = strncmp(name, "synthetic:", 10) == 0;
    TRY(layers_strip(&folder, name, err));
    if (is_synthetic) {
        TRY(open_synthetic_tokenizer(c, name, err));
    } else {
        TRY(tokenizer_open(&c->tok, folder, err));
        const char *remark = tokenizer_remark(c->tok);
        if (remark) {
            log_line(LOG_LEVEL_WARN, "model_remark", "tokenizer=%s text=\"%s\"", folder, remark);
        }
    }
out:
    free(folder);
    return rc;
}

/* Opens a GGUF file; a name of another kind, or of no file, is left to those who read it. */
static struct gguf *hold_file(const char *name)
{
    struct gguf *file = NULL;
    struct error ignored;
    char *path = NULL;
    if (folder_of(&path, name, &ignored) == 0 && path && gguf_is_file(path)) {
        (void)gguf_open(&file, path, &ignored);
    }
    free(path);
    return file;
}

/* Options of draft model number i. A list of tokens is for a draft, where there is one besides a
 * head. */
static struct drafter_options drafter_options(const struct coordinator *c, int i)
{
    return (struct drafter_options){
        .name = c->drafts[i],
        .target = c->options.tokenizer,
        .backend = c->options.backend,
        .n_sequences = c->options.n_sequences,
        .support = c->options.support,
        .kv_tokens = c->options.draft_kv_tokens,
        .vocabulary = i == 0 ? c->options.draft_vocabulary : NULL,
        .is_strict = c->options.is_strict_config,
    };
}

/* The number of threads that the draft models can use, one after the other, at most the cores and
 * the quota; one if there is none. */
static int draft_threads(const struct coordinator *c, int *n, struct error *err)
{
    int n_cores = topology_cores(&c->topology), quota = c->topology.quota_cpus, rc = 0;
    *n = 1;
    if (quota && quota < n_cores) n_cores = quota;
    if (n_cores > PLACEMENT_THREADS_MAX) n_cores = PLACEMENT_THREADS_MAX;
    for (int i = 0; i < c->n_drafts; i++) {
        const struct drafter_options options = drafter_options(c, i);
        int n_own;
        TRY(drafter_count_threads(&options, n_cores, &n_own, err));
        *n = most(*n, n_own);
    }
out:
    return rc;
}

static int place_drafter(struct coordinator *c, struct error *err)
{
    struct backend_options *backend = &c->options.backend;
    struct placement_wish wish = c->options.pin_wish;
    int rc = 0;
    topology_read(&c->topology);
    wish.n_sharing = 1;
    wish.n_threads = backend->n_threads;
    if (backend->auto_threads && wish.pin == PIN_LIST) {
        wish.n_threads = 0; /* as many as are listed */
    } else if (backend->auto_threads) {
        TRY(draft_threads(c, &wish.n_threads, err));
    }
    TRY(placement_choose(&c->placement, &c->topology, &wish, err));
    backend->n_threads = c->placement.n_threads;
    backend->cpus = c->placement.is_pinned ? c->placement.cpus : NULL;
out:
    return rc;
}

static int open_drafters(struct coordinator *c, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < c->n_drafts; i++) {
        c->options_of[i] = drafter_options(c, i);
        TRY(drafter_open(&c->models[i], &c->options_of[i], c->tok, err));
    }
    if (c->n_drafts > 0 || !c->options.draft_vocabulary) return 0;
    return error_set(err, ERR_ARGUMENT, "--draft-vocab %.60s is given, but there is no draft",
                     c->options.draft_vocabulary);
out:
    return rc;
}

int coordinator_check(const struct coordinator_options *options, struct error *err)
{
    struct coordinator c = {.options = *options};
    struct gguf *of_tokenizer = NULL, *of_draft = NULL;
    struct look_ahead look_ahead = {0};
    int rc = 0;
    TRY(name_drafts(&c, err));
    if (c.look_ahead) TRY(look_ahead_open(&look_ahead, c.look_ahead, err));
    of_tokenizer = hold_file(tokenizer_name(&c));
    of_draft = hold_file(draft_with_tokenizer(&c));
    TRY(open_tokenizer(&c, err));
    for (int i = 0; i < c.n_drafts; i++) {
        const struct drafter_options draft = drafter_options(&c, i);
        TRY(drafter_check(&draft, c.tok, err));
    }
    if (c.n_drafts == 0) TRY(open_drafters(&c, err)); /* no option may speak of one */
out:
    tokenizer_close(c.tok);
    gguf_close(of_tokenizer);
    gguf_close(of_draft);
    look_ahead_close(&look_ahead);
    free(c.head_name);
    return rc;
}

static void show_ready(const struct coordinator *c);

/* Says whether a request would be served: the doors tell health checks, and the store takes jobs or
 * refuses them. group: one that serves, or the last that did. */
static void set_serving(void *coordinator, enum groups_service service, const char *why,
                        const struct target_description *group)
{
    struct coordinator *c = coordinator;
    if (c->is_draining) {
        service = GROUPS_ABSENT;
        why = "the coordinator is shutting down";
    }
    signals_set(c->signals, SIGNAL_TARGET_UP, 0, service != GROUPS_ABSENT ? 1 : 0);
    jobs_set_serving(c->submitted, service != GROUPS_ABSENT, why);
    gateway_set_serving(c->gateway, service == GROUPS_SERVING);
    served_model_set(&c->model, service, why, group);
    if (service == GROUPS_ABSENT || c->has_been_ready) return;
    c->has_been_ready = true;
    show_ready(c);
}

static int open_submitted(struct coordinator *c, struct error *err)
{
    struct jobs_options options = {.n_kept = c->options.jobs_kept,
                                   .bytes_max = (size_t)c->options.jobs_bytes};
    if (getrandom(&options.run, sizeof options.run, 0) < 0) {
        options.run = (uint64_t)clock_now_ns();
    }
    int rc = jobs_open(&c->submitted, &options, err);
    if (!rc) jobs_set_serving(c->submitted, false, "the coordinator is starting");
    return rc;
}

/* Fills in the metrics of parts that count for themselves. */
static void look(void *coordinator, struct signals *s)
{
    struct coordinator *c = coordinator;
    struct signals_load load;
    float alpha[GROUPS_ALPHAS];
    groups_add_loads(&c->groups, &load, alpha);
    signals_set_load(s, &load);
    int64_t n_again = load.n_waiting_again;
    int n_jobs;
    size_t n_bytes;
    jobs_size(c->submitted, &n_jobs, &n_bytes);
    signals_set(s, SIGNAL_WAITING, 0, atomic_load(&c->admission.n_waiting) + n_again);
    signals_set(s, SIGNAL_QUEUE_CAPACITY, 0, c->options.queue_capacity);
    signals_set(s, SIGNAL_QUEUE_BYTES, 0, (int64_t)budget_used(&c->budget));
    signals_set(s, SIGNAL_QUEUE_BYTES_LIMIT, 0, c->options.queue_bytes);
    signals_set(s, SIGNAL_STORED_JOBS, 0, n_jobs);
    signals_set(s, SIGNAL_STORED_BYTES, 0, (int64_t)n_bytes);
    signals_set(s, SIGNAL_UNAUTHENTICATED, 0, keys_refused(c->options.credentials->keys));
}

static int open_signals(struct coordinator *c, struct error *err)
{
    for (int i = 0; i < c->n_drafts; i++) {
        const char *name = c->drafts[i] == c->head_name ? c->options.head : c->drafts[i];
        char own[COORDINATOR_NAME_BYTES];
        size_t len = strlen(c->draft_name);
        checkpoint_served_name(name, own, sizeof own);
        snprintf(c->draft_name + len, sizeof c->draft_name - len, "%s%s", i > 0 ? "+" : "", own);
    }
    const struct signals_options options = {
        .version = OUTRIDER_VERSION,
        .served_name = c->options.served_name,
        .draft_name = c->draft_name,
        .has_vllm = c->options.has_vllm_metrics,
        .look = look,
        .look_arg = c,
    };
    return signals_open(&c->signals, &options, err);
}

static int open_reporter(struct coordinator *c, struct error *err)
{
    const struct reporter_options options = {
        .signals = c->signals,
        .has_jobs = c->options.log_jobs,
        .load_s = c->options.log_load_s,
    };
    return reporter_open(&c->reporter, &options, err);
}

static int write_metrics(void *coordinator, struct buffer *out, struct error *err)
{
    struct coordinator *c = coordinator;
    int rc = signals_write(c->signals, out, err);
    return rc ? rc : groups_write_metrics(&c->groups, signals_labels(c->signals), out, err);
}

static int tell_ready(void *coordinator, struct error *err)
{
    struct coordinator *c = coordinator;
    struct served_model_info info;
    served_model_get(&c->model, &info);
    return info.is_ready ? 0 : error_set(err, ERR_UNAVAILABLE, "%s\n", info.why);
}

static int tell_live(void *coordinator, struct error *err)
{
    struct coordinator *c = coordinator;
    return beat_check(c->beat, err) ? error_wrap(err, "not live") : 0;
}

static void set_live(void *coordinator, bool is_live)
{
    struct coordinator *c = coordinator;
    gateway_set_live(c->gateway, is_live);
}

static int open_beat(struct coordinator *c, struct error *err)
{
    const struct beat_options options = {
        .names = fleet_thread_names,
        .n_threads = FLEET_THREADS,
        .limit_us = HANG_US,
        .on_change = set_live,
        .arg = c,
    };
    return beat_open(&c->beat, &options, err);
}

static int open_metrics(struct coordinator *c, struct error *err)
{
    const struct metrics_server_options options = {.address = c->options.metrics,
                                                   .write = write_metrics,
                                                   .ready = tell_ready,
                                                   .live = tell_live,
                                                   .arg = c};
    return options.address ? metrics_server_open(&c->metrics, &options, err) : 0;
}

static void flush_answers(void *sender, bool has_time)
{
    sender_flush(sender, has_time);
}

static int open_http(struct coordinator *c, struct error *err)
{
    const struct openai_options options = {
        .address = c->options.http,
        .certificates = c->options.credentials->door.certificates,
        .keys = c->options.credentials->keys,
        .origin = c->options.cors_origin,
        .is_insecure = c->options.credentials->door.is_insecure,
        .max_connections = c->options.http_connections,
        .reader_timeout_s = c->options.reader_timeout_s,
        .n_stop = c->options.max_stops,
        .n = c->options.max_texts,
        .admission = &c->admission,
        .jobs = c->submitted,
        .watch = c->watch,
        .sender = c->sender,
        .model = &c->model,
        .beat = c->beat,
        .write_metrics = write_metrics,
        .metrics_arg = c,
    };
    if (!c->options.http || strcmp(c->options.http, "off") == 0) return 0;
    int rc = openai_open(&c->openai, &options, err);
    return rc ? error_wrap(err, "--http") : 0;
}

static int open_fleet(struct coordinator *c, struct error *err)
{
    const struct engine_options engine = {
        .groups = &c->groups,
        .beat = c->beat,
        .tok = c->tok,
        .served = c->served,
        .signals = c->signals,
        .reporter = c->reporter,
        .control = c->control,
        .admission = &c->admission,
        .flush_answers = flush_answers,
        .flush_arg = c->sender,
        .take_conventions = take_conventions,
        .conventions_arg = c,
        .ignores_generation_config = c->options.ignores_generation_config,
        .client_weights = c->options.client_weights,
        .n_client_weights = c->options.n_client_weights,
        .n_sequences = c->options.n_sequences,
        .step_stretch = c->options.step_stretch,
        .calibrate_us = (int64_t)c->options.calibrate_ms * 1000,
        .draft_staged = c->options.draft_staged,
        .lookup_append = c->options.lookup_append,
        .drain_us = (int64_t)c->options.drain_timeout_s * 1000000,
        .reader_timeout_us = (int64_t)c->options.reader_timeout_s * 1000000,
        .n_draft = c->options.n_draft,
        .strategy = c->options.strategy,
        .threshold = c->options.threshold,
        .trees = c->options.trees,
        .tree_rule = c->options.tree_rule,
        .chat = &c->chat,
        .head_unchecked = c->options.head_unchecked,
        .pack_cache = c->options.backend.pack_cache,
        .drafts = {c->n_drafts > 0 ? c->drafts[0] : "none", c->drafts[1]},
        .target_name = c->options.served_name,
        .draft_name = c->draft_name,
        .draft_support = c->options.support,
        .queue_capacity = c->options.queue_capacity,
    };
    const struct fleet_options fleet = {
        .groups = &c->groups,
        .list = &c->list,
        .certificates = c->options.credentials->target_certificates,
        .server_name = c->options.credentials->target_name,
        .group_key = group_key_text(&c->options.credentials->group_key),
        .engine = engine,
        .models = c->models,
        .drafts = c->options_of,
        .n_models = c->n_drafts,
        .lookup = {.lookup = c->options.lookup,
                   .n_sequences = c->options.n_sequences,
                   .store_tokens = c->options.store_tokens,
                   .reads_predictions = true,
                   .look_ahead = c->look_ahead,
                   .is_shared = c->options.store_is_shared,
                   .tok = c->tok},
        .tokenizer_fingerprint = tokenizer_fingerprint(c->tok),
        .step_timeout_s = c->options.step_timeout_s,
        .n_groups = c->options.n_groups,
        .cpu = c->placement.is_pinned ? c->placement.cpus[0] : -1,
        .queue_capacity = c->options.queue_capacity,
    };
    return fleet_open(&c->fleet, &fleet, err);
}

static int open_parts(struct coordinator *c, struct error *err)
{
    int rc = 0;
    TRY(open_submitted(c, err));
    TRY(open_signals(c, err));
    TRY(queue_open(&c->control, CONTROL_QUEUE, err));
    budget_init(&c->budget, (size_t)c->options.queue_bytes, "--queue-bytes");
    TRY(pool_open(&c->intake, INTAKE_THREADS, INTAKE_QUEUE, err));
    c->admission = (struct admission){
        .tok = c->tok,
        .groups = &c->groups,
        .control = c->control,
        .budget = &c->budget,
        .pool = c->intake,
        .signals = c->signals,
        .max_prompt_bytes = c->options.max_prompt_bytes,
        .chat = &c->chat,
        .guards_users = c->options.guards_users,
        .serves_features = c->options.serves_features,
        .capacity = c->options.queue_capacity,
    };
    atomic_init(&c->admission.n_vocab, tokenizer_vocab_size(c->tok));
    const int64_t reader_timeout_us = (int64_t)c->options.reader_timeout_s * 1000000;
    const struct job_watch_options watch = {.reader_timeout_us = reader_timeout_us,
                                            .idle_us = (int64_t)EVENTS_IDLE_S * 1000000};
    TRY(job_watch_open(&c->watch, c->submitted, &watch, err));
    TRY(sender_open(&c->sender, err));
    const struct gateway_options gateway = {
        .address = c->options.listen,
        .certificates = c->options.credentials->door.certificates,
        .keys = c->options.credentials->keys,
        .admission = &c->admission,
        .sender = c->sender,
        .jobs = c->submitted,
        .watch = c->watch,
    };
    TRY(gateway_open(&c->gateway, &gateway, err));
    TRY(open_beat(c, err));
    TRY(open_http(c, err));
    TRY(open_reporter(c, err));
    TRY(open_metrics(c, err));
    TRY(open_fleet(c, err));
    log_line(LOG_LEVEL_INFO, "listening", "address=%s http=%s metrics=%s",
             gateway_address(c->gateway), c->openai ? openai_address(c->openai) : "off",
             c->metrics ? metrics_server_address(c->metrics) : "");
    groups_listen(&c->groups, set_serving, c);
out:
    return rc;
}

/* When a request can be served for the first time. */
static void show_ready(const struct coordinator *c)
{
    char pin[PIN_TEXT_BYTES];
    const struct drafter *first = c->models[0];
    bool has_kernels = first && first->kernels;
    bool guesses = first || strcmp(c->options.lookup, "none") != 0;
    log_line(LOG_LEVEL_INFO, "ready",
             "address=%s http=%s draft=%s%s%s lookup=%s draft_vocab=%d draft_passes=%s strategy=%s "
             "k=%d workers=%d kernels=%s "
             "kernels_reason=\"%s\" threads=%d pin=%s metrics=%s",
             gateway_address(c->gateway), c->openai ? openai_address(c->openai) : "off",
             first ? c->drafts[0] : "none", c->n_drafts > 1 ? "," : "",
             c->n_drafts > 1 ? c->drafts[1] : "", c->options.lookup, first ? first->n_choices : 0,
             !first               ? "none"
             : first->is_parallel ? "one"
                                  : "each",
             strategy_names[c->options.strategy],
             guesses ? sequence_default_k(c->options.strategy, c->options.n_draft) : 0,
             c->list.n_addresses, has_kernels ? first->kernels : "none",
             has_kernels ? first->kernels_reason : "there is no draft model",
             c->placement.n_threads, placement_show(&c->placement, pin, sizeof pin),
             c->metrics ? metrics_server_address(c->metrics) : "");
}

int coordinator_open(struct coordinator **coordinator, const struct coordinator_options *options,
                     struct error *err)
{
    int rc = 0;
    struct coordinator *c = NULL;
    struct gguf *of_tokenizer = NULL, *of_draft = NULL;
    *coordinator = NULL;
    TRY(mem_array(&c, 1, sizeof *c, err));
    c->options = *options;
    if (!c->options.credentials) c->options.credentials = &no_credentials;
    if (!c->options.lookup) c->options.lookup = "none";
    served_model_open(&c->model, options->served_name);
    groups_open(&c->groups);
    TRY(name_drafts(c, err));
    /* Several parts read these files; while they are open, each is parsed once. */
    of_tokenizer = hold_file(tokenizer_name(c));
    of_draft = hold_file(draft_with_tokenizer(c));
    TRY(open_tokenizer(c, err));
    TRY(open_chat(c, err));
    TRY(place_drafter(c, err));
    TRY(open_drafters(c, err));
    if (options->count_tokens)
        TRY(served_tokens_open(&c->served, options->count_tokens, c->tok, err));
    if (options->targets) c->list = *options->targets;
    if (options->world) TRY(learn_addresses(c, err));
    TRY(open_parts(c, err));
    *coordinator = c;
    c = NULL;
out:
    gguf_close(of_tokenizer);
    gguf_close(of_draft);
    coordinator_close(c);
    return rc;
}

/* Ends the requests to the coordinator itself when no engine is left to answer them. */
static void end_control(struct coordinator *c)
{
    struct error err, why;
    void *item;
    error_set(&why, ERR_UNAVAILABLE, "the coordinator is shutting down");
    queue_shut(c->control);
    while (queue_pop(c->control, &item, 0, &err) == 0) {
        job_end(item, JOB_END_SHUTDOWN, why.code, &why);
        job_free(item);
    }
    sender_flush(c->sender, false);
}

int coordinator_run(struct coordinator *c, struct error *err)
{
    int rc = fleet_run(c->fleet, err);
    end_control(c);
    return rc;
}

/* The doors say at once that nothing new is taken, whatever the engine is doing. */
void coordinator_stop(struct coordinator *c)
{
    c->drain_until_us = clock_now_us() + (int64_t)c->options.drain_timeout_s * 1000000;
    c->is_draining = true;
    groups_set_stopping(&c->groups, "the coordinator is shutting down");
    fleet_stop(c->fleet);
}

/* The time that is left for answers that have ended to be read. */
static int grace_ms(const struct coordinator *c)
{
    int64_t left_ms = (c->drain_until_us - clock_now_us()) / 1000;
    return left_ms > CLOSE_GRACE_MS ? (int)left_ms : CLOSE_GRACE_MS;
}

void coordinator_close(struct coordinator *c)
{
    if (!c) return;
    fleet_end(c->fleet);
    metrics_server_close(c->metrics); /* its pages look at all of the others */
    pool_end(c->intake);     /* its tasks use the gateway, whose calls push until they end */
    sender_close(c->sender); /* every answer has left before calls are cut off */
    /* Every job has ended: those who watch are told of it, and then the doors, each as long as its
     * clients read, at most until the drain's deadline. */
    job_watch_drain(c->watch, clock_now_us() + (int64_t)grace_ms(c) * 1000);
    job_watch_end(c->watch);
    openai_close(c->openai, grace_ms(c));
    beat_close(c->beat); /* tells the gateway */
    gateway_close(c->gateway, grace_ms(c));
    job_watch_close(c->watch);
    pool_close(c->intake);
    fleet_close(c->fleet);       /* its jobs answer into the store, and are reported */
    reporter_close(c->reporter); /* looks at the store */
    jobs_close(c->submitted);
    signals_close(c->signals);
    served_tokens_close(c->served);
    queue_close(c->control);
    for (int i = 0; i < c->n_drafts; i++) {
        drafter_close(c->models[i]);
    }
    served_chat_close(&c->chat);
    tokenizer_close(c->tok);
    served_model_close(&c->model);
    groups_close(&c->groups);
    free(c->roster);
    free(c->head_name);
    free(c);
}
