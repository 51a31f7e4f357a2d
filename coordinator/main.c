/* outrider-coordinator: takes generation jobs, drafts, verifies on the workers, answers. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/system/program.h"
#include "base/text/options.h"
#include "comm/comm_mpi.h"
#include "comm/roster.h"
#include "coordinator/coordinator.h"
#include "coordinator/engine/engine.h"
#include "coordinator/guard.h"
#include "coordinator/job/groups.h"
#include "model/backend/options.h"
#include "proto/generation_wire.h"

const char *argp_program_version = "outrider-coordinator " OUTRIDER_VERSION;

enum {
    STOP_GRACE_MS = 1500, /* after draining */
    SUPPORT_MAX = 4096,
    OPT_TOKENIZER = 256,
    OPT_GROUPS,
    OPT_SERVED_NAME,
    OPT_SUPPORT,
    OPT_HEAD,
    OPT_STRICT_CONFIG,
    OPT_LOOKUP,
    OPT_LOOKUP_APPEND,
    OPT_TREES,
    OPT_STORE_TOKENS,
    OPT_STORE_SHARED,
    OPT_COUNT,
    OPT_SEQUENCES,
    OPT_STRETCH,
    OPT_WEIGHT,
    OPT_CALIBRATE,
    OPT_QUEUE,
    OPT_QUEUE_BYTES,
    OPT_JOBS_KEPT,
    OPT_JOBS_BYTES,
    OPT_DRAFT_KV,
    OPT_STEP_TIMEOUT,
    OPT_READER_TIMEOUT,
    OPT_DRAFT_AHEAD,
    OPT_DRAFT_STAGED,
    OPT_HALF_BATCHES,
    OPT_PROMPT_BYTES,
    OPT_PIN,
    OPT_STRATEGY,
    OPT_THRESHOLD,
    OPT_HTTP,
    OPT_HTTP_CONNECTIONS,
    OPT_CORS,
    OPT_CHAT_TEMPLATE,
    OPT_GENERATION_CONFIG,
    OPT_USER_SPECIAL,
    OPT_MAX_STOPS,
    OPT_MAX_TEXTS,
    OPT_DRAIN_TIMEOUT,
    OPT_METRICS,
    OPT_METRICS_VLLM,
    OPT_LOG_JOBS,
    OPT_LOG_LOAD
};

