/* Opens the coordinator's modules and connects them. Threads: the engine thread (the caller of
 * coordinator_run), the gateway's network thread, the intake's, and the draft's team. The network
 * thread hands messages to the intake, which decodes them and fills the queues of the engine
 * thread; that one shares out the draft's work to the team. */
#include "coordinator/coordinator.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/pool.h"
#include "comm/roster.h"
#include "coordinator/engine.h"
#include "coordinator/gateway.h"
#include "coordinator/grpc_sender.h"
#include "coordinator/jobs.h"
#include "coordinator/sequence.h"
#include "coordinator/served_tokens.h"
#include "model/checkpoint/served_name.h"

enum {
    CONTROL_QUEUE = 64,
    INTAKE_THREADS = 2, /* so that one long text does not delay everybody's next request */
    INTAKE_QUEUE = 4096,
    CLOSE_GRACE_MS = 300,
    PIN_TEXT_BYTES = 256
};

struct coordinator {
    struct coordinator_options options;
    struct topology topology;
    struct placement placement; /* of the draft's threads */
    struct roster_entry *roster;
    char list[COORDINATOR_LIST_BYTES]; /* --target, cut into words */
    const char *addresses[RANKS_MAX];
    int n_addresses;
    struct tokenizer *tok;
    struct drafter *drafter;
    char draft_name[COORDINATOR_NAME_BYTES]; /* what clients are told; "" = no draft */
    struct served_tokens *served;            /* NULL: nothing is counted */
    struct target *target;
    struct queue *jobs, *control;
    struct budget budget; /* of the memory of requests */
    struct pool *intake;
    struct jobs *submitted;
    struct admission admission; /* of all doors */
    struct sender *sender;      /* of the answers on gRPC */
    struct gateway *gateway;
    struct engine *engine;
};

static int add_address(struct coordinator *c, const char *address, struct error *err)
{
    if (c->n_addresses == RANKS_MAX) {
        return error_set(err, ERR_ARGUMENT, "more than %d worker addresses", RANKS_MAX);
    }
    for (int i = 0; i < c->n_addresses; i++) {
        if (strcmp(c->addresses[i], address) == 0) {
            return error_set(err, ERR_ARGUMENT,
                             "--target names %s twice: give every rank of the group once", address);
        }
    }
    c->addresses[c->n_addresses++] = address;
    return 0;
}

