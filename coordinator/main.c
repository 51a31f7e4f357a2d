/* outrider-coordinator: takes generation jobs, drafts, verifies on the workers, answers. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/system/program.h"
#include "comm/comm_mpi.h"
#include "comm/roster.h"
#include "config/config_file.h"
#include "coordinator/coordinator.h"
#include "coordinator/credentials.h"
#include "coordinator/engine/engine.h"
#include "coordinator/job/groups.h"
#include "coordinator/schedule/plan.h"
#include "model/backend/options.h"
#include "proto/generation_wire.h"
#include "speculation/accept/rules.h"

const char *argp_program_version = "outrider-coordinator " OUTRIDER_VERSION;

enum {
    STOP_GRACE_MS = 1500, /* after draining */
    SUPPORT_MAX = 4096
};

struct arguments {
    struct coordinator_options options;
    struct program_log log;
    struct credentials credentials;
    struct comm *world, *own; /* everything that one mpirun started, and this process in it */
    struct coordinator *coordinator; /* once it is open */
    struct target_list targets;
    bool has_target, is_mpi;
    bool has_draft_ahead, has_half_batches; /* options that were removed */
    const char *old_draft_head;             /* --draft-vocab by its former name */
};

/* ---- the options ---- */

/* Values that are more than a number or a word. The field is args where a row names none. */

static int add_targets(void *fields, const char *option, const char *text, struct error *err)
{
    struct arguments *args = fields;
    (void)option;
    args->has_target = true;
    args->is_mpi = args->is_mpi || strcmp(text, "mpi") == 0;
    return strcmp(text, "mpi") == 0 ? 0 : target_list_add(&args->targets, text, err);
}

static int add_weight(void *fields, const char *option, const char *text, struct error *err)
{
    struct arguments *args = fields;
    struct coordinator_options *c = &args->options;
    if (c->n_client_weights == WAITING_WEIGHTS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d", option, WAITING_WEIGHTS_MAX);
    }
    c->client_weights[c->n_client_weights++] = text;
    return 0;
}

static int read_served_name(void *field, const char *option, const char *text, struct error *err)
{
    size_t len = strlen(text);
    if (len == 0 || len >= COORDINATOR_NAME_BYTES) {
        return error_set(err, ERR_ARGUMENT, "%s: the name has %zu bytes, must have 1 to %d", option,
                         len, COORDINATOR_NAME_BYTES - 1);
    }
    *(const char **)field = text;
    return 0;
}

static int read_trees(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    return trees_parse(text, field, err);
}

static int read_tree_rule(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    return tree_rule_parse(text, field, err);
}

/* Any value will do, because none means anything any more. */
static int read_removed(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    (void)text;
    (void)err;
    *(bool *)field = true;
    return 0;
}

static void list_tree_rules(char *text, size_t size)
{
    tree_rule_list(text, size, "or");
}

static int read_lookup(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    *(const char **)field = text;
    return drafters_check(text, err);
}

#define FIELD(member)          OPTION_FIELD(struct arguments, member)
#define READ(member, function) OPTION_READ(struct arguments, options.member, function)

/* An option of an older version, which does nothing but leave a line in the log. */
#define REMOVED(member) OPTION_READ(struct arguments, member, read_removed), .is_removed = true

/* In the order of their enums. */
static const char *const auto_first[] = {
    [STAGED_AUTO] = "auto", [STAGED_ON] = "on", [STAGED_OFF] = "off"};
static const char *const off_first[] = {
    [APPEND_OFF] = "off", [APPEND_AUTO] = "auto", [APPEND_ON] = "on"};

