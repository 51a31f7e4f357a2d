/* outrider-worker: one rank of the target model. Started by mpirun, once per rank, or alone. */
#include <argp.h>
#include <stdio.h>

#include "access/group_key.h"
#include "access/options.h"
#include "access/reach.h"
#include "base/limits.h"
#include "base/system/program.h"
#include "config/config_file.h"
#include "model/backend/options.h"
#include "model/checkpoint/checkpoint.h"
#include "worker/address.h"
#include "worker/held_head.h"
#include "worker/lws.h"
#include "worker/worker.h"

const char *argp_program_version = "outrider-worker " OUTRIDER_VERSION;

struct arguments {
    struct worker_options options;
    struct program_log log;
    struct door_options door;
    const char *network;
    char listen[ADDRESS_BYTES]; /* in that network */
    struct lws_place lws;
    const char *key_path;
    struct group_key key;
    bool has_place; /* --rank, --ranks or --lead is given */
    bool has_kv_tokens;
    struct worker *worker; /* once it is open */
};

#define FIELD(member) OPTION_FIELD(struct arguments, member)

static const char *const collectives[] = {"auto", "host", "nccl"}; /* in the enum's order */

static const struct option_row rows[] = {
    OPTION_GROUP("Models", "--model=/models/large"),
    {"model", 'm', "MODEL", FIELD(options.model),
     .help = "Hugging Face folder, ORG/NAME in the Hugging Face cache, GGUF file, or "
             "synthetic:SHAPE,seed=S[,agree=A]"},
    {"head", 0, "FOLDER", FIELD(options.head),
     .help = "folder of a head, or ORG/NAME, whose first matrix (fc) this worker applies to the "
             "features that the coordinator's --head reads, so that one width is sent instead of "
             "several; the rest of the head is not loaded. Or a folder of look-ahead embeddings "
             "(PaSS), which all ranks need, and the coordinator's --head names, too"},
    {"strict-config", 0, NULL, FIELD(options.is_strict),
     .help = "refuse a model whose config.json has keys that are not known here, which "
             "otherwise are a warning in the log"},
    OPTION_GROUP("Serving", "--listen=0.0.0.0:7071 --network=eth0"),
    {"listen", 'l', "ADDRESS", FIELD(options.group.listen), .standard = "127.0.0.1:7071",
     .help = "HOST:PORT (rank r takes PORT + r) or unix:PATH"},
    {"same-port", 0, NULL, FIELD(options.group.has_same_port),
     .help = "every rank takes the very PORT of --listen and --metrics, because it has a host "
             "or a pod of its own"},
    {"network", 0, "NAME|A.B.C.D/N", FIELD(network),
     .help = "where --listen says 0.0.0.0, listen at the address that this host has in that "
             "interface or network, and tell others that one"},
    OPTION_GROUP("Ranks without mpirun", "--rank=1 --ranks=2 --lead=10.0.0.2:7071"),
    {"ranks", 0, "T", FIELD(options.group.n_ranks), .least = 1, .most = RANKS_MAX,
     .standard_int = 1, .also = offsetof(struct arguments, has_place),
     .help = "without mpirun: ranks of the group, one GPU each, that meet over NCCL"},
    {"rank", 0, "R", FIELD(options.group.rank), .most = RANKS_MAX - 1,
     .also = offsetof(struct arguments, has_place),
     .help = "without mpirun: which of them this is, from 0"},
    {"lead", 0, "ADDRESS", FIELD(options.group.lead), .also = offsetof(struct arguments, has_place),
     .help = "where rank 0 can be called; default as --listen says"},
    {"lws", 0, NULL, FIELD(options.group.is_lws),
     .also = offsetof(struct arguments, options.group.has_same_port),
     .help = "instead of --rank, --ranks and --lead, in a pod of a Kubernetes "
             "LeaderWorkerSet: as LWS_WORKER_INDEX, LWS_GROUP_SIZE and LWS_LEADER_ADDRESS "
             "say; implies --same-port"},
    {"collectives", 0, "NAME", FIELD(options.group.collectives), .words = collectives, .n_words = 3,
     .help = "what adds up the ranks' sums: host (MPI), nccl (GPUs), or auto: nccl with "
             "--ranks or --device cuda"},
    {"join-timeout", 0, "SECONDS", FIELD(options.group.timeout_s), .least = 1, .most = 86400,
     .standard_int = 60, .help = "until all ranks must have come, where they meet over NCCL"},
    OPTION_GROUP("Memory and load", "--slots=128 --kv-tokens=131072"),
    {"slots", 's', "N", FIELD(options.n_slots), .least = 1, .most = 1024, .standard_int = 64,
     .help = "sequences at a time"},
    {"kv-tokens", 0, "N", FIELD(options.kv_tokens), .least = 16, .most = 1 << 28,
     .also = offsetof(struct arguments, has_kv_tokens), .standard_int = 16384,
     .help = "positions of the KV cache, of all sequences together"},
    {"gpu-memory", 0, "SHARE", FIELD(options.gpu_memory), .least = 0.01, .most = 0.99,
     .help = "instead of --kv-tokens, with --device cuda: weights, buffers and a KV cache as large "
             "as fits take this share of the memory of the rank's GPU, such as 0.9; steps take "
             "up to 1 GiB of what is left"},
    {"max-step-tokens", 0, "N", FIELD(options.max_step_tokens), .least = 32, .most = 4096,
     .standard_int = 512, .help = "tokens of a step"},
    {"max-step-rows", 0, "N", FIELD(options.max_step_rows), .least = 17, .most = 4096,
     .standard_int = 256, .help = "rows of logits of a step"},
    OPTION_GROUP("Time limits", "--step-timeout=30 --drain-timeout=60"),
    {"step-timeout", 0, "SECONDS", FIELD(options.step_timeout_s), .least = 1, .most = 86400,
     .standard_int = 120,
     .help = "a step that takes longer ends the group; so does one of 20 times what steps of "
             "its size have taken, if that is 5 s or more"},
    {"drain-timeout", 0, "SECONDS", FIELD(options.drain_timeout_s), .most = 86400,
     .standard_int = 5,
     .help = "after SIGTERM the coordinator that uses the rank gets so long to let go of it; "
             "a second SIGTERM ends the rank at once"},
    OPTION_GROUP("Where the model runs", "--device=cuda --pin=0,2"),
    {"pin", 0, "LIST", OPTION_READ(struct arguments, options.pin_wish, program_read_pin),
     .standard = "auto",
     .help = "CPUs for the compute threads, one each, such as 0,2; off; or auto: a core for "
             "each thread where ranks of one mpirun share a machine"},
    OPTION_GROUP("Security", "--group-key=FILE"),
    {"group-key", 0, "FILE", FIELD(key_path),
     .help = "serve only those who have the key in this file: other ranks and the "
             "coordinator; default OUTRIDER_GROUP_KEY"},
    {"tls-client-name", 0, "NAMES", FIELD(options.group.run_names),
     .standard = "coordinator,outrider-coordinator",
     .help = "with --tls-client-ca: names of which a coordinator's certificate has one, "
             "separated by commas; * = any"},
    OPTION_GROUP("Log and metrics", "--metrics=0.0.0.0:9091"),
    {"metrics", 0, "ADDRESS", FIELD(options.metrics),
     .help = "HOST:PORT where Prometheus reads /metrics and probes ask for /live and /ready "
             "(rank r takes PORT + r); default none"},
    {0},
};

