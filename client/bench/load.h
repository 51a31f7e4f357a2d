/* Puts load on a coordinator: a fixed number of requests at once (closed loop), or requests that
 * arrive at random times (open loop, Poisson). One thread watches all streams. */
#pragma once

#include "client/bench/prompts.h"
#include "client/bench/records.h"
#include "client/bench/sweep.h"
#include "client/bench/tally.h"
#include "client/server.h"

enum { LOAD_STREAMS_MAX = 1024 };

struct load_stream;

/* A zeroed one is valid to close. */
struct load {
    struct server *server;
    const struct bench_prompts *prompts;
    int timeout_s;           /* of a request */
    uint64_t seed;           /* of the arrivals */
    struct records *records; /* lent; NULL = single requests are not kept */
    int repetition;          /* of the records */
    struct load_stream *streams;
    int n_streams; /* that are open */
    struct buffer request;
};

/* keeps server and prompts. Errors: ERR_NO_MEMORY. */
int load_open(struct load *load, struct server *server, const struct bench_prompts *prompts,
              int timeout_s, uint64_t seed, struct error *err);
void load_close(struct load *load);

/* Sends n_requests of the arm and waits for all of them. Request i has prompt first + i and, where
 * the arm has a seed, that seed plus first + i, so that all arms of a repetition get the same
 * requests. A request that fails is counted in the tally and does not end the run, unless the
 * server is gone. Errors: ERR_CANCELLED interrupted, ERR_UNAVAILABLE the server is gone. The tally
 * is valid then and holds what was completed. */
int load_run(struct load *load, const struct bench_arm *arm, int first, int n_requests,
             struct tally *tally, struct error *err);