static const struct option_row rows[] = {
    OPTION_GROUP("Target and draft", "--target=10.0.0.2:7071,10.0.0.3:7071 --draft=/models/small"),
    {"target", 'w', "LIST", .read = add_targets,
     .help = "where the ranks of all groups are, separated by commas and in any order: "
             "HOST:PORT, unix:PATH, dns:NAME:PORT (every address of NAME, looked up again and "
             "again) or lws:PORT (the pods of the LeaderWorkerSet group that this pod leads); "
             "or mpi, when one mpirun starts everything; may be given again"},
    {"draft", 'd', "MODEL", FIELD(options.draft), .standard = "none",
     .help = "draft model: a folder, ORG/NAME in the Hugging Face cache, a GGUF file, "
             "synthetic:SHAPE,seed=S[,agree=A,draft=1] or none; with ,layers=0-3,12-15 after it "
             "(the target's own folder, for example) only these layers of it"},
    {"tokenizer", 0, "FOLDER", FIELD(options.tokenizer),
     .help =
         "tokenizer: a folder, ORG/NAME or a GGUF file; default the draft's; without a draft it "
         "must be given"},
    OPTION_GROUP("Models", "--head=/models/head --served-name=large"),
    {"groups", 0, "N", FIELD(options.n_groups), .least = 1, .most = GROUPS_MAX,
     .standard_int = GROUPS_DEFAULT, .help = "groups that are used at a time, at most, 1 to 16"},
    {"head", 0, "FOLDER", FIELD(options.head),
     .help = "a head drafts, in place of a draft model or besides one: the folder, or ORG/NAME, of "
             "an EAGLE, DFlash, DSpark, Medusa or blockwise head, of MiMo-7B with its MTP layer, "
             "or of look-ahead embeddings (PaSS), which the workers hold, too. It guesses from the "
             "target's hidden states; --tokenizer names the target. With --draft, too, the planner "
             "chooses between the two, and requests with a K of their own take the head, but the "
             "draft model where there are look-ahead embeddings"},
    {"head-unchecked", 0, NULL, FIELD(options.head_unchecked),
     .help = "the head guesses from the first request on, as its file says or as an earlier start "
             "has found; otherwise texts of the target first show how its file is meant, and a "
             "head of whose first guesses fewer than 5 % are right does not guess"},
    {"served-name", 0, "NAME", READ(served_name, read_served_name),
     .help = "what clients are told that the target is called; default the last part of its "
             "folder, ORG/NAME, or the general.name of its GGUF file, without which it is the "
             "file's own name"},
    {"strict-config", 0, NULL, FIELD(options.is_strict_config),
     .help = "refuse a draft whose config.json has keys that are not known here, which "
             "otherwise are a warning in the log"},
    {"chat-template", 0, "FILE", FIELD(options.chat_template),
     .help = "Jinja template of conversations, or a GGUF file that has one; default that of "
             "--tokenizer if it is given and "
             "has one, otherwise the target's, or the draft's if the target has none"},
    {"generation-config", 0, "WORD", FIELD(options.ignores_generation_config), .is_inverted = true,
     .standard = "on",
     .help = "on: the target's generation_config.json says how texts are sampled "
             "(temperature, top_k, top_p, min_p, repetition_penalty) where a request does "
             "not; off: it does not"},
    {"user-special-tokens", 0, "WORD", FIELD(options.guards_users), .is_inverted = true,
     .standard = "on",
     .help = "on: a text of a special token in a message is that token, as in transformers; "
             "off: only those that the chat template writes are, so that users cannot write "
             "any"},
    OPTION_GROUP("Serving", "--listen=0.0.0.0:7070 --http=0.0.0.0:8000"),
    {"listen", 'l', "ADDRESS", FIELD(options.listen), .standard = "127.0.0.1:7070",
     .help = "HOST:PORT or unix:PATH"},
    {"http", 0, "ADDRESS", FIELD(options.http), .standard = "127.0.0.1:8000",
     .variable = "OUTRIDER_HTTP",
     .help = "HOST:PORT of OpenAI's API, the page and the metrics; off = none"},
    {"http-connections", 0, "N", FIELD(options.http_connections), .least = 1, .most = 65536,
     .standard_int = 2048, .help = "connections that the HTTP door takes at a time"},
    {"cors", 0, "ORIGIN", FIELD(options.cors_origin),
     .help = "pages of this origin, such as https://example.org, may use the HTTP door from a "
             "browser; * = all; default none"},
    {"max-stops", 0, "N", FIELD(options.max_stops), .least = 1, .most = GENERATE_STOPS_MAX,
     .standard_int = GENERATE_STOPS_MAX,
     .help = "stop strings that a request over HTTP may have, 1 to 16"},
    {"max-texts", 0, "N", FIELD(options.max_texts), .least = 1, .most = GENERATE_SEQUENCES_MAX,
     .standard_int = GENERATE_SEQUENCES_MAX,
     .help = "texts of one prompt, n, that a request over HTTP may ask for, 1 to 64"},
    {"serve-features", 0, NULL, FIELD(options.serves_features),
     .help = "let callers of Score over gRPC have the target's features, which `outrider record` "
             "writes down: its residual stream at chosen layers, with which draft models are "
             "trained, and from which much of the target itself can be learned"},
    {"max-prompt-bytes", 0, "N", FIELD(options.max_prompt_bytes), .least = 1,
     .most = GENERATE_PROMPT_BYTES_MAX, .standard_int = 4 << 20, .help = "longest text accepted"},
    OPTION_GROUP("Speculation", "--lookup=session,store --trees=off"),
    {"strategy", 0, "NAME", FIELD(options.strategy), .words = strategy_names + STRATEGY_PLANNED,
     .n_words = N_STRATEGIES - STRATEGY_PLANNED, .least = STRATEGY_PLANNED, .standard = "planned",
     .help = "how the number of guesses per round is chosen where a request does not say: planned "
             "(what is measured to be fastest), fixed, heuristic or threshold"},
    {"draft-tokens", 'K', "K", FIELD(options.n_draft), .most = DRAFT_MAX,
     .help = "guesses per round of strategy fixed, the most of others, 0 to 16; default 4 and "
             "16"},
    {"threshold", 0, "P", FIELD(options.threshold), .most = 1, .standard = "0.4",
     .help =
         "with strategy threshold, end a round's guesses with the first one that the draft gave "
         "less than P"},
    {"trees", 0, "MODE", READ(trees, read_trees), .standard = "auto", .names = trees_list,
     .help = "guess several tokens for a place, where the planner expects that it pays: off (one "
             "chain of guesses), siblings (alternatives for a place, of which only the first is "
             "guessed on from), static (a tree that the planner shapes by rates of acceptance), "
             "dynamic (a tree of which the draft's own q says which guesses it goes on from) or "
             "auto, which is static. A tree such as 3,2,1 is auto, but requests of strategy fixed "
             "get 3 guesses of a draft model, 2 after each of these, and so on. NAMES. Such a tree "
             "has at most 31 guesses, and chains as many beside the first one"},
    {"tree-rule", 0, "RULE", READ(tree_rule, read_tree_rule), .standard = "auto",
     .names = list_tree_rules,
     .help = "judge the chains of --trees=chains:KxL by this rule, where a request does not say: "
             "NAMES. "
             "auto is the request's own rule; the others are for requests of strategy fixed under "
             "rule rejection or block at a temperature above 0, and elsewhere they are as auto"},
    {"lookup", 0, "LIST", READ(lookup, read_lookup), .standard = LOOKUP_DEFAULT,
     .help = "where guesses are looked up, besides or without a draft model; separated by "
             "commas" LOOKUP_HELP "; or none"},
    {"lookup-append", 0, "MODE", FIELD(options.lookup_append), .words = off_first, .n_words = 3,
     .expected = "auto, on or off", .standard = "off",
     .help =
         "add tokens found by --lookup session after the draft model's guesses, in planned "
         "texts: auto (where they are predicted to be worth their rows), on (all of them), off"},
    {"store-tokens", 0, "N", FIELD(options.store_tokens), .least = 1024, .most = 1 << 28,
     .standard_int = STORE_TOKENS_DEFAULT,
     .help = "tokens that --lookup store keeps at most, of 62 bytes each"},
    {"store-shared", 0, NULL, FIELD(options.store_is_shared),
     .help =
         "share the texts of --lookup store and recycled among all API keys: how fast an answer "
         "comes can then tell what other keys have generated; without it each key has its own"},
    {"draft-support", 0, "N", FIELD(options.support), .least = 1, .most = SUPPORT_MAX,
     .standard_int = 64, .help = "draw guesses from the draft's N best tokens, renormalised"},
    {"draft-staged", 0, "MODE", FIELD(options.draft_staged), .words = auto_first, .n_words = 3,
     .expected = "auto, on or off", .standard = "auto",
     .help =
         "save passes of the draft: it reads ahead in one pass the tokens that --lookup session "
         "expects it to guess: auto (as far as that is predicted to save time), on (all of "
         "them), off"},
    {"draft-vocab", 0, "FILE[:N]", FIELD(options.draft_vocabulary),
     .help = "guess among the N most frequent tokens of a list made by 'outrider count' or "
             "--count-tokens (default all of it): the head is smaller and the draft faster, "
             "and every rule keeps its promise"},
    {"count-tokens", 0, "FILE", FIELD(options.count_tokens),
     .help = "count the tokens of prompts and answers in a list for --draft-vocab; goes on "
             "with FILE if it exists"},
    {"calibrate", 0, "MS", FIELD(options.calibrate_ms), .most = 60000, .standard_int = 1000,
     .help = "milliseconds to measure a new pair of models for, while no text is generated; where "
             "steps of up to 64 rows take longer, up to ten times as many; 0 = learn from "
             "requests alone"},
    {"draft-head", 0, "FILE[:N]", FIELD(old_draft_head), .is_removed = true,
     .help = "is called --draft-vocab"},
    {"draft-ahead", 0, "MODE", REMOVED(has_draft_ahead), .help = "was removed"},
    {"half-batches", 0, "MODE", REMOVED(has_half_batches), .help = "was removed"},
    OPTION_GROUP("Memory and load", "--sequences=128 --draft-kv-tokens=65536"),
    {"sequences", 0, "N", FIELD(options.n_sequences), .least = 1, .most = SEQUENCES_MAX,
     .standard_int = ENGINE_SEQUENCES_DEFAULT,
     .help = "texts that are generated at a time, 1 to 256, at most the workers' --slots"},
    {"draft-kv-tokens", 0, "N", FIELD(options.draft_kv_tokens), .least = 16, .most = 1 << 28,
     .standard_int = 16384,
     .help = "positions of the KV cache of each draft model, of all sequences together"},
    {"prompt-stretch", 0, "X", FIELD(options.step_stretch), .least = 1, .most = 100,
     .standard_int = 2,
     .help = "a step that also reads prompts may take X times as long as one that does not, 1 "
             "to 100, and always has room for 64 tokens of prompts; where nobody decodes, X "
             "or 16 times as long as a step of one token, whichever is more"},
    {"client-weight", 0, "NAME=W", .read = add_weight,
     .help = "where requests wait, clients of this name get W times the share of others of "
             "their class, 1 to 1000; may be given again"},
    {"queue", 0, "N", FIELD(options.queue_capacity), .least = 1, .most = 65536, .standard_int = 64,
     .help = "requests that may wait"},
    {"queue-bytes", 0, "N", FIELD(options.queue_bytes), .least = 65536, .most = INT32_MAX,
     .standard_int = 256 << 20,
     .help = "memory that requests may occupy together while they wait or run"},
    {"jobs-kept", 0, "N", FIELD(options.jobs_kept), .least = 1, .most = 1 << 20,
     .standard_int = 4096,
     .help = "submitted jobs that are kept, those that have ended until newer ones need their "
             "place"},
    {"jobs-bytes", 0, "N", FIELD(options.jobs_bytes), .least = 65536, .most = INT32_MAX,
     .standard_int = 256 << 20, .help = "memory for submitted jobs and their answers"},
    OPTION_GROUP("Time limits", "--step-timeout=30 --drain-timeout=60"),
    {"reader-timeout", 0, "SECONDS", FIELD(options.reader_timeout_s), .least = 1, .most = 86400,
     .standard_int = 60,
     .help = "a request or a watch of a job ends when its client has read no message for so "
             "long although much waits for it"},
    {"drain-timeout", 0, "SECONDS", FIELD(options.drain_timeout_s), .most = 86400,
     .standard_int = 5,
     .help = "after SIGTERM nothing new is taken, and requests that were accepted get so long "
             "to finish; a second SIGTERM ends the process at once"},
    {"step-timeout", 0, "SECONDS", FIELD(options.step_timeout_s), .least = 1, .most = 86400,
     .standard_int = 120,
     .help = "a step that takes longer loses the group, and its requests fail; so does one of "
             "20 times what steps of its size have taken, if that is 5 s or more"},
    OPTION_GROUP("Where the model runs", "--device=cuda:0 --pin=0,2"),
    {"pin", 0, "LIST", READ(pin_wish, program_read_pin), .standard = "auto",
     .help = "CPUs for the draft's compute threads, one each, such as 0,2; off or auto: "
             "anywhere"},
    OPTION_GROUP("Log and metrics", "--metrics=0.0.0.0:9090 --log-jobs=off"),
    {"metrics", 0, "ADDRESS", FIELD(options.metrics),
     .help = "HOST:PORT where Prometheus reads /metrics, beside other addresses; default none"},
    {"metrics-vllm", 0, NULL, FIELD(options.has_vllm_metrics),
     .help = "show the metrics that vLLM has under its names (vllm:...), too"},
    {"log-jobs", 0, "WORD", FIELD(options.log_jobs), .standard = "on",
     .help = "on: a line of log for each request that ends, with ids and figures and nothing "
             "of its text; off: only for those that fail"},
    {"log-load", 0, "SECONDS", FIELD(options.log_load_s), .most = 86400,
     .standard_int = REPORTER_LOAD_S,
     .help = "a line of figures so often while there is work; 0 = none"},
    {0},
};

