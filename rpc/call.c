/* One call of a server; see rpc/internal.h for which thread may do what. */
#include "rpc/call.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "rpc/internal.h"

enum { CALLS_ARMED = 8 };

/* Releases what belongs to the library. This must happen before the library is closed, which a
 * reference to the call may outlive. */
static void release_grpc(struct rpc_call *call, grpc_call *grpc)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_slice_unref(call->status_text);
    call->status_text = grpc_empty_slice();
    for (size_t i = 0; i < call->n_retry; i++) {
        grpc_slice_unref(call->retry[i].value);
    }
    call->n_retry = 0;
    if (grpc) grpc_call_unref(grpc);
}

static void call_free(struct rpc_call *call)
{
    if (call->caller) call->release_caller(call->caller);
    buffer_free(&call->in);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

void rpc_call_ref(struct rpc_call *call)
{
    atomic_fetch_add(&call->n_refs, 1);
}

void rpc_call_unref(struct rpc_call *call)
{
    if (atomic_fetch_sub(&call->n_refs, 1) == 1) call_free(call);
}

static int arm_call(struct rpc_server *server, struct error *err)
{
    struct rpc_call *call;
    int rc = mem_array(&call, 1, sizeof *call, err);
    if (rc) return rc;
    call->server = server;
    call->release_caller = server->authenticator.release;
    atomic_init(&call->n_refs, 1);
    atomic_init(&call->is_cancelled, false);
    for (int i = 0; i < N_RPC_EVENTS; i++) {
        call->tags[i] = (struct rpc_tag){.event = (enum rpc_event)i, .call = call};
    }
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    pthread_mutex_init(&call->lock, NULL);
    call->status_text = grpc_empty_slice();
    call->end = &call->first;
    call->deadline_us = INT64_MAX;
    call->n_batches = 1;
    grpc_call_error error =
        grpc_server_request_call(server->grpc, &call->grpc, &call->details, &call->metadata,
                                 server->events, server->events, &call->tags[RPC_EVENT_NEW]);
    if (error != GRPC_CALL_OK) {
        release_grpc(call, NULL);
        call_free(call);
        return error_set(err, ERR_INTERNAL, "cannot wait for calls: %s",
                         grpc_call_error_to_string(error));
    }
    server->n_live++;
    server->n_armed++;
    return 0;
}

int rpc_server_arm(struct rpc_server *server, struct error *err)
{
    int rc = 0;
    while (!rc && server->is_accepting && server->n_armed < CALLS_ARMED) {
        rc = arm_call(server, err);
    }
    return rc;
}

static bool is_open(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    bool open = !call->is_closed && !call->is_finishing;
    pthread_mutex_unlock(&call->lock);
    return open;
}

/* Starts a batch and counts it. Called with the lock held and the call not closed. False when the
 * library refuses the batch, which it does only for batches that make no sense. */
static bool start_batch(struct rpc_call *call, const grpc_op *ops, size_t n, enum rpc_event event)
{
    if (grpc_call_start_batch(call->grpc, ops, n, &call->tags[event], NULL) != GRPC_CALL_OK) {
        grpc_call_cancel(call->grpc, NULL);
        return false;
    }
    call->n_batches++;
    return true;
}

/* ---- sending; all with the lock held ---- */

/* Sends message (taken over; may be NULL), and the status if the call is finishing and nothing else
 * waits. */
static void start_send(struct rpc_call *call, grpc_byte_buffer *message, size_t len)
{
    grpc_op ops[3];
    size_t n = 0;
    memset(ops, 0, sizeof ops);
    if (!call->has_sent_metadata) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        call->has_sent_metadata = true;
    }
    if (message) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = message;
    }
    if (call->is_finishing && !call->first) {
        ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        ops[n].data.send_status_from_server.trailing_metadata = call->retry;
        ops[n].data.send_status_from_server.trailing_metadata_count = call->n_retry;
        ops[n].data.send_status_from_server.status = call->status;
        ops[n++].data.send_status_from_server.status_details = &call->status_text;
        call->has_sent_status = true;
    }
    call->sending_bytes = len;
    call->is_sending = start_batch(call, ops, n, RPC_EVENT_SEND);
    if (message) grpc_byte_buffer_destroy(message); /* the batch holds the slices */
}

