/* outrider-worker: one rank of the target model. Started by mpirun, once per rank, or alone. */
#include <argp.h>
#include <stdio.h>

#include "access/group_key.h"
#include "access/options.h"
#include "access/reach.h"
#include "base/limits.h"
#include "base/system/program.h"
#include "base/text/options.h"
#include "model/backend/options.h"
#include "model/checkpoint/checkpoint.h"
#include "worker/address.h"
#include "worker/lws.h"
#include "worker/worker.h"

const char *argp_program_version = "outrider-worker " OUTRIDER_VERSION;

enum {
    OPT_KV_TOKENS = 256,
    OPT_STEP_TOKENS,
    OPT_STEP_ROWS,
    OPT_STEP_TIMEOUT,
    OPT_RANK,
    OPT_RANKS,
    OPT_LEAD,
    OPT_COLLECTIVES,
    OPT_JOIN_TIMEOUT,
    OPT_PIN,
    OPT_METRICS,
    OPT_SAME_PORT,
    OPT_LWS,
    OPT_DRAIN_TIMEOUT,
    OPT_NETWORK,
    OPT_GROUP_KEY,
    OPT_CLIENT_NAME,
    OPT_STRICT_CONFIG
};

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0, "Hugging Face folder, or synthetic:SHAPE,seed=S[,agree=A]", 0},
    {"strict-config", OPT_STRICT_CONFIG, NULL, 0,
     "refuse a model whose config.json has keys that are not known here, which otherwise are a "
     "warning in the log",
     0},
    {"listen", 'l', "ADDRESS", 0,
     "HOST:PORT (rank r takes PORT + r) or unix:PATH; default 127.0.0.1:7071", 0},
    {"same-port", OPT_SAME_PORT, NULL, 0,
     "every rank takes the very PORT of --listen and --metrics, because it has a host or a pod of "
     "its own",
     0},
    {"network", OPT_NETWORK, "NAME|A.B.C.D/N", 0,
     "where --listen says 0.0.0.0, listen at the address that this host has in that interface or "
     "network, and tell others that one",
     0},
    {"slots", 's', "N", 0, "sequences at a time; default 64", 0},
    {"kv-tokens", OPT_KV_TOKENS, "N", 0,
     "positions of the KV cache, of all sequences together; default 16384", 0},
    {"max-step-tokens", OPT_STEP_TOKENS, "N", 0, "tokens of a step; default 512", 0},
    {"max-step-rows", OPT_STEP_ROWS, "N", 0, "rows of logits of a step; default 256", 0},
    {"step-timeout", OPT_STEP_TIMEOUT, "SECONDS", 0,
     "a step that takes longer ends the group; so does one of 20 times what steps of its size have "
     "taken, if that is 5 s or more; default 120",
     0},
    {"ranks", OPT_RANKS, "T", 0,
     "without mpirun: ranks of the group, one GPU each, that meet over NCCL; default 1", 0},
    {"rank", OPT_RANK, "R", 0, "without mpirun: which of them this is, from 0", 0},
    {"lead", OPT_LEAD, "ADDRESS", 0, "where rank 0 can be called; default as --listen says", 0},
    {"lws", OPT_LWS, NULL, 0,
     "instead of --rank, --ranks and --lead, in a pod of a Kubernetes LeaderWorkerSet: as "
     "LWS_WORKER_INDEX, LWS_GROUP_SIZE and LWS_LEADER_ADDRESS say; implies --same-port",
     0},
    {"collectives", OPT_COLLECTIVES, "NAME", 0,
     "what adds up the ranks' sums: host (MPI), nccl (GPUs), or auto: nccl with --ranks or "
     "--device cuda",
     0},
    {"join-timeout", OPT_JOIN_TIMEOUT, "SECONDS", 0,
     "until all ranks must have come, where they meet over NCCL; default 60", 0},
    {"pin", OPT_PIN, "LIST", 0,
     "CPUs for the compute threads, one each, such as 0,2; off; or auto: a core for each thread "
     "where ranks of one mpirun share a machine; default auto",
     0},
    {"metrics", OPT_METRICS, "ADDRESS", 0,
     "HOST:PORT where Prometheus reads /metrics and probes ask for /live and /ready (rank r takes "
     "PORT + r); default none",
     0},
    {"drain-timeout", OPT_DRAIN_TIMEOUT, "SECONDS", 0,
     "after SIGTERM the coordinator that uses the rank gets so long to let go of it; a second "
     "SIGTERM ends the rank at once; default 5",
     0},
    {"group-key", OPT_GROUP_KEY, "FILE", 0,
     "serve only those who have the key in this file: other ranks and the coordinator; default "
     "OUTRIDER_GROUP_KEY",
     0},
    {"tls-client-name", OPT_CLIENT_NAME, "NAMES", 0,
     "with --tls-client-ca: names of which a coordinator's certificate has one, separated by "
     "commas; * = any; default coordinator,outrider-coordinator",
     0},
    {0},
};

