/* Messages on their way from the engine threads to their streams. */
#include "coordinator/job/sender.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/memory.h"
#include "base/text/buffer.h"

/* Bytes are those of copies, about twice as many as of encoded messages. */
enum {
    FEW = 2, /* so little leaves from an engine thread: a wake-up costs as much */
    FEW_BYTES = 8192,
    MANY = 64, /* so much while the target computes, which takes longer */
    MANY_BYTES = 128 << 10
};

/* A message, or the end of an answer. */
struct item {
    struct response_stream *stream; /* with a reference */
    struct answer_message *message; /* owned; NULL = the end */
    char *text;                     /* owned; of the end, for the client; NULL = none */
    size_t n_bytes;                 /* of either */
    int code;                       /* of the end */
    bool is_abort;
};

struct batch {
    struct item *items;
    size_t n, capacity;
    size_t n_bytes;
};

/* A thread, and what waits for it. */
struct lane {
    pthread_t thread;
    bool has_thread;
    struct batch leaving;  /* under the lock until the thread takes it */
    struct batch sending;  /* the thread's */
    struct buffer scratch; /* the sending thread's, which may be an engine thread (is_lent) */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_busy, is_closing; /* somebody has a batch, or one waits; no more will come */
    bool is_lent;             /* an engine thread sends, and what comes meanwhile waits for it */
    struct lane *large;       /* where that goes which takes long; NULL = nowhere else */
};

struct sender {
    struct batch listed; /* under the lock of the quick lane */
    struct batch here;   /* of the engine thread that sends by itself */
    struct lane quick, large;
};

/* ---- batches ---- */

static void free_item(const struct item *item)
{
    free(item->message);
    free(item->text);
}

/* Takes the item over, with a reference that it has already, unless there is no memory. */
static int add(struct batch *batch, const struct item *item, struct error *err)
{
    int rc = mem_grow(&batch->items, &batch->capacity, batch->n + 1, err);
    if (rc) return rc;
    batch->items[batch->n++] = *item;
    batch->n_bytes += item->n_bytes;
    return 0;
}

static void clear(struct batch *batch)
{
    batch->n = 0;
    batch->n_bytes = 0;
}

/* Appends all of `from`, which is empty then. */
static int append(struct batch *to, struct batch *from, struct error *err)
{
    int rc = mem_grow(&to->items, &to->capacity, to->n + from->n, err);
    if (rc) return rc;
    memcpy(to->items + to->n, from->items, from->n * sizeof *from->items);
    to->n += from->n;
    to->n_bytes += from->n_bytes;
    clear(from);
    return 0;
}

static void swap(struct batch *a, struct batch *b)
{
    struct batch c = *a;
    *a = *b;
    *b = c;
}

/* ---- what leaves ---- */

/* A message less would go unnoticed, so the answer ends here with the reason, and its job as soon
 * as the engine looks, for the same reason: it is noted first, because an answer that has ended
 * looks as if its client were gone. What follows is ignored. */
static void end_failed(struct response_stream *stream, const struct error *why, bool is_abort)
{
    response_stream_fail(stream, why);
    stream->ops->finish(stream, why->code, why->text, is_abort);
}

static void send_item(const struct item *item, struct buffer *scratch)
{
    const struct response_stream_ops *ops = item->stream->ops;
    struct error err;
    if (!item->message) {
        ops->finish(item->stream, item->code, item->text ? item->text : "", item->is_abort);
    } else {
        int rc = ops->send(item->stream, item->message, scratch, &err);
        if (rc) end_failed(item->stream, &err, false);
    }
    response_stream_unref(item->stream);
    free_item(item);
}

/* Everything after something that takes long goes the same way, so that it stays in order. */
static bool goes_to_large(const struct item *item)
{
    struct response_stream *stream = item->stream;
    if (!stream->has_large && stream->ops->takes_long) {
        stream->has_large = stream->ops->takes_long(stream, item->n_bytes, !item->message);
    }
    return stream->has_large;
}

/* Takes the item over. */
static void push(struct lane *lane, const struct item *item)
{
    struct error err;
    pthread_mutex_lock(&lane->lock);
    int rc = add(&lane->leaving, item, &err);
    lane->is_busy = true;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    if (!rc) return;
    end_failed(item->stream, &err, true);
    response_stream_unref(item->stream);
    free_item(item);
}

/* Sends what is in the batch, which is one of the lane's. */
static void send_batch(struct batch *batch, struct lane *lane)
{
    for (size_t i = 0; i < batch->n; i++) {
        const struct item *item = &batch->items[i];
        if (lane->large && goes_to_large(item))
            push(lane->large, item);
        else
            send_item(item, &lane->scratch);
    }
    clear(batch);
}

/* ---- threads ---- */

