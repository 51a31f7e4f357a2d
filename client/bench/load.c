/* Drives the streams of a slice. In an open loop the latency of a request begins when it was due to
 * be sent, because otherwise a late sender would hide a slow server. */
#include "client/bench/load.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"

enum { LOOK_US = 100000, SEND_US = 10000000 };

struct load_stream {
    struct rpc_stream *rpc;
    int64_t begin_us;                        /* when the request was due to be sent */
    int64_t last_us[GENERATE_SEQUENCES_MAX]; /* of each text's last tokens; 0 = none yet */
    int n_summaries;
};

/* One call of load_run. */
struct run {
    struct load *load;
    const struct bench_arm *arm;
    struct tally *tally;
    int first, n_requests, n_started;
    int64_t next_us;   /* open loop: the next arrival */
    struct error gone; /* the first failure that says that the server is gone; code 0 = none */
};

int load_open(struct load *load, struct server *server, const struct bench_prompts *prompts,
              int timeout_s, uint64_t seed, struct error *err)
{
    *load =
        (struct load){.server = server, .prompts = prompts, .timeout_s = timeout_s, .seed = seed};
    return mem_array(&load->streams, LOAD_STREAMS_MAX, sizeof *load->streams, err);
}

static void close_streams(struct load *load)
{
    for (int i = 0; i < load->n_streams; i++)
        rpc_stream_close(load->streams[i].rpc);
    load->n_streams = 0;
}

void load_close(struct load *load)
{
    close_streams(load);
    free(load->streams);
    buffer_free(&load->request);
    *load = (struct load){0};
}

/* ---- starting ---- */

static int encode_request(struct run *run, int number, struct error *err)
{
    struct load *load = run->load;
    const struct bench_prompt *prompt = &load->prompts->items[number % load->prompts->n];
    struct generate_request request = run->arm->generate.request;
    request.prompt = prompt->text;
    request.prompt_len = prompt->len;
    request.prompt_ids = prompt->ids;
    request.n_prompt_ids = prompt->n_ids;
    request.seed += (uint64_t)number;
    if (prompt->max_tokens) request.max_tokens = prompt->max_tokens;
    return generate_request_encode(&load->request, &request, err);
}

static int send_request(struct run *run, struct load_stream *stream, struct error *err)
{
    struct load *load = run->load;
    const struct server *server = load->server;
    int64_t now_us = clock_now_us();
    int rc = 0;
    TRY(encode_request(run, run->first + run->n_started, err));
    TRY(rpc_stream_open(&stream->rpc, server->client, server->address,
                        "/outrider.generation.v1.Generation/Generate", false,
                        now_us + (int64_t)load->timeout_s * 1000000, err));
    TRY(rpc_stream_send(stream->rpc, load->request.data, load->request.len, now_us + SEND_US, err));
    TRY(rpc_stream_half_close(stream->rpc, err));
out:
    return rc;
}

static void count_failure(struct run *run, const struct error *err)
{
    tally_add_failure(run->tally, err);
    if (err->code == ERR_UNAVAILABLE && !run->gone.code) run->gone = *err;
}

static void start_request(struct run *run, int64_t begin_us)
{
    struct load *load = run->load;
    struct error err = {0};
    struct load_stream stream = {.begin_us = begin_us};
    if (load->n_streams == LOAD_STREAMS_MAX) {
        error_set(&err, ERR_EXHAUSTED, "%d requests are under way already: the rate is too high",
                  LOAD_STREAMS_MAX);
        count_failure(run, &err);
    } else if (send_request(run, &stream, &err)) {
        rpc_stream_close(stream.rpc);
        count_failure(run, &err);
    } else {
        load->streams[load->n_streams++] = stream;
    }
    run->n_started++;
}

/* The time to the next arrival, exponentially distributed and the same in every arm of a
 * repetition. */
static int64_t arrival_gap_us(const struct run *run)
{
    const struct rng_address at = {run->load->seed, (uint32_t)(run->first + run->n_started), 0};
    double u = rng_uniform(&at, RNG_LOAD, 1);
    return (int64_t)(-log1p(-u) * 1e6 / (double)run->arm->rate_hz);
}