static int check_options(void *fields, struct error *err)
{
    const struct arguments *args = fields;
    const struct coordinator_options *c = &args->options;
    bool has_http = c->http && strcmp(c->http, "off") != 0;
    bool has_list = args->targets.n_addresses + args->targets.n_names > 0;
    if (!args->has_target) return error_set(err, ERR_ARGUMENT, "--target is missing");
    if (args->is_mpi && has_list) {
        return error_set(err, ERR_ARGUMENT,
                         "--target mpi is given alone: mpirun says where the ranks are");
    }
    if (c->head && !c->tokenizer) {
        return error_set(err, ERR_ARGUMENT,
                         "--tokenizer is missing: --head %s guesses for one target, whose folder "
                         "it names",
                         c->head);
    }
    if (!c->tokenizer && strcmp(c->draft, "none") == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--draft or --tokenizer is missing: without a draft model, name "
                         "the target's folder with --tokenizer");
    }
    if (c->tree_rule && c->tree_rule->accept &&
        (!c->trees.fixed.is_independent || (strcmp(c->draft, "none") == 0 && !c->head))) {
        return error_set(
            err, ERR_ARGUMENT,
            "--tree-rule %s is for independent chains of a draft model: give --draft and "
            "--trees chains:KxL, too, or leave --tree-rule out",
            c->tree_rule->name);
    }
    int rc = credentials_check(&args->credentials, "--listen", c->listen, err);
    if (!rc && has_http) rc = credentials_check(&args->credentials, "--http", c->http, err);
    return rc;
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