static void *run(void *arg)
{
    struct lane *lane = arg;
    prctl(PR_SET_NAME, lane->large ? "sender" : "sender of large"); /* for top -H; best effort */
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        while (lane->is_lent || (!lane->leaving.n && !lane->is_closing)) {
            pthread_cond_wait(&lane->changed, &lane->lock);
        }
        if (!lane->leaving.n) break;
        swap(&lane->leaving, &lane->sending);
        pthread_mutex_unlock(&lane->lock);
        send_batch(&lane->sending, lane);
        pthread_mutex_lock(&lane->lock);
        lane->is_busy = lane->leaving.n > 0;
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

static int open_lane(struct lane *lane, struct lane *large, struct error *err)
{
    lane->large = large;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->changed, NULL);
    lane->has_thread = pthread_create(&lane->thread, NULL, run, lane) == 0;
    if (lane->has_thread) return 0;
    return error_set(err, ERR_NO_MEMORY, "cannot start the thread that sends answers");
}

/* Sends what waits. */
static void end_lane(struct lane *lane)
{
    if (!lane->has_thread) return;
    pthread_mutex_lock(&lane->lock);
    lane->is_closing = true;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    pthread_join(lane->thread, NULL);
    lane->has_thread = false;
}

static void free_lane(struct lane *lane)
{
    free(lane->leaving.items);
    free(lane->sending.items);
    buffer_free(&lane->scratch);
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->lock);
}

int sender_open(struct sender **sender, struct error *err)
{
    struct sender *s = NULL;
    int rc = 0;
    *sender = NULL;
    TRY(mem_array(&s, 1, sizeof *s, err));
    TRY(open_lane(&s->large, NULL, err));
    TRY(open_lane(&s->quick, &s->large, err));
    *sender = s;
    s = NULL;
out:
    sender_close(s);
    return rc;
}

void sender_close(struct sender *s)
{
    if (!s) return;
    end_lane(&s->quick);
    send_batch(&s->listed, &s->quick);
    end_lane(&s->large);
    free(s->listed.items);
    free(s->here.items);
    free_lane(&s->quick);
    free_lane(&s->large);
    free(s);
}

/* ---- engine threads ---- */

/* Takes the item over, unless there is no memory. */
static int list(struct sender *s, const struct item *item, struct error *err)
{
    pthread_mutex_lock(&s->quick.lock);
    int rc = add(&s->listed, item, err);
    if (!rc) response_stream_ref(item->stream);
    pthread_mutex_unlock(&s->quick.lock);
    if (rc) free_item(item);
    return rc;
}

/* The copy is made before the lock is taken, which other engines may wait for. */
int sender_send(struct sender *s, struct response_stream *stream,
                const struct answer_message *message, struct error *err)
{
    struct item item = {.stream = stream};
    int rc = answer_message_copy(&item.message, &item.n_bytes, message, err);
    return rc ? rc : list(s, &item, err);
}

void sender_finish(struct sender *s, struct response_stream *stream, int code, const char *text,
                   bool is_abort)
{
    struct error err;
    const struct item item = {.stream = stream,
                              .text = *text ? strdup(text) : NULL,
                              .n_bytes = strlen(text) + 1,
                              .code = code,
                              .is_abort = is_abort};
    int rc = *text && !item.text ? error_set(&err, ERR_NO_MEMORY, "no memory for %s", text)
                                 : list(s, &item, &err);
    if (rc) stream->ops->finish(stream, code ? code : rc, code ? text : err.text, is_abort);
}

/* Messages of all engines leave in the order in which they were listed: they are sent here while
 * the lane has nothing, and what is flushed meanwhile waits until that is done. */
void sender_flush(struct sender *s, bool has_time)
{
    struct lane *lane = &s->quick;
    struct batch *listed = &s->listed;
    struct error err;
    size_t n_most = has_time ? MANY : FEW, bytes_most = has_time ? MANY_BYTES : FEW_BYTES;
    pthread_mutex_lock(&lane->lock);
    bool leaves_here = !lane->is_busy && listed->n <= n_most && listed->n_bytes <= bytes_most;
    if (listed->n == 0) {
        leaves_here = false;
    } else if (leaves_here) {
        lane->is_busy = lane->is_lent = true;
        swap(&s->here, listed);
    } else {
        lane->is_busy = true;
        if (lane->leaving.n == 0) {
            swap(&lane->leaving, listed);
        } else {
            append(&lane->leaving, listed, &err); /* without memory: with the next flush */
        }
        pthread_cond_signal(&lane->changed);
    }
    pthread_mutex_unlock(&lane->lock);
    if (!leaves_here) return;
    send_batch(&s->here, lane);
    pthread_mutex_lock(&lane->lock);
    lane->is_lent = false;
    lane->is_busy = lane->leaving.n > 0;
    if (lane->is_busy) pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}
