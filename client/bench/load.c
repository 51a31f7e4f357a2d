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
    size_t record; /* its index, where records are kept */
};

/* One call of load_run. */
struct run {
    struct load *load;
    const struct bench_arm *arm;
    struct tally *tally;
    int first, n_requests, n_started;
    int64_t begin_us;
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

/* stream: whose request it was. */
static void count_failure(struct run *run, const struct load_stream *stream,
                          const struct error *err)
{
    struct records *records = run->load->records;
    tally_add_failure(run->tally, err);
    if (records) records_end(records, stream->record, clock_now_us() - stream->begin_us, err);
    if (err->code == ERR_UNAVAILABLE && !run->gone.code) run->gone = *err;
}

static int keep_record(struct run *run, struct load_stream *stream, struct error *err)
{
    struct load *load = run->load;
    return records_begin(load->records, run->arm, load->repetition, run->first + run->n_started,
                         run->arm->generate.request.n, stream->begin_us - run->begin_us,
                         &stream->record, err);
}

static void start_request(struct run *run, int64_t begin_us)
{
    struct load *load = run->load;
    struct error err = {0};
    struct load_stream stream = {.begin_us = begin_us};
    if (load->records && keep_record(run, &stream, &err)) {
        run->gone = err; /* no measurement without memory */
        run->n_started = run->n_requests;
        return;
    }
    if (load->n_streams == LOAD_STREAMS_MAX) {
        error_set(&err, ERR_EXHAUSTED, "%d requests are under way already: the rate is too high",
                  LOAD_STREAMS_MAX);
        count_failure(run, &stream, &err);
    } else if (send_request(run, &stream, &err)) {
        rpc_stream_close(stream.rpc);
        count_failure(run, &stream, &err);
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

static int take_tokens(struct run *run, struct load_stream *stream,
                       const struct generate_tokens *tokens, struct error *err)
{
    struct records *records = run->load->records;
    int64_t now_us = clock_now_us(), *last_us = &stream->last_us[tokens->index];
    if (tokens->n == 0) return 0;
    if (*last_us) {
        tally_add_gap(run->tally, now_us - *last_us, tokens->n);
    } else {
        histogram_add(&run->tally->first_token, (uint64_t)(now_us - stream->begin_us));
    }
    *last_us = now_us;
    if (!records) return 0;
    return records_tokens(records, stream->record, tokens, now_us - stream->begin_us, err);
}

static bool is_whole(const struct run *run, const struct load_stream *stream)
{
    return stream->n_summaries == run->arm->generate.request.n;
}

static void take_summary(struct run *run, struct load_stream *stream,
                         const struct generate_summary *summary)
{
    struct records *records = run->load->records;
    tally_add_summary(run->tally, summary);
    if (records) records_summary(records, stream->record, summary);
    stream->n_summaries++;
    if (!is_whole(run, stream)) return;
    int64_t took_us = clock_now_us() - stream->begin_us;
    tally_add_done(run->tally, took_us);
    if (records) records_end(records, stream->record, took_us, NULL);
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
    if (reply.tokens) TRY(take_tokens(run, stream, reply.tokens, err));
    if (reply.summary && !is_whole(run, stream)) take_summary(run, stream, reply.summary);
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
    count_failure(run, stream, &err);
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

/* Ends the streams that are still open because the run was interrupted or the server is gone. A
 * stream fails only in the second case, with `why`. */
static void end_streams(struct run *run, const struct error *why)
{
    struct load *load = run->load;
    for (int i = 0; i < load->n_streams; i++) {
        const struct load_stream *stream = &load->streams[i];
        int64_t took_us = clock_now_us() - stream->begin_us;
        if (run->gone.code) tally_add_failure(run->tally, why);
        if (load->records) records_end(load->records, stream->record, took_us, why);
    }
    close_streams(load);
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
    int rc = 0;
    tally_begin(tally);
    run.begin_us = clock_now_us();
    run.next_us = run.begin_us + (arm->rate_hz > 0 ? arrival_gap_us(&run) : 0);
    while (!rc && !run.gone.code) {
        start_due(&run);
        if (load->n_streams == 0 && run.n_started == n_requests) break;
        if (!poll_streams(&run)) wait_for_event(&run);
        rc = server_check_interrupt(load->server, err);
    }
    tally->wall_us = clock_now_us() - run.begin_us;
    end_streams(&run, run.gone.code ? &run.gone : err);
    if (rc || !run.gone.code) return rc;
    *err = run.gone;
    return run.gone.code;
}