/* "a,b,c" */
static int split_addresses(struct coordinator *c, struct error *err)
{
    char *rest = NULL;
    size_t len = strlen(c->options.target);
    if (len >= sizeof c->list) {
        return error_set(err, ERR_ARGUMENT, "--target is longer than %zu bytes",
                         sizeof c->list - 1);
    }
    memcpy(c->list, c->options.target, len + 1);
    for (char *word = strtok_r(c->list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int rc = add_address(c, word, err);
        if (rc) return rc;
    }
    if (c->n_addresses) return 0;
    return error_set(err, ERR_ARGUMENT, "--target names no address");
}

/* Asks the workers of the same mpirun for their addresses. */
static int learn_addresses(struct coordinator *c, struct error *err)
{
    int rc = 0;
    struct comm *world = c->options.world;
    TRY(mem_array(&c->roster, (size_t)world->size, sizeof *c->roster, err));
    TRY(roster_share(world, ROSTER_COORDINATOR, 0, "", c->roster, err));
    for (int i = 0; i < world->size; i++) {
        if (c->roster[i].role == ROSTER_WORKER) TRY(add_address(c, c->roster[i].address, err));
    }
out:
    return rc;
}

static bool has_draft(const struct coordinator *c)
{
    return strcmp(c->options.draft, "none") != 0;
}

static int open_tokenizer(struct coordinator *c, struct error *err)
{
    const char *name = c->options.tokenizer;
    if (!name && has_draft(c) && drafter_find(c->options.draft)->has_tokenizer) {
        name = c->options.draft;
    }
    if (!name) {
        return error_set(err, ERR_ARGUMENT,
                         "--tokenizer is missing: --draft %s brings none; name the target's folder",
                         c->options.draft);
    }
    if (strncmp(name, "synthetic:", 10) != 0) return tokenizer_open(&c->tok, name, err);
    struct checkpoint *ck = NULL;
    int rc = 0;
    TRY(checkpoint_open(&ck, name, err));
    TRY(tokenizer_open_bytes(&c->tok, checkpoint_config(ck)->vocab_size, err));
out:
    checkpoint_close(ck);
    return rc;
}

static struct drafter_options drafter_options(const struct coordinator *c)
{
    return (struct drafter_options){
        .name = c->options.draft,
        .backend = c->options.backend,
        .n_sequences = c->options.n_sequences,
        .support = c->options.support,
        .kv_tokens = c->options.draft_kv_tokens,
        .head = c->options.draft_head,
    };
}

/* The number of threads that the drafter can use, at most the cores and the quota; one if there is
 * no draft. */
static int draft_threads(const struct coordinator *c, int *n, struct error *err)
{
    int n_cores = topology_cores(&c->topology), quota = c->topology.quota_cpus;
    *n = 1;
    if (quota && quota < n_cores) n_cores = quota;
    if (n_cores > PLACEMENT_THREADS_MAX) n_cores = PLACEMENT_THREADS_MAX;
    if (!has_draft(c)) return 0;
    const struct drafter_options options = drafter_options(c);
    const struct drafter_ops *ops = drafter_find(options.name);
    return ops->count_threads ? ops->count_threads(&options, n_cores, n, err) : 0;
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

static int open_drafter(struct coordinator *c, struct error *err)
{
    const struct drafter_options options = drafter_options(c);
    if (has_draft(c)) return drafter_open(&c->drafter, &options, c->tok, err);
    if (!options.head) return 0;
    return error_set(err, ERR_ARGUMENT, "--draft-head %.60s is given, but there is no draft",
                     options.head);
}

/* The engine says whether it could serve a job; the gateway tells health checks, and the store
 * takes jobs or not. */
static void set_serving(void *coordinator, bool is_serving, const char *why)
{
    struct coordinator *c = coordinator;
    jobs_set_serving(c->submitted, is_serving, why);
    gateway_set_serving(c->gateway, is_serving);
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

static void flush_answers(void *sender)
{
    sender_flush(sender);
}

static int open_parts(struct coordinator *c, struct error *err)
{
    int rc = 0;
    const struct target_options target = {
        .addresses = c->addresses,
        .n_addresses = c->n_addresses,
        .tokenizer_fingerprint = tokenizer_fingerprint(c->tok),
        .step_timeout_s = c->options.step_timeout_s,
    };
    TRY(target_open(&c->target, &target, err));
    TRY(queue_open(&c->jobs, c->options.queue_capacity, err));
    TRY(queue_open(&c->control, CONTROL_QUEUE, err));
    budget_init(&c->budget, (size_t)c->options.queue_bytes, "--queue-bytes");
    TRY(pool_open(&c->intake, INTAKE_THREADS, INTAKE_QUEUE, err));
    c->admission = (struct admission){
        .tok = c->tok,
        .jobs = c->jobs,
        .control = c->control,
        .budget = &c->budget,
        .pool = c->intake,
        .max_prompt_bytes = c->options.max_prompt_bytes,
        .capacity = c->options.queue_capacity,
    };
    atomic_init(&c->admission.n_vocab, tokenizer_vocab_size(c->tok));
    TRY(open_submitted(c, err));
    TRY(sender_open(&c->sender, err));
    const struct gateway_options gateway = {
        .address = c->options.listen,
        .admission = &c->admission,
        .sender = c->sender,
        .jobs = c->submitted,
        .reader_timeout_us = (int64_t)c->options.reader_timeout_s * 1000000,
    };
    TRY(gateway_open(&c->gateway, &gateway, err));
    if (c->drafter) checkpoint_served_name(c->options.draft, c->draft_name, sizeof c->draft_name);
    const struct engine_options engine = {
        .target = c->target,
        .drafter = c->drafter,
        .tok = c->tok,
        .served = c->served,
        .jobs = c->jobs,
        .control = c->control,
        .admission = &c->admission,
        .flush_answers = flush_answers,
        .flush_arg = c->sender,
        .client_weights = c->options.client_weights,
        .n_client_weights = c->options.n_client_weights,
        .n_sequences = c->options.n_sequences,
        .step_stretch = c->options.step_stretch,
        .calibrate_us = (int64_t)c->options.calibrate_ms * 1000,
        .set_serving = set_serving,
        .serving_arg = c,
        .draft_ahead = c->options.draft_ahead,
        .half_batches = c->options.half_batches,
        .reader_timeout_us = (int64_t)c->options.reader_timeout_s * 1000000,
        .n_draft = c->options.n_draft,
        .strategy = c->options.strategy,
        .threshold = c->options.threshold,
        .pack_cache = c->options.backend.pack_cache,
        .draft = c->options.draft,
        .target_name = c->options.served_name,
        .draft_name = c->draft_name,
        .draft_support = c->options.support,
        .queue_capacity = c->options.queue_capacity,
        .addresses = c->addresses,
        .n_addresses = c->n_addresses,
    };
    TRY(engine_open(&c->engine, &engine, err));
out:
    return rc;
}

static void show_ready(const struct coordinator *c)
{
    char pin[PIN_TEXT_BYTES];
    bool has_kernels = c->drafter && c->drafter->kernels;
    log_line(LOG_LEVEL_INFO, "ready",
             "address=%s draft=%s head_tokens=%d strategy=%s k=%d workers=%d kernels=%s "
             "kernels_reason=\"%s\" threads=%d pin=%s",
             gateway_address(c->gateway), c->options.draft, c->drafter ? c->drafter->n_choices : 0,
             strategy_names[c->options.strategy],
             c->drafter ? sequence_default_k(c->options.strategy, c->options.n_draft) : 0,
             c->n_addresses, has_kernels ? c->drafter->kernels : "none",
             has_kernels ? c->drafter->kernels_reason : "there is no draft model",
             c->placement.n_threads, placement_show(&c->placement, pin, sizeof pin));
}

int coordinator_open(struct coordinator **coordinator, const struct coordinator_options *options,
                     struct error *err)
{
    int rc = 0;
    struct coordinator *c = NULL;
    *coordinator = NULL;
    TRY(mem_array(&c, 1, sizeof *c, err));
    c->options = *options;
    TRY(open_tokenizer(c, err));
    TRY(place_drafter(c, err));
    TRY(open_drafter(c, err));
    if (options->count_tokens)
        TRY(served_tokens_open(&c->served, options->count_tokens, c->tok, err));
    TRY(options->world ? learn_addresses(c, err) : split_addresses(c, err));
    TRY(open_parts(c, err));
    show_ready(c);
    *coordinator = c;
    c = NULL;
out:
    coordinator_close(c);
    return rc;
}

int coordinator_run(struct coordinator *c, struct error *err)
{
    /* The engine thread is pinned only now, because the threads that it starts inherit its CPUs. */
    int rc = c->placement.is_pinned ? placement_enter(c->placement.cpus[0], err) : 0;
    return rc ? rc : engine_run(c->engine, err);
}

void coordinator_stop(struct coordinator *c)
{
    queue_shut(c->jobs);
}

void coordinator_close(struct coordinator *c)
{
    if (!c) return;
    pool_end(c->intake);     /* its tasks use the gateway, whose calls push until they end */
    sender_close(c->sender); /* every answer has left before calls are cut off */
    gateway_close(c->gateway, CLOSE_GRACE_MS);
    pool_close(c->intake);
    engine_close(c->engine); /* its jobs answer into the next one */
    jobs_close(c->submitted);
    served_tokens_close(c->served);
    target_close(c->target);
    queue_close(c->jobs);
    queue_close(c->control);
    drafter_close(c->drafter);
    tokenizer_close(c->tok);
    free(c->roster);
    free(c);
}
