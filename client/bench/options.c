/* Parses the command line of `outrider bench`. Options that say how to generate are those of
 * `outrider generate`. */
#include "client/bench/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/options.h"
#include "client/bench/prompts.h"
#include "client/client.h"

enum {
    OPT_PROMPTS = 256,
    OPT_PROMPT_TOKENS,
    OPT_SHARED_PREFIX,
    OPT_RATE,
    OPT_REQUESTS,
    OPT_WARMUP,
    OPT_REPETITIONS,
    OPT_SWEEP,
    OPT_START,
    OPT_START_TIMEOUT,
    OPT_TIMEOUT,
    OPT_CSV,
    OPT_JSON
};

enum {
    COUNT_MAX = 1000000,
    REPETITIONS_MAX = 10000,
    SECONDS_MAX = 86400,
    PROMPT_TOKENS_DEFAULT = 32,
    MAX_TOKENS_DEFAULT = 128,
    TIMEOUT_DEFAULT_S = 300,
    START_TIMEOUT_DEFAULT_S = 300,
    OPEN_LOOP_REQUESTS = 10
};

static const struct argp_option options[] = {
    {"prompts", OPT_PROMPTS, "FILE", 0,
     "Prompts, one a line, or JSON lines {\"prompt\": TEXT, \"n\": TOKENS}; taken in turn", 1},
    {"prompt-tokens", OPT_PROMPT_TOKENS, "N", 0,
     "Without --prompts: N random token ids each, drawn from --seed, and without it others in each "
     "run; default 32",
     1},
    {"shared-prefix", OPT_SHARED_PREFIX, "N", 0,
     "The first N tokens of all random prompts are the same; default 0", 1},
    {"concurrency", 'c', "N", 0, "Closed loop: N requests at once; default 1", 10},
    {"rate", OPT_RATE, "R", 0,
     "Open loop: R requests per second, with Poisson arrivals drawn from --seed", 10},
    {"requests", OPT_REQUESTS, "N", 0,
     "Requests to each arm in a repetition; default --concurrency, or 10 with --rate", 10},
    {"repetitions", 'r', "N", 0, "How often every arm is run; default 1", 10},
    {"warmup", OPT_WARMUP, "N", 0,
     "Requests to each arm before the first that counts, after every start; default 1", 10},
    {"sweep", OPT_SWEEP, "NAME=VALUES", 0,
     "Values to compare, such as K=plan,0..8,C=1,2,4,...,64,T=1,2: each combination is an arm; may "
     "be given again",
     11},
    {"start", OPT_START, "COMMAND", 0,
     "Start the cluster with this shell command, in which {T}, {address} and other swept names in "
     "braces, such as {groups}, are filled in, and end it with SIGTERM",
     11},
    {"start-timeout", OPT_START_TIMEOUT, "SECONDS", 0,
     "Time that it may take until it serves; default 300", 11},
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 12},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "A request fails after that long; default 300", 12},
    {"csv", OPT_CSV, "FILE", 0,
     "Write a row for each arm and repetition; the file grows after each repetition", 13},
    {"json", OPT_JSON, "FILE", 0,
     "Write rows, quartiles and a record of each request as one JSON object", 13},
    {"quiet", 'q', NULL, 0, "No tables, no progress", 13},
    {0},
};

static const char doc[] =
    "Measures a running cluster: tokens per second, latencies, acceptance, where a round's time "
    "goes.\v"
    "Every option of a request that takes a value can be swept by its long name, such as "
    "rule=rejection,block. Three more names are T (ranks; needs --start), C (--concurrency) "
    "and R (--rate); any other name that --start has in braces is for that command. K=plan is "
    "strategy planned. 1,2,4,...,64 goes on as it began. All arms run "
    "once a repetition, one after the other, in every second "
    "repetition from the last to the first. Ratios are over the arm with K = 0 of the same "
    "repetition. All arms of a repetition send the same requests: prompts in turn, and --seed plus "
    "the number of the request. The first token of a random prompt differs from slice to slice, so "
    "that no arm finds the prompts of another one in the prefix cache. -n is 128 unless "
    "given.\n\n"
    "Failed requests are counted and their reasons printed; the exit status is 1 then. When the "
    "server goes away the measurement ends, and what there is by then is printed, as after "
    "Ctrl-C.\n\n" CLIENT_STATUS_DOC;

struct parse {
    struct bench_options *options;
    struct generate_parse generate;
    struct error *err;
};

static int count(int *out, const char *option, const char *text, int least, int most,
                 const struct parse *p)
{
    return client_parser_result(options_int(out, option, text, least, most, p->err));
}