static int read_credentials(void *arg, struct error *err)
{
    struct arguments *args = arg;
    return credentials_read(&args->credentials, err);
}

/* Deployments of the version before may give options that this one has no more. */
static void note_removed(const char *option)
{
    log_line(LOG_LEVEL_WARN, "option_removed",
             "option=%s text=\"it does nothing any more, because it made no texts faster; the next "
             "version refuses it\"",
             option);
}

static int check_coordinator(void *arg, struct error *err)
{
    struct arguments *args = arg;
    return coordinator_check(&args->options, err);
}

static int open_coordinator(void *arg, struct error *err)
{
    struct arguments *args = arg;
    if (args->has_draft_ahead) note_removed("--draft-ahead");
    if (args->has_half_batches) note_removed("--half-batches");
    if (args->old_draft_head) {
        log_line(LOG_LEVEL_WARN, "option_renamed",
                 "option=--draft-head text=\"it is called --draft-vocab now, and the next "
                 "version refuses the old name\"");
        if (!args->options.draft_vocabulary) args->options.draft_vocabulary = args->old_draft_head;
    }
    int rc = args->is_mpi ? open_world(args, err) : 0;
    if (rc) return rc;
    args->options.targets = &args->targets;
    args->options.world = args->world;
    args->options.credentials = &args->credentials;
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
    credentials_reload(&args->credentials);
}