static const struct argp_option options[] = {
    {"target", 'w', "LIST", 0,
     "where the ranks of all groups are, separated by commas and in any order: HOST:PORT, "
     "unix:PATH, dns:NAME:PORT (every address of NAME, looked up again and again) or lws:PORT (the "
     "pods of the LeaderWorkerSet group that this pod leads); or mpi, when one mpirun starts "
     "everything; may be given again",
     0},
    {"groups", OPT_GROUPS, "N", 0, "groups that are used at a time, at most, 1 to 16; default 8",
     0},
    {"draft", 'd', "MODEL", 0,
     "draft model: a folder, synthetic:SHAPE,seed=S[,agree=A,draft=1] or none (default none); with "
     ",layers=0-3,12-15 behind it (the target's own folder, for example) only these layers of it",
     0},
    {"trees", OPT_TREES, "MODE", 0,
     "whether several tokens may be guessed for a place: static (where the planner expects that "
     "it pays; it says behind which guesses a draft model goes on), dynamic (the draft's own q "
     "chooses behind which), siblings (it goes on behind the first guess of a place alone), "
     "off; or auto, which is static. A tree such as 3,2,1 is auto but for requests of strategy "
     "fixed: for them a draft model makes 3 guesses, 2 behind each of these, and so on; with "
     "dynamic:3,2,1 as many for each place, 3, 6 and 6, behind those that q chooses. Such a tree "
     "has at most 31 guesses. Default auto",
     0},
    {"lookup", OPT_LOOKUP, "LIST", 0,
     "where guesses are looked up, besides or without a draft model; separated by "
     "commas" LOOKUP_HELP "; or none; default " LOOKUP_DEFAULT,
     0},
    {"lookup-append", OPT_LOOKUP_APPEND, "MODE", 0,
     "behind the guesses of the draft model, planned texts have such as --lookup session finds "
     "there: auto (where they are predicted to be worth their rows), on (all of them), off; "
     "default off",
     0},
    {"store-tokens", OPT_STORE_TOKENS, "N", 0,
     "tokens that --lookup store keeps at most, of 62 bytes each; default 1048576", 0},
    {"store-shared", OPT_STORE_SHARED, NULL, 0,
     "--lookup store and recycled may use what they know of the texts of all API keys for all: how "
     "fast an answer comes can then tell what others have had; without it each key has its own",
     0},
    {"listen", 'l', "ADDRESS", 0, "HOST:PORT or unix:PATH; default 127.0.0.1:7070", 0},
    {"http", OPT_HTTP, "ADDRESS", 0,
     "HOST:PORT of OpenAI's API, the page and the metrics; off = none; default OUTRIDER_HTTP from "
     "the "
     "environment, or 127.0.0.1:8000",
     0},
    {"http-connections", OPT_HTTP_CONNECTIONS, "N", 0,
     "connections that the HTTP door takes at a time; default 2048", 0},
    {"cors", OPT_CORS, "ORIGIN", 0,
     "pages of this origin, such as https://example.org, may use the HTTP door from a browser; * = "
     "all; default none",
     0},
    {"chat-template", OPT_CHAT_TEMPLATE, "FILE", 0,
     "Jinja template of conversations; default that of --tokenizer if it is given and has one, "
     "otherwise the target's, or the draft's if the target has none",
     0},
    {"generation-config", OPT_GENERATION_CONFIG, "WORD", 0,
     "on: the target's generation_config.json says how texts are sampled (temperature, top_k, "
     "top_p, min_p, repetition_penalty) where a request does not; off: it does not; default on",
     0},
    {"user-special-tokens", OPT_USER_SPECIAL, "WORD", 0,
     "on: a text of a special token in a message is that token, as in transformers; off: only "
     "those "
     "that the chat template writes are, so that users cannot write any; default on",
     0},
    {"max-stops", OPT_MAX_STOPS, "N", 0,
     "stop strings that a request over HTTP may have, 1 to 16; default 16", 0},
    {"max-texts", OPT_MAX_TEXTS, "N", 0,
     "texts of one prompt, n, that a request over HTTP may ask for, 1 to 64; default 64", 0},
    {"strategy", OPT_STRATEGY, "NAME", 0,
     "how guesses per round come about where a request does not say: planned (default; what is "
     "measured to be fastest), fixed, heuristic or threshold",
     0},
    {"draft-tokens", 'K', "K", 0,
     "guesses per round of strategy fixed, the most of others, 0 to 16; default 4 and 16", 0},
    {"threshold", OPT_THRESHOLD, "P", 0,
     "strategy threshold ends with the first guess that the draft gave less than P; default 0.4",
     0},
    {"tokenizer", OPT_TOKENIZER, "FOLDER", 0,
     "tokenizer; default the draft's; without a draft it must be given", 0},
    {"served-name", OPT_SERVED_NAME, "NAME", 0,
     "what clients are told that the target is called; default the last part of its folder", 0},
    {"draft-support", OPT_SUPPORT, "N", 0,
     "q is the draft's best N tokens, renormalised; default 64", 0},
    {"draft-ahead", OPT_DRAFT_AHEAD, "MODE", 0,
     "draft on while the target verifies: auto (where it was measured to pay), on, off; default "
     "auto",
     0},
    {"draft-staged", OPT_DRAFT_STAGED, "MODE", 0,
     "the draft reads ahead, in one pass, what --lookup session expects it to guess: auto (as far "
     "as that is predicted to save time), on (all of it), off; default auto",
     0},
    {"half-batches", OPT_HALF_BATCHES, "MODE", 0,
     "of several sequences, draft one half while the target verifies the other: auto (where it was "
     "measured to pay), on, off; default auto",
     0},
    {"strict-config", OPT_STRICT_CONFIG, NULL, 0,
     "refuse a draft whose config.json has keys that are not known here, which otherwise are a "
     "warning in the log",
     0},
    {"draft-head", OPT_HEAD, "FILE[:N]", 0,
     "guess among the N most frequent tokens of a list made by 'outrider count' or --count-tokens "
     "(default all of it): the head is smaller and the draft faster, and every rule keeps its "
     "promise",
     0},
    {"count-tokens", OPT_COUNT, "FILE", 0,
     "count the tokens of prompts and answers in a list for --draft-head; goes on with FILE if it "
     "exists",
     0},
    {"draft-kv-tokens", OPT_DRAFT_KV, "N", 0,
     "positions of the draft's KV cache, of all sequences together; default 16384", 0},
    {"sequences", OPT_SEQUENCES, "N", 0,
     "texts that are made at a time, 1 to 256, at most the workers' --slots; default 64", 0},
    {"prompt-stretch", OPT_STRETCH, "X", 0,
     "a step that also reads prompts may take X times as long as one that does not, 1 to 100, and "
     "always has room for 64 tokens of prompts; where nobody decodes, X or 16 times as long as a "
     "step of one token, whichever is more; default 2",
     0},
    {"client-weight", OPT_WEIGHT, "NAME=W", 0,
     "where requests wait, clients of this name get W times the share of others of their class, 1 "
     "to 1000; may be given again",
     0},
    {"calibrate", OPT_CALIBRATE, "MS", 0,
     "milliseconds to measure a new pair of models before it serves; where steps of up to 64 rows "
     "take longer, up to ten times as many; 0 = learn from requests alone; default 1000",
     0},
    {"queue", OPT_QUEUE, "N", 0, "requests that may wait; default 64", 0},
    {"queue-bytes", OPT_QUEUE_BYTES, "N", 0,
     "memory that requests may occupy together while they wait or run; default 268435456", 0},
    {"jobs-kept", OPT_JOBS_KEPT, "N", 0,
     "submitted jobs that are kept, those that have ended until newer ones need their place; "
     "default 4096",
     0},
    {"jobs-bytes", OPT_JOBS_BYTES, "N", 0,
     "memory for submitted jobs and their answers; default 268435456", 0},
    {"reader-timeout", OPT_READER_TIMEOUT, "SECONDS", 0,
     "a request or a watch of a job ends when its client has read no message for so long although "
     "much waits for it; default 60",
     0},
    {"drain-timeout", OPT_DRAIN_TIMEOUT, "SECONDS", 0,
     "after SIGTERM nothing new is taken, and requests that were accepted get so long to finish; a "
     "second SIGTERM ends the process at once; default 5",
     0},
    {"step-timeout", OPT_STEP_TIMEOUT, "SECONDS", 0,
     "a step that takes longer loses the group, and its requests fail; so does one of 20 times "
     "what steps of its size have taken, if that is 5 s or more; default 120",
     0},
    {"max-prompt-bytes", OPT_PROMPT_BYTES, "N", 0, "longest text accepted; default 4194304", 0},
    {"pin", OPT_PIN, "LIST", 0,
     "CPUs for the draft's compute threads, one each, such as 0,2; off or auto: anywhere; default "
     "auto",
     0},
    {"metrics", OPT_METRICS, "ADDRESS", 0,
     "HOST:PORT where Prometheus reads /metrics, beside other addresses; default none", 0},
    {"metrics-vllm", OPT_METRICS_VLLM, NULL, 0,
     "show the metrics that vLLM has under its names (vllm:...), too", 0},
    {"log-jobs", OPT_LOG_JOBS, "WORD", 0,
     "on: a line of log for each request that ends, with ids and figures and nothing of its text; "
     "off: only for those that fail; default on",
     0},
    {"log-load", OPT_LOG_LOAD, "SECONDS", 0,
     "a line of figures so often while there is work; 0 = none; default 10", 0},
    {0},
};