static int take_lws_place(struct arguments *args, struct error *err)
{
    struct group_options *group = &args->options.group;
    if (args->has_place) {
        return error_set(err, ERR_ARGUMENT,
                         "--lws says rank, ranks and lead: leave --rank, --ranks and --lead out");
    }
    int rc = lws_read(&args->lws, group->listen, err);
    if (rc) return rc;
    group->rank = args->lws.rank;
    group->n_ranks = args->lws.n_ranks;
    group->lead = args->lws.lead;
    group->has_same_port = true; /* also where a variable of the environment says otherwise */
    return 0;
}

/* A worker knows no API keys, so TLS alone would keep nobody out. */
static int check_door(const struct arguments *args, struct error *err)
{
    const struct reach_door door = {
        .option = "--listen",
        .address = args->options.group.listen,
        .is_guarded =
            args->door.is_insecure || args->door.files.ca || group_key_is_given(args->key_path),
        .ways = "give --tls-certificate, --tls-key and --tls-client-ca, or --group-key, listen on "
                "loopback or a unix socket, or say --insecure"};
    return reach_check(&door, err);
}

static int finish_options(void *fields, struct error *err)
{
    struct arguments *args = fields;
    int rc = args->options.group.is_lws ? take_lws_place(args, err) : 0;
    if (rc) return rc;
    if (!args->options.model) return error_set(err, ERR_ARGUMENT, "--model is missing");
    if (args->options.gpu_memory > 0 && args->has_kv_tokens) {
        return error_set(err, ERR_ARGUMENT,
                         "--gpu-memory %g and --kv-tokens %d both say how large the KV cache is: "
                         "give one of them",
                         args->options.gpu_memory, args->options.kv_tokens);
    }
    if (args->options.gpu_memory > 0 && strcmp(args->options.backend.device, "cpu") == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--gpu-memory %g is a share of a GPU's memory, but the rank runs on the "
                         "CPU: give --kv-tokens, or --device cuda",
                         args->options.gpu_memory);
    }
    return check_door(args, err);
}

/* Prints how many ranks can share the model. */
static int check_worker(void *arg, struct error *err)
{
    const struct arguments *args = arg;
    struct checkpoint *checkpoint = NULL;
    struct held_head head = {0};
    int rc = checkpoint_open(&checkpoint, args->options.model, err);
    if (rc) return rc;
    if (args->options.is_strict) TRY(checkpoint_demand_known_keys(checkpoint, err));
    const struct model_config *cfg = checkpoint_config(checkpoint);
    char counts[32];
    if (args->options.head) {
        TRY(held_head_open(&head, args->options.head, checkpoint, err));
    }
    printf("ranks %s\n", config_rank_list(cfg, " ", counts, sizeof counts));
out:
    held_head_close(&head);
    checkpoint_close(checkpoint);
    return rc;
}

static int read_credentials(void *arg, struct error *err)
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
    static struct arguments args;
    const struct option_program options = {
        .variables = "OUTRIDER_WORKER_",
        .example = "outrider-worker --model models/target --listen unix:/tmp/worker",
        .read_file = config_file_read,
        .doc = "Serves one tensor-parallel rank of the target model.",
        .parts = {{rows, &args, finish_options},
                  {backend_rows, &args.options.backend, NULL},
                  {door_rows, &args.door, door_finish},
                  {program_rows, &args.log, NULL}}};
    program_options(&options, argc, argv);
    int drain_ms = args.options.drain_timeout_s * 1000;
    const struct program program = {.name = "outrider-worker",
                                    .log = args.log,
                                    .stop_grace_ms = drain_ms + WORKER_STOP_GRACE_MS,
                                    .read = read_credentials,
                                    .check = check_worker,
                                    .meets_peers = group_has_peers(&args.options.group),
                                    .open = open_worker,
                                    .run = run_worker,
                                    .stop = stop_worker,
                                    .reload = args.door.files.certificate ? reload_files : NULL,
                                    .close = close_worker};
    return program_run(&program, &args);
}