static void start_next_send(struct rpc_call *call)
{
    struct queued_message *next = call->first;
    if (!next) {
        if (call->is_finishing && !call->has_sent_status) start_send(call, NULL, 0);
        return;
    }
    call->first = next->next;
    if (!call->first) call->end = &call->first;
    start_send(call, next->message, next->len);
    free(next);
}

static void drop_queue(struct rpc_call *call)
{
    while (call->first) {
        struct queued_message *next = call->first->next;
        grpc_byte_buffer_destroy(call->first->message);
        free(call->first);
        call->first = next;
    }
    call->end = &call->first;
    call->queued_bytes = call->sending_bytes;
}

/* Takes message over on success. */
static int queue_message(struct rpc_call *call, grpc_byte_buffer *message, size_t len,
                         struct error *err)
{
    struct queued_message *item;
    int rc = mem_array(&item, 1, sizeof *item, err);
    if (rc) return rc;
    *item = (struct queued_message){.message = message, .len = len};
    *call->end = item;
    call->end = &item->next;
    return 0;
}

static void start_receive_locked(struct rpc_call *call)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->incoming;
    if (!call->is_closed && !call->is_finishing) start_batch(call, &op, 1, RPC_EVENT_RECEIVE);
}

static int send_locked(struct rpc_call *call, grpc_byte_buffer **message, size_t len,
                       struct error *err)
{
    if (call->is_closed) return error_set(err, ERR_CANCELLED, "the client is gone");
    if (call->is_finishing) return error_set(err, ERR_CANCELLED, "the call is finished");
    if (call->queued_bytes && call->queued_bytes + len > RPC_CALL_QUEUE_BYTES) {
        call->is_overrun = true;
        return error_set(err, ERR_EXHAUSTED, "the client does not read: %zu bytes wait for it",
                         call->queued_bytes);
    }
    if (call->is_sending) {
        int rc = queue_message(call, *message, len, err);
        if (rc) return rc;
        call->queued_bytes += len;
    } else {
        call->queued_bytes += len;
        start_send(call, *message, len);
    }
    *message = NULL;
    return 0;
}

int rpc_call_send(struct rpc_call *call, const uint8_t *data, size_t len, struct error *err)
{
    int rc = rpc_message_check_len(len, err);
    if (rc) return rc;
    if (!is_open(call)) return error_set(err, ERR_CANCELLED, "the call is over");
    grpc_byte_buffer *message = rpc_message_create(data, len);
    pthread_mutex_lock(&call->lock);
    rc = send_locked(call, &message, len, err);
    if (!rc && call->method->is_exchange) start_receive_locked(call);
    pthread_mutex_unlock(&call->lock);
    if (message) grpc_byte_buffer_destroy(message);
    return rc;
}

void rpc_call_finish(struct rpc_call *call, int code, const char *text)
{
    char cut[RPC_STATUS_TEXT_BYTES];
    snprintf(cut, sizeof cut, "%s", text ? text : "");
    pthread_mutex_lock(&call->lock);
    if (!call->is_closed && !call->is_finishing) {
        call->is_finishing = true;
        call->status = rpc_status_of_error(code);
        call->status_text = grpc_slice_from_copied_string(cut);
        if (call->is_overrun) {
            drop_queue(call);
            grpc_call_cancel_with_status(call->grpc, call->status, cut, NULL);
        } else if (!call->is_sending) {
            start_next_send(call);
        }
    }
    pthread_mutex_unlock(&call->lock);
}

static grpc_metadata metadata_of(const char *name, long long value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    return (grpc_metadata){.key = grpc_slice_from_static_string(name),
                           .value = grpc_slice_from_copied_string(text)};
}

