/* The command line of `outrider bench`. */
#pragma once

#include "client/bench/sweep.h"

/* Zero it before; free with bench_options_free. */
struct bench_options {
    struct connection connection;
    const char *prompts; /* a file; NULL = random ids */
    int prompt_tokens, shared_prefix;
    const char *start; /* a command; NULL = the cluster is running already */
    const char *csv, *json;
    int start_timeout_s, timeout_s;
    int n_requests, n_warmup, n_repetitions;
    bool is_quiet;
    struct bench_arm base; /* what --sweep does not say, with generate's options in its request */
    struct sweep sweep;
    struct bench_arm *arms;
    int n_arms;
};

/* Errors: ERR_ARGUMENT, ERR_NO_MEMORY. */
int bench_options_parse(struct bench_options *options, int argc, char **argv, struct error *err);
/* The number of requests of the arm in a repetition, and the largest of all arms. */
int bench_options_requests_most(const struct bench_options *options);
int bench_options_requests(const struct bench_options *options, const struct bench_arm *arm);
void bench_options_free(struct bench_options *options);
