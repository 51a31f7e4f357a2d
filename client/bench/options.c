/* Parses the command line of `outrider bench`. Options that say how to generate are those of
 * `outrider generate`. */
#include "client/bench/options.h"

#include <stdlib.h>
#include <string.h>

#include "client/bench/prompts.h"
#include "client/client.h"

enum {
    COUNT_MAX = 1000000,
    REPETITIONS_MAX = 10000,
    SECONDS_MAX = 86400,
    PROMPT_TOKENS_DEFAULT = 32,
    MAX_TOKENS_DEFAULT = 128,
    OPEN_LOOP_REQUESTS = 10
};

static int read_sweep(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    return sweep_parse(field, text, err);
}

#define FIELD(member) OPTION_FIELD(struct bench_options, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Prompts", "--prompts=questions.jsonl"),
    {"prompts", 0, "FILE", FIELD(prompts),
     .help = "Prompts, one a line, or JSON lines {\"prompt\": TEXT, \"n\": TOKENS}; taken in "
             "turn"},
    {"prompt-tokens", 0, "N", FIELD(prompt_tokens), .least = 1, .most = BENCH_PROMPT_TOKENS_MAX,
     .help = "Without --prompts: N random token ids each, drawn from --seed, and without it "
             "others in each run; default 32"},
    {"shared-prefix", 0, "N", FIELD(shared_prefix), .most = BENCH_PROMPT_TOKENS_MAX,
     .standard = "0", .help = "The first N tokens of all random prompts are the same"},
    OPTION_GROUP("Load", "--concurrency=8 --requests=100"),
    {"concurrency", 'c', "N", FIELD(base.concurrency), .least = 1, .most = ARM_CONCURRENCY_MAX,
     .help = "Closed loop: N requests at once; default 1"},
    {"rate", 0, "R", FIELD(base.rate_hz), .least = 1e-4, .most = 1e5,
     .help = "Open loop: R requests per second, with Poisson arrivals drawn from --seed"},
    {"requests", 0, "N", FIELD(n_requests), .least = 1, .most = COUNT_MAX,
     .help = "Requests to each arm in a repetition; default --concurrency, or 10 with --rate"},
    {"repetitions", 'r', "N", FIELD(n_repetitions), .least = 1, .most = REPETITIONS_MAX,
     .standard_int = 1, .help = "How often every arm is run"},
    {"warmup", 0, "N", FIELD(n_warmup), .most = COUNT_MAX, .standard_int = 1,
     .help = "Requests to each arm before the first that counts, after every start"},
    OPTION_GROUP("Arms", "--sweep=K=0,4,C=1,8"),
    {"sweep", 0, "NAME=VALUES", OPTION_READ(struct bench_options, sweep, read_sweep),
     .help = "Values to compare, such as K=plan,0..8,C=1,2,4,...,64,T=1,2: each combination "
             "is an arm; may be given again"},
    {"start", 0, "COMMAND", FIELD(start),
     .help = "Start the cluster with this shell command, in which {T}, {address} and other "
             "swept names in braces, such as {groups}, are filled in, and end it with SIGTERM"},
    {"start-timeout", 0, "SECONDS", FIELD(start_timeout_s), .least = 1, .most = SECONDS_MAX,
     .standard_int = 300, .help = "Time that it may take until it serves"},
    OPTION_GROUP("Output", "--json=run.json"),
    {"csv", 0, "FILE", FIELD(csv),
     .help = "Write a row for each arm and repetition; the file grows after each repetition"},
    {"json", 0, "FILE", FIELD(json),
     .help = "Write rows, quartiles and a record of each request as one JSON object"},
    {"quiet", 'q', NULL, FIELD(is_quiet), .help = "No tables, no progress"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct bench_options),
    {"timeout", 0, "SECONDS", FIELD(timeout_s), .least = 1, .most = SECONDS_MAX,
     .standard_int = 300, .help = "A request fails after that long"},
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
    const struct option_program program = {
        .variables = "OUTRIDER_BENCH_",
        .example = "outrider bench --prompts questions.jsonl -n 100 --sweep K=0..8",
        .name = "bench",
        .doc = doc,
        .parts = {{rows, o, NULL},
                  {request_rows, &o->base.generate, NULL},
                  {answer_rows, &o->base.generate, NULL},
                  {connection_rows, &o->connection, NULL}}};
    int rc = 0;
    *o = (struct bench_options){0};
    generate_options_init(&o->base.generate);
    TRY(option_program_parse(&program, argc, argv, err));
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