void rpc_call_set_retry(struct rpc_call *call, int seconds)
{
    pthread_mutex_lock(&call->lock);
    if (!call->is_closed && !call->is_finishing && !call->n_retry) {
        call->retry[call->n_retry++] = metadata_of("retry-after", seconds);
        call->retry[call->n_retry++] = metadata_of("grpc-retry-pushback-ms", 1000LL * seconds);
    }
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_abort(struct rpc_call *call, int code, const char *text)
{
    pthread_mutex_lock(&call->lock);
    call->is_overrun = true;
    pthread_mutex_unlock(&call->lock);
    rpc_call_finish(call, code, text);
}

/* ---- what handlers may ask ---- */

bool rpc_call_is_cancelled(const struct rpc_call *call)
{
    return atomic_load(&call->is_cancelled);
}

bool rpc_call_header(const struct rpc_call *call, const char *name, const char **value, size_t *len)
{
    for (size_t i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *header = &call->metadata.metadata[i];
        if (grpc_slice_str_cmp(header->key, name) != 0) continue;
        *value = (const char *)GRPC_SLICE_START_PTR(header->value);
        *len = GRPC_SLICE_LENGTH(header->value);
        return true;
    }
    return false;
}

bool rpc_call_client_is(const struct rpc_call *call, const char *names)
{
    const struct certificates *own = call->server->tls.certificates;
    if (!own || !certificates_has_authorities(own)) return true;
    return rpc_tls_peer_is(call->grpc, names);
}

int64_t rpc_call_deadline_us(const struct rpc_call *call)
{
    return call->deadline_us;
}

void rpc_call_take_message(struct rpc_call *call, struct buffer *message)
{
    *message = call->in;
    call->in = (struct buffer){0};
}

size_t rpc_call_queued_bytes(const struct rpc_call *call)
{
    return atomic_load(&call->queued_bytes);
}

uint64_t rpc_call_read_bytes(const struct rpc_call *call)
{
    return atomic_load(&call->read_bytes);
}

void *rpc_call_caller(const struct rpc_call *call)
{
    return call->caller;
}

void rpc_call_set_data(struct rpc_call *call, void *data)
{
    call->data = data;
}

void *rpc_call_data(const struct rpc_call *call)
{
    return call->data;
}

/* ---- events, on the network thread ---- */

static void start_receive(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    start_receive_locked(call);
    pthread_mutex_unlock(&call->lock);
}

/* The batch whose event tells that the call was cancelled or is over. */
static void start_close(struct rpc_call *call)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &call->close_cancelled;
    pthread_mutex_lock(&call->lock);
    call->is_closed = !start_batch(call, &op, 1, RPC_EVENT_CLOSE);
    pthread_mutex_unlock(&call->lock);
}

/* *is_public: that of its service; false when there is no such method. */
static void find_method(struct rpc_call *call, bool *is_public)
{
    const struct rpc_server *server = call->server;
    *is_public = false;
    for (int s = 0; s < server->n_services; s++) {
        const struct rpc_service *service = &server->services[s];
        for (int m = 0; m < service->n_methods && !call->method; m++) {
            if (grpc_slice_str_cmp(call->details.method, service->methods[m].path) == 0) {
                call->method = &service->methods[m];
                call->state = service->state;
                *is_public = service->is_public;
            }
        }
    }
}

/* Its connection is in use until the call has ended. */
static void enter_door(struct rpc_call *call)
{
    char *peer = grpc_call_get_peer(call->grpc);
    call->connection = rpc_door_enter(call->server->door, peer);
    gpr_free(peer);
}

/* False: the call is refused. */
static bool admit(struct rpc_call *call)
{
    const struct rpc_authenticator *authenticator = &call->server->authenticator;
    const char *authorization = NULL;
    struct error err;
    size_t len = 0;
    if (!authenticator->admit) return true;
    rpc_call_header(call, "authorization", &authorization, &len);
    int rc = authenticator->admit(authenticator->state, authorization, len, &call->caller, &err);
    if (rc) rpc_call_finish(call, rc, err.text);
    return rc == 0;
}

static void refuse_unknown(struct rpc_call *call)
{
    char text[256];
    int len = (int)GRPC_SLICE_LENGTH(call->details.method);
    if (len > 128) len = 128;
    snprintf(text, sizeof text, "there is no method %.*s", len,
             (const char *)GRPC_SLICE_START_PTR(call->details.method));
    rpc_call_finish(call, ERR_UNSUPPORTED, text);
}

