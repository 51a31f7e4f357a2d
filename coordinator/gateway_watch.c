/* A list of watchers and the thread that goes through it whenever a job has changed. */
#include "coordinator/gateway_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/monitor.h"
#include "coordinator/reader.h"
#include "proto/generation_wire.h"

enum {
    FULL_LOOK_US = 20000,  /* how often full buffers are looked at */
    GATHER_US = 1000,      /* so that the messages of a round make one turn, not one each */
    IDLE_LOOK_US = 200000, /* how often clients that have left are looked for */
    ARENA_RATIO = 32,
    ARENA_SLACK_BYTES = 65536
};

struct watcher {
    struct watcher *next;
    struct rpc_call *call;
    char id[JOBS_ID_BYTES];
    size_t position; /* of the next message */
    int from_token;
    struct reader reader;
};

struct gateway_watch {
    struct jobs *jobs;
    int64_t reader_timeout_us;
    pthread_t thread;
    struct monitor monitor; /* of the two below */
    struct watcher *first;
    bool is_ended;
    /* The thread's. */
    struct buffer message, cut;
    struct arena arena;
};

static void watcher_free(struct watcher *w)
{
    rpc_call_unref(w->call);
    free(w);
}

/* ---- one message ---- */

static int open_arena(struct gateway_watch *watch, size_t len, struct error *err)
{
    size_t wanted = ARENA_RATIO * len + ARENA_SLACK_BYTES;
    arena_reset(&watch->arena);
    if (watch->arena.size_bytes >= wanted) return 0;
    arena_close(&watch->arena);
    return arena_open(&watch->arena, wanted, err);
}

/* Leaves out the first n tokens. Text belongs to the token that completes it. */
static int cut_tokens(struct generate_tokens *tokens, int n, struct arena *arena, struct error *err)
{
    uint32_t *ends = arena_take(arena, (size_t)(tokens->n - n), sizeof *ends);
    if (!ends) return error_set(err, ERR_NO_MEMORY, "no room for %d tokens", tokens->n);
    uint32_t begin = tokens->text_ends[n - 1];
    for (int i = n; i < tokens->n; i++) {
        ends[i - n] = tokens->text_ends[i] - begin;
    }
    tokens->n -= n;
    tokens->ids += n;
    tokens->origins += n;
    tokens->text_ends = ends;
    tokens->text += begin;
    tokens->text_len -= begin;
    if (tokens->logprobs) tokens->logprobs += n;
    return 0;
}

/* The part of a message that begins at from_token, in watch->cut. */
static int cut_message(struct gateway_watch *watch, const struct job_message *message,
                       int from_token, struct error *err)
{
    int rc = 0;
    struct generate_reply reply;
    TRY(open_arena(watch, message->len, err));
    TRY(generate_reply_decode(message->data, message->len, &watch->arena, &reply, err));
    struct generate_tokens tokens = *reply.tokens;
    TRY(cut_tokens(&tokens, from_token - message->first_token, &watch->arena, err));
    reply.tokens = &tokens;
    TRY(generate_reply_encode(&watch->cut, &reply, err));
out:
    return rc;
}

static int send_message(struct gateway_watch *watch, struct watcher *w,
                        const struct job_message *message, struct error *err)
{
    int end = message->first_token + message->n_tokens, rc = 0;
    bool is_tokens = message->kind == JOB_MESSAGE_TOKENS;
    if (message->kind == JOB_MESSAGE_ECHO && w->from_token > 0) return 0;
    if (is_tokens && message->first_token < w->from_token) {
        if (end <= w->from_token) return 0;
        TRY(cut_message(watch, message, w->from_token, err));
        return rpc_call_send(w->call, watch->cut.data, watch->cut.len, err);
    }
    rc = rpc_call_send(w->call, message->data, message->len, err);
out:
    return rc;
}

/* ---- one watcher ---- */

/* True while too much waits for the client; *is_stalled once it has read nothing for too long. */
static bool is_full(const struct gateway_watch *watch, struct watcher *w, bool *is_stalled)
{
    const struct reader_progress progress = {rpc_call_queued_bytes(w->call),
                                             rpc_call_read_bytes(w->call)};
    int64_t idle_us = reader_look(&w->reader, progress, clock_now_us());
    *is_stalled = idle_us > watch->reader_timeout_us;
    return progress.n_waiting >= READER_BYTES;
}

static void end_stalled(const struct gateway_watch *watch, struct watcher *w)
{
    char text[ERROR_TEXT_BYTES];
    snprintf(
        text, sizeof text,
        "the client has not read for %lld ms, and %zu bytes wait for it; the job goes on: watch it "
        "again from the token that you have reached",
        (long long)watch->reader_timeout_us / 1000, rpc_call_queued_bytes(w->call));
    rpc_call_abort(w->call, ERR_EXHAUSTED, text);
}