static void close_coordinator(void *arg)
{
    struct arguments *args = arg;
    coordinator_close(args->coordinator);
    credentials_close(&args->credentials);
    comm_close(args->own);
    comm_close(args->world);
}

int main(int argc, char **argv)
{
    static struct arguments args = {.options = {.n_draft = -1}};
    const struct option_program options = {
        .variables = "OUTRIDER_COORDINATOR_",
        .example = "outrider-coordinator --target 10.0.0.2:7071 --draft models/draft",
        .read_file = config_file_read,
        .doc = "Serves a target model with speculative decoding.",
        .parts = {{rows, &args, check_options},
                  {backend_rows, &args.options.backend, NULL},
                  {credentials_rows, &args.credentials, credentials_finish},
                  {door_rows, &args.credentials.door, door_finish},
                  {program_rows, &args.log, NULL}}};
    program_options(&options, argc, argv);
    hasten_resolver();
    const struct program program = {
        .name = "outrider-coordinator",
        .log = args.log,
        .stop_grace_ms = STOP_GRACE_MS + 1000 * args.options.drain_timeout_s,
        .read = read_credentials,
        .check = check_coordinator,
        .open = open_coordinator,
        .run = run_coordinator,
        .stop = stop_coordinator,
        .reload = credentials_has_files(&args.credentials) ? reload_files : NULL,
        .close = close_coordinator};
    return program_run(&program, &args);
}
