/* A list of watchers and the thread that goes through it whenever a job has changed. The list is
 * the thread's: others add to a second one, and never wait while it formats. */
#include "coordinator/store/job_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads/monitor.h"
#include "coordinator/job/backpressure.h"
#include "coordinator/store/stored_message.h"

enum {
    FULL_LOOK_US = 20000,  /* how often full buffers are looked at */
    GATHER_US = 1000,      /* so that the messages of a round make one turn, not one each */
    IDLE_LOOK_US = 200000, /* how often clients that have left are looked for */
    TURN_BYTES = 64 << 10, /* about as much for one watcher until the others have had their turn */
    KEPT_BYTES = 1 << 20   /* of room for a message; a larger one's goes back after it */
};

struct watcher {
    struct watcher *next;
    struct response_stream *stream;
    char id[JOBS_ID_BYTES];
    size_t position; /* of the next message */
    int from_token;
    struct backpressure pressure;
    int64_t spoke_us; /* when something was last sent */
};

/* Work that is left after a turn. */
struct turn {
    bool is_draining; /* given: who waits for more of a job is ended */
    bool has_full;    /* somebody's buffer is full */
    bool has_more;    /* somebody could have more at once */
};

struct job_watch {
    struct jobs *jobs;
    struct job_watch_options options;
    pthread_t thread;
    bool has_thread;
    struct monitor monitor; /* of the next four */
    struct watcher *added;  /* that the thread has not seen yet */
    int n_watchers;         /* of both lists */
    bool is_draining, is_ended;
    /* The thread's. */
    struct watcher *first;
    struct buffer message, scratch;
    struct arena arena; /* of the message as a struct */
};

static void watcher_free(struct watcher *w)
{
    response_stream_unref(w->stream);
    free(w);
}

static void end(struct watcher *w, int code, const char *text)
{
    w->stream->ops->finish(w->stream, code, text, false);
}

static void end_shutdown(struct watcher *w)
{
    end(w, ERR_UNAVAILABLE, "the coordinator is shutting down");
}

/* ---- one message ---- */

/* Leaves out the first n tokens; `ends` has room for the others. Text belongs to the token that
 * completes it. */
static void cut_tokens(struct generate_tokens *tokens, int n, uint32_t *ends)
{
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
}

/* Sends the message as a struct, without its first n_cut tokens. */
static int send_decoded(struct job_watch *watch, struct watcher *w,
                        const struct job_message *message, int n_cut, struct error *err)
{
    struct generate_reply reply;
    struct generate_tokens tokens;
    uint32_t *ends = NULL;
    int rc = 0;
    TRY(stored_message_decode(&reply, &watch->arena, message, err));
    if (n_cut > 0) {
        TRY(mem_array(&ends, (size_t)(message->n_tokens - n_cut), sizeof *ends, err));
        tokens = *reply.tokens;
        cut_tokens(&tokens, n_cut, ends);
        reply.tokens = &tokens;
    }
    rc = w->stream->ops->send(w->stream, &(struct answer_message){.reply = &reply}, &watch->scratch,
                              err);
out:
    free(ends);
    return rc;
}

static int send_message(struct job_watch *watch, struct watcher *w,
                        const struct job_message *message, struct error *err)
{
    const struct response_stream_ops *ops = w->stream->ops;
    bool is_tokens = message->kind == JOB_MESSAGE_TOKENS;
    int n_cut = is_tokens ? w->from_token - message->first_token : 0;
    if (message->kind == JOB_MESSAGE_ECHO && w->from_token > 0) return 0;
    if (n_cut > 0 && n_cut >= message->n_tokens) return 0;
    if (n_cut > 0 || !ops->send_encoded) return send_decoded(watch, w, message, n_cut, err);
    return ops->send_encoded(w->stream, message->data, message->len, err);
}

/* ---- one watcher ---- */

