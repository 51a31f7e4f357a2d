/* outrider-worker: one rank of the target model. Started by mpirun, once per rank, or alone. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/process.h"
#include "model/backend/options.h"
#include "worker/worker.h"

const char *argp_program_version = "outrider-worker " OUTRIDER_VERSION;

enum {
    STOP_GRACE_MS =
        500, /* mpirun kills one second after its SIGTERM; MPI cannot finalize by then */
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
    OPT_LOG_LEVEL
};

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0, "Hugging Face folder, or synthetic:SHAPE,seed=S[,agree=A]", 0},
    {"listen", 'l', "ADDRESS", 0,
     "HOST:PORT (rank r takes PORT + r) or unix:PATH; default 127.0.0.1:7071", 0},
    {"slots", 's', "N", 0, "sequences at a time; default 4", 0},
    {"kv-tokens", OPT_KV_TOKENS, "N", 0,
     "positions of the KV cache; default the context, at most 8192", 0},
    {"max-step-tokens", OPT_STEP_TOKENS, "N", 0, "tokens of a step; default 512", 0},
    {"max-step-rows", OPT_STEP_ROWS, "N", 0, "rows of logits of a step; default 64", 0},
    {"step-timeout", OPT_STEP_TIMEOUT, "SECONDS", 0,
     "a step that takes longer ends the group; default 120", 0},
    {"ranks", OPT_RANKS, "T", 0,
     "without mpirun: ranks of the group, one GPU each, that meet over NCCL; default 1", 0},
    {"rank", OPT_RANK, "R", 0, "without mpirun: which of them this is, from 0", 0},
    {"lead", OPT_LEAD, "ADDRESS", 0, "where rank 0 can be called; default as --listen says", 0},
    {"collectives", OPT_COLLECTIVES, "NAME", 0,
     "what adds up the ranks' sums: host (MPI), nccl (GPUs), or auto: nccl with --ranks or "
     "--device cuda",
     0},
    {"join-timeout", OPT_JOIN_TIMEOUT, "SECONDS", 0,
     "until all ranks must have come, where they meet over NCCL; default 60", 0},
    {"pin", OPT_PIN, "LIST", 0,
     "CPUs for the compute threads, one each, such as 0,2; off; or auto: a core for each thread "
     "where "
     "ranks of one mpirun share a machine; default auto",
     0},
    {"log-level", OPT_LOG_LEVEL, "LEVEL", 0, "debug, info, warn, error", 0},
    {0},
};

struct arguments {
    struct worker_options worker;
    enum log_level level;
    struct error err;
};

static int parse_number(struct argp_state *state, int *out, const char *name, const char *text,
                        int least, int most)
{
    struct arguments *args = state->input;
    if (options_int(out, name, text, least, most, &args->err)) {
        argp_failure(state, 2, 0, "%s", args->err.text);
    }
    return 0;
}

static int parse_collectives(struct argp_state *state, enum group_collectives *out,
                             const char *text)
{
    static const char *const words[] = {"auto", "host", "nccl"}; /* in the enum's order */
    struct arguments *args = state->input;
    int index = 0;
    if (options_word(&index, "--collectives", text, words, 3, &args->err)) {
        argp_failure(state, 2, 0, "%s", args->err.text);
    }
    *out = (enum group_collectives)index;
    return 0;
}

static int parse_group_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct group_options *group = &args->worker.group;
    switch (key) {
    case 'l':
        group->listen = arg;
        return 0;
    case OPT_RANK:
        return parse_number(state, &group->rank, "--rank", arg, 0, 63);
    case OPT_RANKS:
        return parse_number(state, &group->n_ranks, "--ranks", arg, 1, 64);
    case OPT_LEAD:
        group->lead = arg;
        return 0;
    case OPT_COLLECTIVES:
        return parse_collectives(state, &group->collectives, arg);
    case OPT_JOIN_TIMEOUT:
        return parse_number(state, &group->timeout_s, "--join-timeout", arg, 1, 86400);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct worker_options *w = &args->worker;
    switch (key) {
    case 'm':
        w->model = arg;
        return 0;
    case 's':
        return parse_number(state, &w->n_slots, "--slots", arg, 1, 1024);
    case OPT_KV_TOKENS:
        return parse_number(state, &w->kv_tokens, "--kv-tokens", arg, 16, 1 << 28);
    case OPT_STEP_TOKENS:
        return parse_number(state, &w->max_step_tokens, "--max-step-tokens", arg, 32, 4096);
    case OPT_STEP_ROWS:
        return parse_number(state, &w->max_step_rows, "--max-step-rows", arg, 17, 4096);
    case OPT_STEP_TIMEOUT:
        return parse_number(state, &w->step_timeout_s, "--step-timeout", arg, 1, 86400);
    case OPT_PIN:
        if (placement_parse_pin(&w->place, arg, &args->err)) {
            argp_failure(state, 2, 0, "%s", args->err.text);
        }
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &w->backend;
        return 0;
    case OPT_LOG_LEVEL:
        if (log_parse_level(arg, &args->level)) {
            argp_failure(state, 2, 0, "--log-level %s: expected debug, info, warn or error", arg);
        }
        return 0;
    case ARGP_KEY_ARG:
        argp_failure(state, 2, 0, "'%s' is not an option; see --help", arg);
        return 0;
    case ARGP_KEY_END:
        if (!w->model) argp_failure(state, 2, 0, "--model is missing");
        return 0;
    default:
        return parse_group_option(key, arg, state);
    }
}

static void on_stop(void *arg)
{
    struct worker **worker = arg;
    if (*worker) worker_stop(*worker);
}

int main(int argc, char **argv)
{
    static struct worker *worker; /* the signal thread looks at it */
    struct arguments args = {
        .worker = {.group = {.n_ranks = 1, .listen = "127.0.0.1:7071", .timeout_s = 60},
                   .n_slots = 4,
                   .max_step_tokens = 512,
                   .max_step_rows = 64,
                   .step_timeout_s = 120},
        .level = LOG_LEVEL_INFO,
    };
    const struct argp_child children[] = {{&backend_argp, 0, "Where it runs:", 0}, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse_option,
                              .children = children,
                              .doc = "Serves one tensor-parallel rank of the target model."};
    backend_options_init(&args.worker.backend);
    argp_err_exit_status = 2; /* as for values that make no sense */
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    log_open("outrider-worker", args.level);
    int rc = process_open(on_stop, &worker, STOP_GRACE_MS, &args.err);
    if (!rc) rc = worker_open(&worker, &args.worker, &args.err);
    if (!rc) rc = worker_run(worker, &args.err);
    if (rc) {
        log_line(LOG_LEVEL_ERROR, "failed", "reason=%s text=\"%s\"", error_name(rc), args.err.text);
        _Exit(EXIT_FAILURE); /* peers may wait in a collective: mpirun ends them */
    }
    worker_close(worker);
    process_close();
    log_line(LOG_LEVEL_INFO, "stopped", "reason=signal");
    return EXIT_SUCCESS;
}
