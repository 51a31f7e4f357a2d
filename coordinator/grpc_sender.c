/* Messages on their way from the engine thread to gRPC. */
#include "coordinator/grpc_sender.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "rpc/call.h"

/* As many messages leave from the engine thread: a wake-up costs as much. */
enum { FEW = 2 };

/* A message, or the end of a call with the text for the client. */
struct item {
    struct rpc_call *call; /* with a reference */
    size_t begin, len;     /* in the batch's bytes */
    int code;              /* of the end */
    bool is_end, is_abort;
};

struct batch {
    struct item *items;
    size_t n, capacity;
    struct buffer bytes;
};

struct sender {
    pthread_t thread;
    bool has_thread;
    struct batch listed;  /* the engine thread's */
    struct batch leaving; /* under the lock until the thread takes it */
    struct batch sending; /* the thread's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_busy, is_closing; /* the thread has a batch, or one waits for it; no more will come */
};

static void end_call(struct rpc_call *call, int code, const char *text, bool is_abort)
{
    if (is_abort) {
        rpc_call_abort(call, code, text);
    } else {
        rpc_call_finish(call, code, text);
    }
}

static void send_batch(struct batch *batch)
{
    struct error err;
    for (size_t i = 0; i < batch->n; i++) {
        const struct item *item = &batch->items[i];
        const uint8_t *data = batch->bytes.data + item->begin;
        if (item->is_end) {
            end_call(item->call, item->code, (const char *)data, item->is_abort);
        } else {
            /* A message less would go unnoticed, so the call ends here; what follows is ignored. */
            int rc = rpc_call_send(item->call, data, item->len, &err);
            if (rc) rpc_call_finish(item->call, rc, err.text);
        }
        rpc_call_unref(item->call);
    }
    batch->n = 0;
    batch->bytes.len = 0;
}

static void swap(struct batch *a, struct batch *b)
{
    struct batch c = *a;
    *a = *b;
    *b = c;
}

static void *run(void *arg)
{
    struct sender *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->leaving.n && !s->is_closing) {
            pthread_cond_wait(&s->changed, &s->lock);
        }
        if (!s->leaving.n) break;
        swap(&s->leaving, &s->sending);
        pthread_mutex_unlock(&s->lock);
        send_batch(&s->sending);
        pthread_mutex_lock(&s->lock);
        s->is_busy = s->leaving.n > 0;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int sender_open(struct sender **sender, struct error *err)
{
    struct sender *s = NULL;
    int rc = 0;
    *sender = NULL;
    TRY(mem_array(&s, 1, sizeof *s, err));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run, s)) {
        rc = error_set(err, ERR_NO_MEMORY, "cannot start the thread that sends answers");
        goto out;
    }
    s->has_thread = true;
    *sender = s;
    s = NULL;
out:
    sender_close(s);
    return rc;
}

static void free_batch(struct batch *batch)
{
    free(batch->items);
    buffer_free(&batch->bytes);
}

void sender_close(struct sender *s)
{
    if (!s) return;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->is_closing = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    send_batch(&s->leaving);
    send_batch(&s->listed);
    free_batch(&s->listed);
    free_batch(&s->leaving);
    free_batch(&s->sending);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int list(struct batch *batch, const struct item *item, const void *data, struct error *err)
{
    int rc = mem_grow(&batch->items, &batch->capacity, batch->n + 1, err);
    size_t begin = batch->bytes.len;
    if (!rc) rc = buffer_append(&batch->bytes, data, item->len, err);
    if (rc) return rc;
    batch->items[batch->n] = *item;
    batch->items[batch->n++].begin = begin;
    rpc_call_ref(item->call);
    return 0;
}

int sender_send(struct sender *s, struct rpc_call *call, const uint8_t *data, size_t len,
                struct error *err)
{
    const struct item item = {.call = call, .len = len};
    return list(&s->listed, &item, data, err);
}

void sender_finish(struct sender *s, struct rpc_call *call, int code, const char *text,
                   bool is_abort)
{
    struct error err;
    const struct item item = {
        .call = call, .len = strlen(text) + 1, .code = code, .is_end = true, .is_abort = is_abort};
    if (list(&s->listed, &item, text, &err)) end_call(call, code, text, is_abort);
}

/* Appends what is listed to what the thread has not taken yet. */
static int append(struct batch *to, struct batch *from, struct error *err)
{
    int rc = mem_grow(&to->items, &to->capacity, to->n + from->n, err);
    size_t begin = to->bytes.len;
    if (!rc) rc = buffer_append(&to->bytes, from->bytes.data, from->bytes.len, err);
    if (rc) return rc;
    for (size_t i = 0; i < from->n; i++) {
        to->items[to->n] = from->items[i];
        to->items[to->n++].begin += begin;
    }
    from->n = 0;
    from->bytes.len = 0;
    return 0;
}

void sender_flush(struct sender *s)
{
    struct error err;
    if (s->listed.n == 0) return;
    pthread_mutex_lock(&s->lock);
    bool leaves_here = !s->is_busy && s->listed.n <= FEW;
    if (!leaves_here) {
        s->is_busy = true;
        if (s->leaving.n == 0) {
            swap(&s->leaving, &s->listed);
        } else {
            append(&s->leaving, &s->listed, &err); /* without memory: with the next flush */
        }
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (leaves_here) send_batch(&s->listed);
}