/* True while too much waits for the client; *is_stalled once it has read nothing for too long. */
static bool is_full(const struct job_watch *watch, struct watcher *w, bool *is_stalled)
{
    const struct backpressure_progress progress = w->stream->ops->progress(w->stream);
    int64_t idle_us = backpressure_look(&w->pressure, progress, clock_now_us());
    *is_stalled = idle_us > watch->options.reader_timeout_us;
    return progress.n_waiting >= BACKPRESSURE_BYTES;
}

static void end_stalled(const struct job_watch *watch, struct watcher *w)
{
    char text[ERROR_TEXT_BYTES];
    snprintf(
        text, sizeof text,
        "the client has not read for %lld ms, and %zu bytes wait for it; the job goes on: watch it "
        "again from the token that you have reached",
        (long long)watch->options.reader_timeout_us / 1000,
        w->stream->ops->progress(w->stream).n_waiting);
    w->stream->ops->finish(w->stream, ERR_EXHAUSTED, text, true);
}

/* Sends the next message, if there is one. Its bytes are added to *n_bytes. */
static int send_next(struct job_watch *watch, struct watcher *w, bool *is_there,
                     struct job_info *info, size_t *n_bytes, struct error *err)
{
    struct job_message message;
    int rc =
        jobs_read(watch->jobs, w->id, w->position, &watch->message, &message, is_there, info, err);
    if (rc || !*is_there) return rc;
    w->position++;
    w->spoke_us = clock_now_us();
    *n_bytes += message.len;
    return send_message(watch, w, &message, err);
}

/* All that there is has been sent. True when the call is over. */
static bool rest(struct job_watch *watch, struct watcher *w, const struct job_info *info,
                 bool is_draining)
{
    const struct response_stream_ops *ops = w->stream->ops;
    int64_t now_us = clock_now_us();
    if (info->state == JOB_STATE_ENDED) {
        end(w, info->error_code, info->error);
    } else if (is_draining) {
        end_shutdown(w);
    } else {
        bool is_idle = now_us - w->spoke_us >= watch->options.idle_us;
        if (is_idle) w->spoke_us = now_us;
        if (is_idle && ops->idle) ops->idle(w->stream);
        return false;
    }
    return true;
}

/* Sends what there is, up to TURN_BYTES. True when the call is over. */
static bool pump(struct job_watch *watch, struct watcher *w, struct turn *turn)
{
    struct error err;
    for (size_t n_bytes = 0; n_bytes < TURN_BYTES;) {
        struct job_info info;
        bool is_there, is_stalled;
        if (w->stream->ops->is_cancelled(w->stream)) return true;
        if (is_full(watch, w, &is_stalled)) {
            turn->has_full = true;
            if (is_stalled) end_stalled(watch, w);
            return is_stalled;
        }
        int rc = send_next(watch, w, &is_there, &info, &n_bytes, &err);
        if (rc) {
            end(w, rc, err.text);
            return true;
        }
        if (!is_there) return rest(watch, w, &info, turn->is_draining);
    }
    turn->has_more = true;
    return false;
}

/* ---- all of them ---- */

/* Gives back what a large message took, so that one of them costs memory only while it is sent. */
static void release_large(struct job_watch *watch)
{
    if (watch->message.capacity > KEPT_BYTES) buffer_free(&watch->message);
    if (watch->scratch.capacity > KEPT_BYTES) buffer_free(&watch->scratch);
    if (watch->arena.size_bytes > KEPT_BYTES) arena_close(&watch->arena);
}

/* Returns how many are over. */
static int pump_all(struct job_watch *watch, struct turn *turn)
{
    int n_over = 0;
    for (struct watcher **at = &watch->first; *at;) {
        struct watcher *w = *at;
        bool is_over = pump(watch, w, turn);
        release_large(watch);
        if (is_over) {
            *at = w->next;
            watcher_free(w);
            n_over++;
        } else {
            at = &w->next;
        }
    }
    return n_over;
}

/* Inside the monitor. */
static void take_added(struct job_watch *watch)
{
    while (watch->added) {
        struct watcher *w = watch->added;
        watch->added = w->next;
        w->next = watch->first;
        watch->first = w;
    }
}