static void start_due(struct run *run)
{
    if (run->arm->rate_hz > 0) {
        while (run->n_started < run->n_requests && clock_now_us() >= run->next_us) {
            start_request(run, run->next_us);
            run->next_us += arrival_gap_us(run);
        }
        return;
    }
    while (run->n_started < run->n_requests && run->load->n_streams < run->arm->concurrency) {
        start_request(run, clock_now_us());
    }
}

/* ---- receiving ---- */

static void take_tokens(struct run *run, struct load_stream *stream,
                        const struct generate_tokens *tokens)
{
    int64_t now_us = clock_now_us(), *last_us = &stream->last_us[tokens->index];
    if (tokens->n == 0) return;
    if (*last_us) {
        tally_add_gap(run->tally, now_us - *last_us, tokens->n);
    } else {
        histogram_add(&run->tally->first_token, (uint64_t)(now_us - stream->begin_us));
    }
    *last_us = now_us;
}

static bool is_whole(const struct run *run, const struct load_stream *stream)
{
    return stream->n_summaries == run->arm->generate.request.n;
}

static int take_reply(struct run *run, struct load_stream *stream, const uint8_t *data, size_t len,
                      struct error *err)
{
    struct server *server = run->load->server;
    struct generate_reply reply;
    struct arena *arena;
    int rc = 0;
    TRY(server_arena(server, len, &arena, err));
    TRY(generate_reply_decode(data, len, arena, &reply, err));
    if (reply.tokens) take_tokens(run, stream, reply.tokens);
    if (reply.summary && !is_whole(run, stream)) {
        tally_add_summary(run->tally, reply.summary);
        stream->n_summaries++;
        if (is_whole(run, stream)) tally_add_done(run->tally, clock_now_us() - stream->begin_us);
    }
out:
    return rc;
}

/* Handles what has arrived on the stream; true when it has ended, with or without success. */
static bool poll_stream(struct run *run, struct load_stream *stream, bool *has_moved)
{
    struct error err = {0};
    const uint8_t *data;
    size_t len;
    bool is_here = false;
    int rc = rpc_stream_try_receive(stream->rpc, &data, &len, &is_here, &err);
    if (!rc && !is_here) return false;
    *has_moved = true;
    if (!rc) rc = take_reply(run, stream, data, len, &err);
    if (!rc) return false;
    if (is_whole(run, stream)) return true; /* errors after the summary do not count */
    if (rc == ERR_CLOSED) {
        error_set(&err, ERR_FORMAT, "%.160s ended the text without a summary",
                  run->load->server->address);
    }
    count_failure(run, &err);
    return true;
}

static bool poll_streams(struct run *run)
{
    struct load *load = run->load;
    bool has_moved = false;
    for (int i = 0; i < load->n_streams;) {
        if (!poll_stream(run, &load->streams[i], &has_moved)) {
            i++;
            continue;
        }
        rpc_stream_close(load->streams[i].rpc);
        load->streams[i] = load->streams[--load->n_streams];
    }
    return has_moved;
}

static void wait_for_event(const struct run *run)
{
    int64_t until_us = clock_now_us() + LOOK_US;
    bool is_waiting_for_arrival = run->arm->rate_hz > 0 && run->n_started < run->n_requests;
    if (is_waiting_for_arrival && run->next_us < until_us) until_us = run->next_us;
    rpc_client_wait(run->load->server->client, until_us);
}

int load_run(struct load *load, const struct bench_arm *arm, int first, int n_requests,
             struct tally *tally, struct error *err)
{
    struct run run = {
        .load = load, .arm = arm, .tally = tally, .first = first, .n_requests = n_requests};
    int64_t begin_us = clock_now_us();
    int rc = 0;
    tally_begin(tally);
    run.next_us = begin_us + (arm->rate_hz > 0 ? arrival_gap_us(&run) : 0);
    while (!rc && !run.gone.code) {
        start_due(&run);
        if (load->n_streams == 0 && run.n_started == n_requests) break;
        if (!poll_streams(&run)) wait_for_event(&run);
        rc = server_check_interrupt(load->server, err);
    }
    tally->wall_us = clock_now_us() - begin_us;
    for (int i = 0; run.gone.code && i < load->n_streams; i++)
        tally_add_failure(tally, &run.gone);
    close_streams(load);
    if (rc || !run.gone.code) return rc;
    *err = run.gone;
    return run.gone.code;
}