/* If this fails, the next event tries again. The server can be reached as long as one call is
 * armed. */
static void arm_again(struct rpc_server *server)
{
    struct error err;
    if (rpc_server_arm(server, &err)) {
        log_line(LOG_LEVEL_WARN, "rpc_arm_failed", "error=\"%s\"", err.text);
    }
}

static void on_new(struct rpc_call *call, bool ok)
{
    call->server->n_armed--;
    if (!ok) { /* the server is closing and there is no grpc_call */
        call->is_closed = true;
        call->server->is_accepting = false;
        return;
    }
    arm_again(call->server);
    call->deadline_us = rpc_us_of_time(call->details.deadline);
    start_close(call);
    bool is_public;
    find_method(call, &is_public);
    if (!is_public && !admit(call)) {
        call->method = NULL; /* none of its handlers runs */
    } else if (call->method) {
        if (!is_public) enter_door(call);
        if (call->method->on_open) call->method->on_open(call, call->state);
        start_receive(call);
    } else {
        refuse_unknown(call);
    }
}

static void deliver(struct rpc_call *call, grpc_byte_buffer *message)
{
    struct error err;
    if (rpc_message_read(message, &call->in, &err)) {
        rpc_call_finish(call, err.code, err.text);
    } else if (call->method->on_message) {
        call->method->on_message(call, call->state, call->in.data, call->in.len);
    }
}

static void on_receive(struct rpc_call *call, bool ok)
{
    const struct rpc_method *method = call->method;
    bool is_wanted = ok && is_open(call);
    grpc_byte_buffer *message = call->incoming;
    call->incoming = NULL; /* the handler's answer may start the next receive */
    if (message) {
        if (is_wanted) deliver(call, message);
        grpc_byte_buffer_destroy(message);
        /* A stream's next message is likely as large; a single one is not kept with its call. */
        if (!method->is_stream_in) buffer_free(&call->in);
        if (method->is_stream_in && !method->is_exchange) start_receive(call);
    } else if (is_wanted && !grpc_call_failed_before_recv_message(call->grpc)) {
        if (!method->is_stream_in) {
            rpc_call_finish(call, ERR_ARGUMENT, "the call came without a message");
        } else if (method->on_half_close) {
            method->on_half_close(call, call->state);
        }
    }
}

static void on_send(struct rpc_call *call, bool ok)
{
    pthread_mutex_lock(&call->lock);
    call->is_sending = false;
    call->queued_bytes -= call->sending_bytes;
    if (ok) call->read_bytes += call->sending_bytes;
    call->sending_bytes = 0;
    if (!call->is_closed) {
        if (ok) {
            start_next_send(call);
        } else {
            drop_queue(call);
            grpc_call_cancel(call->grpc, NULL); /* CLOSE follows */
        }
    }
    pthread_mutex_unlock(&call->lock);
}

static void on_close(struct rpc_call *call)
{
    atomic_store(&call->is_cancelled, call->close_cancelled != 0);
    pthread_mutex_lock(&call->lock);
    call->is_closed = true;
    drop_queue(call);
    pthread_mutex_unlock(&call->lock);
    if (call->method && call->method->on_done) call->method->on_done(call, call->state);
}

/* After its last event the gRPC side is released; the struct remains as long as there is a
 * reference. */
static void end_batch(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    bool is_drained = --call->n_batches == 0;
    grpc_call *grpc = call->grpc;
    if (is_drained) call->grpc = NULL;
    pthread_mutex_unlock(&call->lock);
    if (!is_drained) return;
    release_grpc(call, grpc);
    rpc_door_leave(call->server->door, call->connection);
    call->server->n_live--;
    rpc_call_unref(call);
}

void rpc_call_handle(const struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->call;
    switch (tag->event) {
    case RPC_EVENT_NEW:
        on_new(call, ok);
        break;
    case RPC_EVENT_RECEIVE:
        on_receive(call, ok);
        break;
    case RPC_EVENT_SEND:
        on_send(call, ok);
        break;
    default:
        on_close(call);
        break;
    }
    end_batch(call);
}