/* Some are over; the others get a moment in which the messages of a round gather. */
static void note_over(struct job_watch *watch, int n_over)
{
    monitor_enter(&watch->monitor);
    watch->n_watchers -= n_over;
    if (n_over) monitor_wake(&watch->monitor);
    if (watch->n_watchers && !watch->is_ended) {
        monitor_wait(&watch->monitor, clock_now_us() + GATHER_US);
    }
    monitor_leave(&watch->monitor);
}

static void end_all(struct job_watch *watch)
{
    while (watch->first) {
        struct watcher *w = watch->first;
        watch->first = w->next;
        end_shutdown(w);
        watcher_free(w);
    }
}

static void *run_watch(void *arg)
{
    struct job_watch *watch = arg;
    struct turn turn = {0};
    uint64_t seen = 0;
    for (;;) {
        int64_t look_us = turn.has_more ? 0 : turn.has_full ? FULL_LOOK_US : IDLE_LOOK_US;
        seen = jobs_wait(watch->jobs, seen, clock_now_us() + look_us);
        monitor_enter(&watch->monitor);
        take_added(watch);
        turn = (struct turn){.is_draining = watch->is_draining};
        bool is_ended = watch->is_ended;
        monitor_leave(&watch->monitor);
        if (is_ended) break;
        note_over(watch, pump_all(watch, &turn));
    }
    end_all(watch);
    return NULL;
}

int job_watch_open(struct job_watch **watch, struct jobs *jobs,
                   const struct job_watch_options *options, struct error *err)
{
    struct job_watch *made;
    *watch = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    made->jobs = jobs;
    made->options = *options;
    monitor_open(&made->monitor);
    if (pthread_create(&made->thread, NULL, run_watch, made)) {
        monitor_close(&made->monitor);
        free(made);
        return error_set(err, ERR_NO_MEMORY, "cannot start the thread of those who watch jobs");
    }
    made->has_thread = true;
    *watch = made;
    return 0;
}

void job_watch_drain(struct job_watch *watch, int64_t deadline_us)
{
    if (!watch) return;
    monitor_enter(&watch->monitor);
    watch->is_draining = true;
    monitor_leave(&watch->monitor);
    jobs_wake(watch->jobs);
    monitor_enter(&watch->monitor);
    while (watch->n_watchers && clock_now_us() < deadline_us) {
        monitor_wait(&watch->monitor, deadline_us);
    }
    monitor_leave(&watch->monitor);
}

void job_watch_end(struct job_watch *watch)
{
    if (!watch || !watch->has_thread) return;
    monitor_enter(&watch->monitor);
    watch->is_ended = true;
    monitor_wake(&watch->monitor);
    monitor_leave(&watch->monitor);
    jobs_wake(watch->jobs);
    pthread_join(watch->thread, NULL);
    watch->has_thread = false;
}

void job_watch_close(struct job_watch *watch)
{
    if (!watch) return;
    job_watch_end(watch);
    monitor_close(&watch->monitor);
    buffer_free(&watch->message);
    buffer_free(&watch->scratch);
    arena_close(&watch->arena);
    free(watch);
}

int job_watch_add(struct job_watch *watch, struct response_stream *stream, const char *id,
                  uint32_t from_token, size_t from_message, struct error *err)
{
    struct watcher *w;
    int rc = mem_array(&w, 1, sizeof *w, err);
    if (rc) return rc;
    w->stream = stream;
    w->position = from_message;
    w->from_token = from_token > INT32_MAX ? INT32_MAX : (int)from_token;
    w->spoke_us = clock_now_us();
    snprintf(w->id, sizeof w->id, "%s", id);
    response_stream_ref(stream);
    monitor_enter(&watch->monitor);
    bool is_late = watch->is_ended || watch->is_draining;
    if (!is_late) {
        w->next = watch->added;
        watch->added = w;
        watch->n_watchers++;
    }
    monitor_leave(&watch->monitor);
    if (is_late) {
        watcher_free(w);
        return error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    }
    jobs_wake(watch->jobs);
    return 0;
}