struct arguments {
    struct worker_options options;
    struct program_log log;
    struct door_options door;
    const char *network;
    char listen[ADDRESS_BYTES]; /* in that network */
    struct lws_place lws;
    const char *key_path;
    struct group_key key;
    bool has_place;        /* --rank, --ranks or --lead is given */
    struct worker *worker; /* once it is open */
};

static int parse_collectives(struct argp_state *state, enum group_collectives *out,
                             const char *text)
{
    static const char *const words[] = {"auto", "host", "nccl"}; /* in the enum's order */
    struct error err;
    int index = 0;
    if (options_word(&index, "--collectives", text, words, 3, &err)) {
        argp_failure(state, 2, 0, "%s", err.text);
    }
    *out = (enum group_collectives)index;
    return 0;
}

static int parse_group_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct group_options *group = &args->options.group;
    switch (key) {
    case 'l':
        group->listen = arg;
        return 0;
    case OPT_SAME_PORT:
        group->has_same_port = true;
        return 0;
    case OPT_LWS:
        group->is_lws = group->has_same_port = true;
        return 0;
    case OPT_RANK:
        args->has_place = true;
        return program_parse_int(state, &group->rank, "--rank", arg, 0, RANKS_MAX - 1);
    case OPT_RANKS:
        args->has_place = true;
        return program_parse_int(state, &group->n_ranks, "--ranks", arg, 1, RANKS_MAX);
    case OPT_LEAD:
        args->has_place = true;
        group->lead = arg;
        return 0;
    case OPT_COLLECTIVES:
        return parse_collectives(state, &group->collectives, arg);
    case OPT_JOIN_TIMEOUT:
        return program_parse_int(state, &group->timeout_s, "--join-timeout", arg, 1, 86400);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void take_lws_place(struct argp_state *state)
{
    struct arguments *args = state->input;
    struct group_options *group = &args->options.group;
    struct error err;
    if (args->has_place) {
        argp_failure(state, 2, 0,
                     "--lws says rank, ranks and lead: leave --rank, --ranks and --lead out");
    }
    if (lws_read(&args->lws, group->listen, &err)) argp_failure(state, 2, 0, "%s", err.text);
    group->rank = args->lws.rank;
    group->n_ranks = args->lws.n_ranks;
    group->lead = args->lws.lead;
}

/* A worker knows no API keys, so TLS alone would keep nobody out. */
static void check_options(struct argp_state *state)
{
    const struct arguments *args = state->input;
    const struct reach_door door = {
        .option = "--listen",
        .address = args->options.group.listen,
        .is_guarded =
            args->door.is_insecure || args->door.files.ca || group_key_is_given(args->key_path),
        .ways = "give --tls-certificate, --tls-key and --tls-client-ca, or --group-key, listen on "
                "loopback or a unix socket, or say --insecure"};
    struct error err;
    if (!args->options.model) argp_failure(state, 2, 0, "--model is missing");
    if (reach_check(&door, &err)) argp_failure(state, 2, 0, "%s", err.text);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct worker_options *w = &args->options;
    switch (key) {
    case 'm':
        w->model = arg;
        return 0;
    case 's':
        return program_parse_int(state, &w->n_slots, "--slots", arg, 1, 1024);
    case OPT_KV_TOKENS:
        return program_parse_int(state, &w->kv_tokens, "--kv-tokens", arg, 16, 1 << 28);
    case OPT_STEP_TOKENS:
        return program_parse_int(state, &w->max_step_tokens, "--max-step-tokens", arg, 32, 4096);
    case OPT_STEP_ROWS:
        return program_parse_int(state, &w->max_step_rows, "--max-step-rows", arg, 17, 4096);
    case OPT_STEP_TIMEOUT:
        return program_parse_int(state, &w->step_timeout_s, "--step-timeout", arg, 1, 86400);
    case OPT_PIN:
        return program_parse_pin(state, &w->pin_wish, arg);
    case OPT_DRAIN_TIMEOUT:
        return program_parse_int(state, &w->drain_timeout_s, "--drain-timeout", arg, 0, 86400);
    case OPT_STRICT_CONFIG:
        w->is_strict = true;
        return 0;
    case OPT_METRICS:
        w->metrics = arg;
        return 0;
    case OPT_NETWORK:
        args->network = arg;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &w->backend;
        state->child_inputs[1] = &args->door;
        state->child_inputs[2] = &args->log;
        return 0;
    case OPT_GROUP_KEY:
        args->key_path = arg;
        return 0;
    case OPT_CLIENT_NAME:
        w->group.run_names = arg;
        return 0;
    case ARGP_KEY_END:
        if (w->group.is_lws) take_lws_place(state);
        check_options(state);
        return 0;
    default:
        return parse_group_option(key, arg, state);
    }
}

/* Prints how many ranks can share the model. */
static int check_worker(void *arg, struct error *err)
{
    const struct arguments *args = arg;
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_open(&checkpoint, args->options.model, err);
    if (rc) return rc;
    if (args->options.is_strict) TRY(checkpoint_demand_known_keys(checkpoint, err));
    const struct model_config *cfg = checkpoint_config(checkpoint);
    printf("ranks 1");
    for (int t = 2; t <= config_slices(cfg); t *= 2)
        printf(" %d", t);
    printf("\n");
out:
    checkpoint_close(checkpoint);
    return rc;
}

static int read_guard(void *arg, struct error *err)
{
    struct arguments *args = arg;
    int rc = 0;
    TRY(door_read(&args->door, err));
    TRY(group_key_open(&args->key, args->key_path, err));
    if (group_key_text(&args->key)) args->options.group.key = &args->key;
out:
    return rc;
}

static int open_worker(void *arg, struct error *err)
{
    struct arguments *args = arg;
    struct group_options *group = &args->options.group;
    group->certificates = args->door.certificates;
    int rc = address_in_network(group->listen, args->network, args->listen, err);
    if (rc) return err->code = ERR_UNAVAILABLE; /* the network may come */
    group->listen = args->listen;
    return worker_open(&args->worker, &args->options, err);
}

static int run_worker(void *arg, struct error *err)
{
    struct arguments *args = arg;
    return worker_run(args->worker, err);
}

static void stop_worker(void *arg)
{
    struct arguments *args = arg;
    worker_stop(args->worker);
}

/* The certificates exist as long as the program. */
static void reload_files(void *arg)
{
    struct arguments *args = arg;
    certificates_reload(args->door.certificates);
}

static void close_worker(void *arg)
{
    struct arguments *args = arg;
    worker_close(args->worker);
    certificates_close(args->door.certificates);
}

int main(int argc, char **argv)
{
    static struct arguments args = {
        .options = {.group = {.n_ranks = 1,
                              .listen = "127.0.0.1:7071",
                              .timeout_s = 60,
                              .run_names = "coordinator,outrider-coordinator"},
                    .n_slots = 64,
                    .max_step_tokens = 512,
                    .max_step_rows = 256,
                    .step_timeout_s = 120,
                    .drain_timeout_s = 5},
        .log = {.level = LOG_LEVEL_INFO},
    };
    const struct argp_child children[] = {{&backend_argp, 0, "Where it runs:", 0},
                                          {&door_argp, 0, "Who may call:", 0},
                                          {&program_argp, 0, NULL, 0},
                                          {0}};
    const struct argp argp = {.options = options,
                              .parser = parse_option,
                              .children = children,
                              .doc = "Serves one tensor-parallel rank of the target model."};
    backend_options_init(&args.options.backend);
    program_parse(&argp, argc, argv, &args);
    int drain_ms = args.options.drain_timeout_s * 1000;
    const struct program program = {.name = "outrider-worker",
                                    .log = args.log,
                                    .stop_grace_ms = drain_ms + WORKER_STOP_GRACE_MS,
                                    .read = read_guard,
                                    .check = check_worker,
                                    .meets_peers = group_has_peers(&args.options.group),
                                    .open = open_worker,
                                    .run = run_worker,
                                    .stop = stop_worker,
                                    .reload = args.door.files.certificate ? reload_files : NULL,
                                    .close = close_worker};
    return program_run(&program, &args);
}