static error_t parse_load(int key, const char *arg, struct parse *p)
{
    struct bench_options *o = p->options;
    switch (key) {
    case 'c':
        return count(&o->base.concurrency, "--concurrency", arg, 1, ARM_CONCURRENCY_MAX, p);
    case OPT_RATE:
        return client_parser_result(
            options_float(&o->base.rate_hz, "--rate", arg, 1e-4f, 1e5f, p->err));
    case OPT_REQUESTS:
        return count(&o->n_requests, "--requests", arg, 1, COUNT_MAX, p);
    case 'r':
        return count(&o->n_repetitions, "--repetitions", arg, 1, REPETITIONS_MAX, p);
    case OPT_WARMUP:
        return count(&o->n_warmup, "--warmup", arg, 0, COUNT_MAX, p);
    case OPT_PROMPT_TOKENS:
        return count(&o->prompt_tokens, "--prompt-tokens", arg, 1, BENCH_PROMPT_TOKENS_MAX, p);
    case OPT_SHARED_PREFIX:
        return count(&o->shared_prefix, "--shared-prefix", arg, 0, BENCH_PROMPT_TOKENS_MAX, p);
    case OPT_SWEEP:
        return client_parser_result(sweep_parse(&o->sweep, arg, p->err));
    case OPT_TIMEOUT:
        return count(&o->timeout_s, "--timeout", arg, 1, SECONDS_MAX, p);
    case OPT_START_TIMEOUT:
        return count(&o->start_timeout_s, "--start-timeout", arg, 1, SECONDS_MAX, p);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;
    struct bench_options *o = p->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &p->generate;
        state->child_inputs[1] = &o->connection;
        return 0;
    case OPT_PROMPTS:
        o->prompts = arg;
        return 0;
    case OPT_START:
        o->start = arg;
        return 0;
    case 'a':
        o->connection.address = arg;
        return 0;
    case OPT_CSV:
        o->csv = arg;
        return 0;
    case OPT_JSON:
        o->json = arg;
        return 0;
    case 'q':
        o->is_quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        return client_parser_result(
            error_set(p->err, ERR_ARGUMENT, "'%.60s' is too much: bench takes options only", arg));
    default:
        return parse_load(key, arg, p);
    }
}

static int check_start(const struct bench_options *o, struct error *err)
{
    bool wants_ranks = o->start && strstr(o->start, "{T}"), has_ranks = sweep_has(&o->sweep, "T");
    if (has_ranks && !wants_ranks) {
        return error_set(err, ERR_ARGUMENT,
                         "--sweep T starts a cluster of T ranks anew: it needs --start with a "
                         "command that has {T} in it");
    }
    if (wants_ranks && !has_ranks) {
        return error_set(err, ERR_ARGUMENT, "--start has {T}: say how many by --sweep T=1,2");
    }
    return 0;
}

static int check(const struct bench_options *o, struct error *err)
{
    bool has_rate = o->base.rate_hz > 0 || sweep_has(&o->sweep, "R");
    bool has_concurrency = o->base.concurrency > 0 || sweep_has(&o->sweep, "C");
    if (o->prompts && o->prompt_tokens) {
        return error_set(err, ERR_ARGUMENT, "give --prompts or --prompt-tokens, not both");
    }
    if (o->prompts && o->shared_prefix) {
        return error_set(err, ERR_ARGUMENT,
                         "--shared-prefix is for random prompts; those of a --prompts file share "
                         "what they share");
    }
    if (has_rate && has_concurrency) {
        return error_set(err, ERR_ARGUMENT,
                         "a rate is an open loop, a concurrency a closed one: give one of both");
    }
    return check_start(o, err);
}

static int check_prefix(const struct bench_options *o, struct error *err)
{
    if (o->shared_prefix <= o->prompt_tokens) return 0;
    return error_set(err, ERR_ARGUMENT, "--shared-prefix %d is longer than a prompt of %d tokens",
                     o->shared_prefix, o->prompt_tokens);
}

static void set_defaults(struct bench_options *o)
{
    struct generate_request *request = &o->base.generate.request;
    if (!o->prompt_tokens) o->prompt_tokens = PROMPT_TOKENS_DEFAULT;
    if (!o->base.concurrency) o->base.concurrency = 1;
    if (!request->max_tokens) request->max_tokens = MAX_TOKENS_DEFAULT;
}

int bench_options_parse(struct bench_options *o, int argc, char **argv, struct error *err)
{
    const struct argp_child children[] = {
        {.argp = &generate_request_argp, .header = "How to generate:", .group = 20},
        {&connection_argp, 0, "Connection:", 30},
        {0}};
    const struct argp argp = {
        .options = options, .parser = parse_option, .doc = doc, .children = children};
    struct parse parse = {o, {&o->base.generate, err}, err};
    int rc = 0;
    *o = (struct bench_options){.start_timeout_s = START_TIMEOUT_DEFAULT_S,
                                .timeout_s = TIMEOUT_DEFAULT_S,
                                .n_repetitions = 1,
                                .n_warmup = 1};
    generate_options_init(&o->base.generate);
    TRY(client_parse(&argp, argc, argv, &parse, err));
    TRY(connection_open(&o->connection, err));
    TRY(check(o, err));
    set_defaults(o);
    TRY(check_prefix(o, err));
    TRY(sweep_arms(&o->sweep, &o->base, o->start, &o->arms, &o->n_arms, err));
out:
    return rc;
}

int bench_options_requests(const struct bench_options *o, const struct bench_arm *arm)
{
    if (o->n_requests) return o->n_requests;
    return arm->rate_hz > 0 ? OPEN_LOOP_REQUESTS : arm->concurrency;
}

int bench_options_requests_most(const struct bench_options *o)
{
    int most = 0;
    for (int i = 0; i < o->n_arms; i++) {
        int n = bench_options_requests(o, &o->arms[i]);
        if (n > most) most = n;
    }
    return most;
}

void bench_options_free(struct bench_options *o)
{
    free(o->arms);
    connection_close(&o->connection);
    generate_options_free(&o->base.generate);
    *o = (struct bench_options){0};
}