/* Sends what there is. True when the call is over; *is_waiting: its buffer is full. */
static bool pump(struct gateway_watch *watch, struct watcher *w, bool *is_waiting)
{
    struct error err;
    for (;;) {
        struct job_message message;
        struct job_info info;
        bool is_there, is_stalled;
        if (rpc_call_is_cancelled(w->call)) return true;
        if (is_full(watch, w, &is_stalled)) {
            *is_waiting = true;
            if (is_stalled) end_stalled(watch, w);
            return is_stalled;
        }
        int rc = jobs_read(watch->jobs, w->id, w->position, &watch->message, &message, &is_there,
                           &info, &err);
        if (!rc && is_there) rc = send_message(watch, w, &message, &err);
        if (rc) {
            rpc_call_finish(w->call, rc, err.text);
            return true;
        }
        if (!is_there && info.state == JOB_STATE_ENDED) {
            rpc_call_finish(w->call, info.error_code, info.error);
            return true;
        }
        if (!is_there) return false;
        w->position++;
    }
}

/* ---- all of them ---- */

/* Inside the monitor. True when somebody's buffer is full. */
static bool pump_all(struct gateway_watch *watch)
{
    bool is_waiting = false;
    for (struct watcher **at = &watch->first; *at;) {
        struct watcher *w = *at;
        if (pump(watch, w, &is_waiting)) {
            *at = w->next;
            watcher_free(w);
        } else {
            at = &w->next;
        }
    }
    return is_waiting;
}

static void *run_watch(void *arg)
{
    struct gateway_watch *watch = arg;
    uint64_t seen = 0;
    bool is_waiting = false, is_ended = false;
    while (!is_ended) {
        int64_t look_us = is_waiting ? FULL_LOOK_US : IDLE_LOOK_US;
        seen = jobs_wait(watch->jobs, seen, clock_now_us() + look_us);
        monitor_enter(&watch->monitor);
        is_waiting = pump_all(watch);
        if (watch->first && !watch->is_ended) {
            monitor_wait(&watch->monitor, clock_now_us() + GATHER_US);
        }
        is_ended = watch->is_ended;
        monitor_leave(&watch->monitor);
    }
    return NULL;
}

int gateway_watch_open(struct gateway_watch **watch, struct jobs *jobs, int64_t reader_timeout_us,
                       struct error *err)
{
    struct gateway_watch *made;
    *watch = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    made->jobs = jobs;
    made->reader_timeout_us = reader_timeout_us;
    monitor_open(&made->monitor);
    if (pthread_create(&made->thread, NULL, run_watch, made)) {
        monitor_close(&made->monitor);
        free(made);
        return error_set(err, ERR_NO_MEMORY, "cannot start the thread of those who watch jobs");
    }
    *watch = made;
    return 0;
}

void gateway_watch_end(struct gateway_watch *watch)
{
    monitor_enter(&watch->monitor);
    watch->is_ended = true;
    while (watch->first) {
        struct watcher *w = watch->first;
        watch->first = w->next;
        rpc_call_finish(w->call, ERR_UNAVAILABLE, "the coordinator is shutting down");
        watcher_free(w);
    }
    monitor_leave(&watch->monitor);
    jobs_wake(watch->jobs);
}

void gateway_watch_close(struct gateway_watch *watch)
{
    if (!watch) return;
    gateway_watch_end(watch);
    pthread_join(watch->thread, NULL);
    monitor_close(&watch->monitor);
    buffer_free(&watch->message);
    buffer_free(&watch->cut);
    arena_close(&watch->arena);
    free(watch);
}

int gateway_watch_add(struct gateway_watch *watch, struct rpc_call *call, const char *id,
                      uint32_t from_token, struct error *err)
{
    struct watcher *w;
    int rc = mem_array(&w, 1, sizeof *w, err);
    if (rc) return rc;
    w->call = call;
    w->from_token = from_token > INT32_MAX ? INT32_MAX : (int)from_token;
    snprintf(w->id, sizeof w->id, "%s", id);
    rpc_call_ref(call);
    monitor_enter(&watch->monitor);
    bool is_ended = watch->is_ended;
    if (!is_ended) {
        w->next = watch->first;
        watch->first = w;
    }
    monitor_leave(&watch->monitor);
    if (is_ended) {
        watcher_free(w);
        return error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    }
    jobs_wake(watch->jobs);
    return 0;
}