struct arguments {
    struct coordinator_options options;
    struct program_log log;
    struct guard guard;
    struct comm *world, *own; /* everything that one mpirun started, and this process in it */
    struct coordinator *coordinator; /* once it is open */
    struct target_list targets;
    bool has_target, is_mpi;
};

static error_t parse_strategy(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    struct error err;
    int word;
    if (options_word(&word, "--strategy", text, strategy_names + STRATEGY_PLANNED,
                     N_STRATEGIES - STRATEGY_PLANNED, &err)) {
        argp_failure(state, 2, 0, "%s", err.text);
    } else {
        args->options.strategy = (enum strategy)(STRATEGY_PLANNED + word);
    }
    return 0;
}

static error_t parse_threshold(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    struct error err;
    if (options_float(&args->options.threshold, "--threshold", text, 0, 1, &err)) {
        argp_failure(state, 2, 0, "%s", err.text);
    }
    return 0;
}

static error_t add_weight(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    struct coordinator_options *c = &args->options;
    if (c->n_client_weights == WAITING_WEIGHTS_MAX) {
        argp_failure(state, 2, 0, "--client-weight: more than %d", WAITING_WEIGHTS_MAX);
    }
    c->client_weights[c->n_client_weights++] = text;
    return 0;
}

static error_t parse_stretch(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    struct error err;
    float stretch;
    if (options_float(&stretch, "--prompt-stretch", text, 1, 100, &err)) {
        argp_failure(state, 2, 0, "%s", err.text);
    }
    args->options.step_stretch = (double)stretch;
    return 0;
}

static error_t parse_served_name(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    size_t len = strlen(text);
    if (len == 0 || len >= COORDINATOR_NAME_BYTES) {
        argp_failure(state, 2, 0, "--served-name: the name has %zu bytes, must have 1 to %d", len,
                     COORDINATOR_NAME_BYTES - 1);
    }
    args->options.served_name = text;
    return 0;
}

/* "on" or "off". is_inverted: *out is true when it is off. */
static error_t parse_switch(struct argp_state *state, bool *out, const char *option,
                            const char *text, bool is_inverted)
{
    static const char *const words[] = {"off", "on"};
    struct error err;
    int word = 0;
    if (options_word(&word, option, text, words, 2, &err)) {
        argp_failure(state, 2, 0, "%s", err.text);
    }
    *out = (word == 1) != is_inverted;
    return 0;
}

/* What is told about the work. */
static error_t parse_signal_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct coordinator_options *c = &args->options;
    switch (key) {
    case OPT_METRICS:
        c->metrics = arg;
        return 0;
    case OPT_METRICS_VLLM:
        c->has_vllm_metrics = true;
        return 0;
    case OPT_LOG_JOBS:
        return parse_switch(state, &c->log_jobs, "--log-jobs", arg, false);
    case OPT_LOG_LOAD:
        return program_parse_int(state, &c->log_load_s, "--log-load", arg, 0, 86400);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void check_options(struct argp_state *state)
{
    const struct arguments *args = state->input;
    const struct coordinator_options *c = &args->options;
    bool has_http = c->http && strcmp(c->http, "off") != 0;
    struct error err;
    bool has_list = args->targets.n_addresses + args->targets.n_names > 0;
    if (!args->has_target) argp_failure(state, 2, 0, "--target is missing");
    if (args->is_mpi && has_list) {
        argp_failure(state, 2, 0, "--target mpi stands alone: mpirun says where the ranks are");
    }
    if (!c->tokenizer && strcmp(c->draft, "none") == 0) {
        argp_failure(state, 2, 0,
                     "--draft or --tokenizer is missing: without a draft model, name "
                     "the target's folder with --tokenizer");
    }
    int rc = guard_check(&args->guard, "--listen", c->listen, &err);
    if (!rc && has_http) rc = guard_check(&args->guard, "--http", c->http, &err);
    if (rc) argp_failure(state, 2, 0, "%s", err.text);
}

static error_t add_targets(struct argp_state *state, const char *text)
{
    struct arguments *args = state->input;
    struct error err;
    args->has_target = true;
    args->is_mpi = args->is_mpi || strcmp(text, "mpi") == 0;
    if (strcmp(text, "mpi") == 0) return 0;
    if (target_list_add(&args->targets, text, &err)) argp_failure(state, 2, 0, "%s", err.text);
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *args = state->input;
    struct coordinator_options *c = &args->options;
    struct error err;
    switch (key) {
    case OPT_STRATEGY:
        return parse_strategy(state, arg);
    case OPT_THRESHOLD:
        return parse_threshold(state, arg);
    case 'w':
        return add_targets(state, arg);
    case OPT_GROUPS:
        return program_parse_int(state, &c->n_groups, "--groups", arg, 1, GROUPS_MAX);
    case 'd':
        c->draft = arg;
        return 0;
    case OPT_STORE_TOKENS:
        return program_parse_int(state, &c->store_tokens, "--store-tokens", arg, 1024, 1 << 28);
    case OPT_STORE_SHARED:
        c->store_is_shared = true;
        return 0;
    case OPT_TREES:
        if (trees_parse(arg, &c->trees, &err)) argp_failure(state, 2, 0, "%s", err.text);
        return 0;
    case OPT_LOOKUP:
        if (drafters_check(arg, &err)) argp_failure(state, 2, 0, "%s", err.text);
        c->lookup = arg;
        return 0;
    case 'l':
        c->listen = arg;
        return 0;
    case 'K':
        return program_parse_int(state, &c->n_draft, "--draft-tokens", arg, 0, DRAFT_MAX);
    case OPT_TOKENIZER:
        c->tokenizer = arg;
        return 0;
    case OPT_SERVED_NAME:
        return parse_served_name(state, arg);
    case OPT_SUPPORT:
        return program_parse_int(state, &c->support, "--draft-support", arg, 1, SUPPORT_MAX);
    case OPT_DRAFT_AHEAD:
        if (ahead_parse_mode(arg, &c->draft_ahead, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    case OPT_LOOKUP_APPEND:
        if (appended_parse_mode(arg, &c->lookup_append, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    case OPT_DRAFT_STAGED:
        if (staged_parse_mode(arg, &c->draft_staged, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    case OPT_HALF_BATCHES:
        if (halves_parse_mode(arg, &c->half_batches, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    case OPT_STRICT_CONFIG:
        c->is_strict_config = true;
        return 0;
    case OPT_HEAD:
        c->draft_head = arg;
        return 0;
    case OPT_COUNT:
        c->count_tokens = arg;
        return 0;
    case OPT_DRAFT_KV:
        return program_parse_int(state, &c->draft_kv_tokens, "--draft-kv-tokens", arg, 16, 1 << 28);
    case OPT_SEQUENCES:
        return program_parse_int(state, &c->n_sequences, "--sequences", arg, 1, SEQUENCES_MAX);
    case OPT_STRETCH:
        return parse_stretch(state, arg);
    case OPT_WEIGHT:
        return add_weight(state, arg);
    case OPT_CALIBRATE:
        return program_parse_int(state, &c->calibrate_ms, "--calibrate", arg, 0, 60000);
    case OPT_QUEUE:
        return program_parse_int(state, &c->queue_capacity, "--queue", arg, 1, 65536);
    case OPT_QUEUE_BYTES:
        return program_parse_int(state, &c->queue_bytes, "--queue-bytes", arg, 65536, INT32_MAX);
    case OPT_JOBS_KEPT:
        return program_parse_int(state, &c->jobs_kept, "--jobs-kept", arg, 1, 1 << 20);
    case OPT_JOBS_BYTES:
        return program_parse_int(state, &c->jobs_bytes, "--jobs-bytes", arg, 65536, INT32_MAX);
    case OPT_READER_TIMEOUT:
        return program_parse_int(state, &c->reader_timeout_s, "--reader-timeout", arg, 1, 86400);
    case OPT_DRAIN_TIMEOUT:
        return program_parse_int(state, &c->drain_timeout_s, "--drain-timeout", arg, 0, 86400);
    case OPT_STEP_TIMEOUT:
        return program_parse_int(state, &c->step_timeout_s, "--step-timeout", arg, 1, 86400);
    case OPT_PROMPT_BYTES:
        return program_parse_int(state, &c->max_prompt_bytes, "--max-prompt-bytes", arg, 1,
                                 GENERATE_PROMPT_BYTES_MAX);
    case OPT_PIN:
        return program_parse_pin(state, &c->pin_wish, arg);
    case OPT_HTTP:
        c->http = arg;
        return 0;
    case OPT_HTTP_CONNECTIONS:
        return program_parse_int(state, &c->http_connections, "--http-connections", arg, 1, 65536);
    case OPT_CORS:
        c->cors_origin = arg;
        return 0;
    case OPT_CHAT_TEMPLATE:
        c->chat_template = arg;
        return 0;
    case OPT_GENERATION_CONFIG:
        return parse_switch(state, &c->ignores_generation_config, "--generation-config", arg, true);
    case OPT_USER_SPECIAL:
        return parse_switch(state, &c->guards_users, "--user-special-tokens", arg, true);
    case OPT_MAX_STOPS:
        return program_parse_int(state, &c->max_stops, "--max-stops", arg, 1, GENERATE_STOPS_MAX);
    case OPT_MAX_TEXTS:
        return program_parse_int(state, &c->max_texts, "--max-texts", arg, 1,
                                 GENERATE_SEQUENCES_MAX);
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &c->backend;
        state->child_inputs[1] = &args->guard;
        state->child_inputs[2] = &args->log;
        return 0;
    case ARGP_KEY_END:
        check_options(state);
        return 0;
    default:
        return parse_signal_option(key, arg, state);
    }
}

/* With --target mpi: the processes of this mpirun, of which this one is the only coordinator. */
static int open_world(struct arguments *args, struct error *err)
{
    int rc = 0;
    if (!comm_mpi_is_launched()) {
        return error_set(err, ERR_ARGUMENT,
                         "--target mpi needs one mpirun that starts coordinator and workers; give "
                         "--target ADDRESS,ADDRESS,... otherwise");
    }
    TRY(comm_mpi_open(&args->world, err));
    TRY(comm_mpi_split(&args->own, args->world, ROSTER_COORDINATOR, err));
    if (args->own->size != 1 || args->world->size == 1) {
        rc = error_set(
            err, ERR_ARGUMENT,
            "this mpirun started %d coordinators and %d workers; expected one coordinator "
            "and at least one worker",
            args->own->size, args->world->size - args->own->size);
    }
out:
    return rc;
}

/* A DNS server that drops a question costs 5 s by default. Before other threads read the
 * environment. */
static void hasten_resolver(void)
{
    setenv("RES_OPTIONS", "timeout:1 attempts:3", 0);
}

static int read_guard(void *arg, struct error *err)
{
    struct arguments *args = arg;
    return guard_read(&args->guard, err);
}

static int open_coordinator(void *arg, struct error *err)
{
    struct arguments *args = arg;
    int rc = args->is_mpi ? open_world(args, err) : 0;
    if (rc) return rc;
    args->options.targets = &args->targets;
    args->options.world = args->world;
    args->options.guard = &args->guard;
    return coordinator_open(&args->coordinator, &args->options, err);
}

static int run_coordinator(void *arg, struct error *err)
{
    struct arguments *args = arg;
    return coordinator_run(args->coordinator, err);
}

static void stop_coordinator(void *arg)
{
    struct arguments *args = arg;
    coordinator_stop(args->coordinator);
}

static void reload_files(void *arg)
{
    struct arguments *args = arg;
    guard_reload(&args->guard);
}

static void close_coordinator(void *arg)
{
    struct arguments *args = arg;
    coordinator_close(args->coordinator);
    guard_close(&args->guard);
    comm_close(args->own);
    comm_close(args->world);
}

int main(int argc, char **argv)
{
    static struct arguments args = {
        .options = {.listen = "127.0.0.1:7070",
                    .http = "127.0.0.1:8000",
                    .http_connections = 2048,
                    .max_stops = GENERATE_STOPS_MAX,
                    .max_texts = GENERATE_SEQUENCES_MAX,
                    .n_groups = GROUPS_DEFAULT,
                    .draft = "none",
                    .lookup = LOOKUP_DEFAULT,
                    .store_tokens = STORE_TOKENS_DEFAULT,
                    .n_draft = -1,
                    .strategy = STRATEGY_PLANNED,
                    .threshold = 0.4f,
                    .support = 64,
                    .draft_kv_tokens = 16384,
                    .n_sequences = ENGINE_SEQUENCES_DEFAULT,
                    .step_stretch = 2,
                    .calibrate_ms = 1000,
                    .queue_capacity = 64,
                    .queue_bytes = 256 << 20,
                    .jobs_kept = 4096,
                    .jobs_bytes = 256 << 20,
                    .step_timeout_s = 120,
                    .reader_timeout_s = 60,
                    .drain_timeout_s = 5,
                    .max_prompt_bytes = 4 << 20,
                    .log_jobs = true,
                    .log_load_s = REPORTER_LOAD_S},
        .log = {.level = LOG_LEVEL_INFO},
    };
    const struct argp_child children[] = {{&backend_argp, 0, "Where the draft runs:", 0},
                                          {&guard_argp, 0, "Keys and certificates:", 0},
                                          {&program_argp, 0, NULL, 0},
                                          {0}};
    const struct argp argp = {.options = options,
                              .parser = parse_option,
                              .children = children,
                              .doc = "Serves a target model with speculative decoding."};
    backend_options_init(&args.options.backend);
    if (getenv("OUTRIDER_HTTP")) args.options.http = getenv("OUTRIDER_HTTP");
    program_parse(&argp, argc, argv, &args);
    hasten_resolver();
    const struct program program = {.name = "outrider-coordinator",
                                    .log = args.log,
                                    .stop_grace_ms =
                                        STOP_GRACE_MS + 1000 * args.options.drain_timeout_s,
                                    .read = read_guard,
                                    .open = open_coordinator,
                                    .run = run_coordinator,
                                    .stop = stop_coordinator,
                                    .reload = guard_has_files(&args.guard) ? reload_files : NULL,
                                    .close = close_coordinator};
    return program_run(&program, &args);
}
