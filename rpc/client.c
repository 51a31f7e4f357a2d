/* Streams, and one event loop, which is run by the thread that waits. Everything belongs to one
 * thread except rpc_stream_cancel. A stream has at most four batches under way, one of each kind.
 * Its memory may be freed only when the events of all of them have been handled. */
#include "rpc/client.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/channel.h"
#include "rpc/common.h"

enum { POLL_EVENTS_MAX = 1000, DEAD_CONNECTION_POLLS = 5 };

struct rpc_client {
    grpc_completion_queue *events;
    struct rpc_channels channels;
    grpc_metadata metadata[2]; /* [n_metadata] sent with every call */
    size_t n_metadata;
    bool has_key; /* among them */
};

enum stream_event { STREAM_START, STREAM_STATUS, STREAM_SEND, STREAM_RECEIVE, N_STREAM_EVENTS };

struct stream_tag {
    struct rpc_client_tag base; /* first */
    enum stream_event event;
    struct rpc_stream *stream;
};

struct rpc_stream {
    struct rpc_client *client;
    struct rpc_channel *channel;
    grpc_call *call;
    struct stream_tag tags[N_STREAM_EVENTS];
    bool is_under_way[N_STREAM_EVENTS];   /* the batch of that event */
    bool is_half_closing, is_half_closed; /* asked for, started */
    bool is_exchange;                     /* the SEND under way is a RECEIVE, too */
    bool has_read_all;                    /* a receive has met the end */

    grpc_byte_buffer *incoming; /* arrived, not yet asked for */
    struct buffer in;           /* what the caller reads */
    struct rpc_counters counters;

    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice status_text;
    bool is_over; /* the status is here */
};

/* name is kept; the value is prefix and text. */
static void add_metadata(struct rpc_client *client, const char *name, const char *prefix,
                         const char *text)
{
    size_t len = strlen(text), prefix_len = strlen(prefix);
    grpc_slice value = grpc_slice_malloc(prefix_len + len);
    memcpy(GRPC_SLICE_START_PTR(value), prefix, prefix_len);
    memcpy(GRPC_SLICE_START_PTR(value) + prefix_len, text, len);
    client->metadata[client->n_metadata++] =
        (grpc_metadata){.key = grpc_slice_from_static_string(name), .value = value};
}

static void set_options(struct rpc_client *client, const struct rpc_client_options *options)
{
    client->channels.certificates = options->certificates;
    client->channels.server_name = options->server_name;
    client->channels.is_patient = options->is_patient;
    client->has_key = options->api_key;
    if (options->api_key) add_metadata(client, "authorization", "Bearer ", options->api_key);
    if (options->header_name) add_metadata(client, options->header_name, "", options->header_value);
}

int rpc_client_open(struct rpc_client **client, const struct rpc_client_options *options,
                    struct error *err)
{
    int rc = mem_array(client, 1, sizeof **client, err);
    if (rc) return rc;
    rpc_library_open();
    if (options) set_options(*client, options);
    (*client)->events = grpc_completion_queue_create_for_next(NULL);
    (*client)->channels.events = (*client)->events;
    return 0;
}

/* Handles one event of any stream or channel; false when none came before the deadline. */
static bool client_step(struct rpc_client *client, int64_t deadline_us)
{
    grpc_event event =
        grpc_completion_queue_next(client->events, rpc_time_of_us(deadline_us), NULL);
    if (event.type != GRPC_OP_COMPLETE) return false;
    struct rpc_client_tag *tag = event.tag;
    tag->handle(tag);
    return true;
}

bool rpc_client_is_known(const struct rpc_client *client)
{
    return client->has_key || certificates_has_own(client->channels.certificates);
}

void rpc_client_close(struct rpc_client *client)
{
    if (!client) return;
    rpc_channels_drop_unused(&client->channels);
    grpc_completion_queue_shutdown(client->events);
    while (client_step(client, INT64_MAX)) {
    }
    grpc_completion_queue_destroy(client->events);
    for (size_t i = 0; i < client->n_metadata; i++) {
        grpc_slice_unref(client->metadata[i].value);
    }
    rpc_library_close();
    free(client);
}

/* ---- batches and their events ---- */

static int start_batch(struct rpc_stream *stream, const grpc_op *ops, size_t n,
                       enum stream_event event, struct error *err)
{
    grpc_call_error error = grpc_call_start_batch(stream->call, ops, n, &stream->tags[event], NULL);
    if (error != GRPC_CALL_OK) {
        return error_set(err, ERR_INTERNAL, "gRPC refuses a batch: %s",
                         grpc_call_error_to_string(error));
    }
    stream->is_under_way[event] = true;
    return 0;
}

static int start_status(struct rpc_stream *stream, struct error *err)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    op.data.recv_status_on_client.trailing_metadata = &stream->trailing;
    op.data.recv_status_on_client.status = &stream->status;
    op.data.recv_status_on_client.status_details = &stream->status_text;
    return start_batch(stream, &op, 1, STREAM_STATUS, err);
}

static int start_call(struct rpc_stream *stream, bool wait_for_ready, struct error *err)
{
    grpc_op ops[2];
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].flags = wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                                        GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                                  : 0;
    ops[0].data.send_initial_metadata.count = stream->client->n_metadata;
    ops[0].data.send_initial_metadata.metadata = stream->client->metadata;
    ops[1].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    return start_batch(stream, ops, 2, STREAM_START, err);
}

static grpc_op receive_op(struct rpc_stream *stream)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &stream->incoming;
    return op;
}

static int start_receive(struct rpc_stream *stream, struct error *err)
{
    grpc_op op = receive_op(stream);
    return start_batch(stream, &op, 1, STREAM_RECEIVE, err);
}

/* Sends a message, a half close or both in one batch. With is_exchange the batch also receives the
 * answer, which saves a wake-up. */
static int start_send(struct rpc_stream *stream, grpc_byte_buffer *message, bool is_exchange,
                      struct error *err)
{
    grpc_op ops[3];
    size_t n = 0;
    memset(ops, 0, sizeof ops);
    if (message) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = message;
    }
    if (stream->is_half_closing) ops[n++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    if (is_exchange) ops[n++] = receive_op(stream);
    int rc = start_batch(stream, ops, n, STREAM_SEND, err);
    if (rc) return rc;
    stream->is_half_closed = stream->is_half_closing;
    stream->is_exchange = is_exchange;
    stream->is_under_way[STREAM_RECEIVE] |= is_exchange;
    return 0;
}

static void end_send(struct rpc_stream *stream)
{
    struct error err; /* the stream is cancelled if the half close is refused */
    bool is_close_due = stream->is_half_closing && !stream->is_half_closed && !stream->is_over;
    if (is_close_due && start_send(stream, NULL, false, &err)) grpc_call_cancel(stream->call, NULL);
}

static void handle_event(struct rpc_client_tag *base)
{
    const struct stream_tag *tag = (const struct stream_tag *)base;
    struct rpc_stream *stream = tag->stream;
    bool has_received =
        tag->event == STREAM_RECEIVE || (tag->event == STREAM_SEND && stream->is_exchange);
    stream->is_under_way[tag->event] = false;
    if (has_received) {
        stream->is_under_way[STREAM_RECEIVE] = false;
        if (!stream->incoming) stream->has_read_all = true;
    }
    if (tag->event == STREAM_STATUS) stream->is_over = true;
    if (tag->event == STREAM_SEND) {
        stream->is_exchange = false;
        end_send(stream);
    }
}

bool rpc_client_wait(struct rpc_client *client, int64_t deadline_us)
{
    return client_step(client, deadline_us);
}

void rpc_client_poll(struct rpc_client *client)
{
    for (int i = 0; i < POLL_EVENTS_MAX && client_step(client, 0); i++) {
    }
}

void rpc_client_hasten(struct rpc_client *client, const char *address)
{
    rpc_channels_hasten(&client->channels, address);
}

/* ---- life of a stream ---- */

/* Handles pending events, so that a call is not sent on a connection that has died since the last
 * wait. Each poll sees only one of the peer's goodbye (GOAWAY), the end of the connection, and the
 * channel's own steps. */
static void notice_dead_connections(struct rpc_client *client)
{
    for (int i = 0; i < DEAD_CONNECTION_POLLS; i++)
        rpc_client_poll(client);
}

static void create_call(struct rpc_stream *stream, const char *path, int64_t deadline_us)
{
    grpc_slice method = grpc_slice_from_copied_string(path);
    stream->call = grpc_channel_create_call(stream->channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS,
                                            stream->client->events, method, NULL,
                                            rpc_time_of_us(deadline_us), NULL);
    grpc_slice_unref(method);
}

int rpc_stream_open(struct rpc_stream **stream, struct rpc_client *client, const char *address,
                    const char *path, bool wait_for_ready, int64_t deadline_us, struct error *err)
{
    int rc = 0;
    struct rpc_channel *channel;
    struct rpc_stream *s = NULL;
    *stream = NULL;
    notice_dead_connections(client);
    TRY(rpc_channels_get(&client->channels, &channel, address, err));
    TRY(mem_array(&s, 1, sizeof *s, err));
    s->client = client;
    s->channel = channel;
    channel->n_streams++;
    for (int i = 0; i < N_STREAM_EVENTS; i++) {
        s->tags[i] =
            (struct stream_tag){.base = {handle_event}, .event = (enum stream_event)i, .stream = s};
    }
    grpc_metadata_array_init(&s->initial);
    grpc_metadata_array_init(&s->trailing);
    s->status_text = grpc_empty_slice();
    create_call(s, path, deadline_us);
    TRY(start_status(s, err)); /* in a batch of its own: it completes last, in every case */
    TRY(start_call(s, wait_for_ready, err));
    *stream = s;
out:
    if (rc) rpc_stream_close(s);
    return rc;
}

static bool is_anything_under_way(const struct rpc_stream *stream)
{
    for (int i = 0; i < N_STREAM_EVENTS; i++) {
        if (stream->is_under_way[i]) return true;
    }
    return false;
}

void rpc_stream_close(struct rpc_stream *stream)
{
    if (!stream) return;
    if (!stream->is_over) grpc_call_cancel(stream->call, NULL);
    /* A cancelled call completes all its batches at once, whether or not the peer answers. */
    while (is_anything_under_way(stream))
        client_step(stream->client, INT64_MAX);
    if (stream->incoming) grpc_byte_buffer_destroy(stream->incoming);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_slice_unref(stream->status_text);
    grpc_call_unref(stream->call);
    buffer_free(&stream->in);
    stream->channel->n_streams--;
    free(stream);
}

void rpc_stream_cancel(struct rpc_stream *stream)
{
    grpc_call_cancel(stream->call, NULL);
}

bool rpc_stream_is_over(const struct rpc_stream *stream)
{
    return stream->is_over;
}

bool rpc_stream_has_message(const struct rpc_stream *stream)
{
    return !stream->is_under_way[STREAM_RECEIVE] && stream->incoming;
}

struct rpc_counters rpc_stream_counters(const struct rpc_stream *stream)
{
    return stream->counters;
}

/* ---- messages ---- */

/* There is no connection. A server that drops each new one may want another kind. */
static int set_connection_error(const struct rpc_channel *channel, const char *text,
                                struct error *err)
{
    bool is_secure = channel->tls.certificates != NULL;
    const char *why = is_secure ? rpc_tls_explain(text) : NULL;
    if (why) {
        return error_set(err, ERR_UNAUTHENTICATED, "no secure connection to %s: %s",
                         channel->address, why);
    }
    bool is_unmade = strstr(text, "failed to connect") != NULL;
    bool is_dropped = is_unmade && strstr(text, "Socket closed");
    bool is_absent = strstr(text, "No such file or directory") != NULL;
    if (is_unmade && !is_dropped &&
        (is_absent || strstr(text, "refused") || strstr(text, "FD shutdown") ||
         strstr(text, "FD Shutdown"))) {
        /* gRPC says the same of one outage in turn in several ways. */
        return error_set(err, ERR_UNAVAILABLE, "%s is not available: nothing listens there",
                         channel->address);
    }
    return error_set(err, ERR_UNAVAILABLE, "%s is not available: %s%s", channel->address, text,
                     !is_dropped ? ""
                     : is_secure ? "; it may want another certificate of ours"
                                 : "; it may want TLS");
}

/* The stream's status as an error. A failure of the network names the address; the server's own
 * text is passed on unchanged. */
static int set_status_error(const struct rpc_stream *stream, struct error *err)
{
    const char *address = stream->channel->address;
    char text[RPC_STATUS_TEXT_BYTES];
    int len = snprintf(text, sizeof text, "%.*s", (int)GRPC_SLICE_LENGTH(stream->status_text),
                       (const char *)GRPC_SLICE_START_PTR(stream->status_text));
    int code = rpc_error_of_status(stream->status);
    switch (code) {
    case ERR_NONE:
        return error_set(err, ERR_CLOSED, "%s has ended the stream", address);
    case ERR_UNAVAILABLE:
        return set_connection_error(stream->channel, text, err);
    case ERR_TIMEOUT:
        return error_set(err, code, "%s did not answer in time: %s", address, text);
    case ERR_CANCELLED:
        return error_set(err, code, "the call to %s was cancelled: %s", address, text);
    default:
        if (len) return error_set(err, code, "%s", text);
        return error_set(err, code, "%s answers with status %d and no message", address,
                         (int)stream->status);
    }
}

static int wait_for_send(struct rpc_stream *stream, int64_t deadline_us, struct error *err)
{
    while (stream->is_under_way[STREAM_SEND] && !stream->is_over) {
        if (!client_step(stream->client, deadline_us)) {
            return error_set(err, ERR_TIMEOUT, "%s does not take the message in time",
                             stream->channel->address);
        }
    }
    return stream->is_over ? set_status_error(stream, err) : 0;
}

static int send_message(struct rpc_stream *stream, const uint8_t *data, size_t len,
                        bool is_exchange, int64_t deadline_us, struct error *err)
{
    int rc = rpc_message_check_len(len, err);
    if (rc) return rc;
    if (stream->is_half_closing) {
        return error_set(err, ERR_ARGUMENT, "the stream to %s is half closed",
                         stream->channel->address);
    }
    rc = wait_for_send(stream, deadline_us, err);
    if (rc) return rc;
    bool is_receiving = stream->is_under_way[STREAM_RECEIVE] || stream->incoming;
    grpc_byte_buffer *message = rpc_message_create(data, len);
    rc = start_send(stream, message, is_exchange && !is_receiving, err);
    grpc_byte_buffer_destroy(message); /* the batch holds the slices */
    if (rc) return rc;
    stream->counters.messages_sent++;
    stream->counters.bytes_sent += len;
    return 0;
}

int rpc_stream_send(struct rpc_stream *stream, const uint8_t *data, size_t len, int64_t deadline_us,
                    struct error *err)
{
    return send_message(stream, data, len, false, deadline_us, err);
}

int rpc_stream_ask(struct rpc_stream *stream, const uint8_t *data, size_t len, int64_t deadline_us,
                   struct error *err)
{
    return send_message(stream, data, len, true, deadline_us, err);
}

int rpc_stream_half_close(struct rpc_stream *stream, struct error *err)
{
    if (stream->is_over || stream->is_half_closing) return 0;
    stream->is_half_closing = true;
    /* If a send is under way, its event starts the half close. */
    return stream->is_under_way[STREAM_SEND] ? 0 : start_send(stream, NULL, false, err);
}

static int take_incoming(struct rpc_stream *stream, const uint8_t **data, size_t *len,
                         struct error *err)
{
    int rc = rpc_message_read(stream->incoming, &stream->in, err);
    grpc_byte_buffer_destroy(stream->incoming);
    stream->incoming = NULL;
    if (rc) return rc;
    stream->counters.messages_received++;
    stream->counters.bytes_received += stream->in.len;
    *data = stream->in.data;
    *len = stream->in.len;
    return 0;
}

int rpc_stream_try_receive(struct rpc_stream *stream, const uint8_t **data, size_t *len,
                           bool *is_here, struct error *err)
{
    bool is_receiving = stream->is_under_way[STREAM_RECEIVE];
    *data = NULL;
    *len = 0;
    *is_here = !is_receiving && (stream->incoming || stream->is_over);
    if (*is_here && stream->incoming) return take_incoming(stream, data, len, err);
    if (*is_here) return set_status_error(stream, err);
    return is_receiving || stream->has_read_all ? 0 : start_receive(stream, err);
}

int rpc_stream_receive(struct rpc_stream *stream, const uint8_t **data, size_t *len,
                       int64_t deadline_us, struct error *err)
{
    for (;;) {
        bool is_here;
        int rc = rpc_stream_try_receive(stream, data, len, &is_here, err);
        if (rc || is_here) return rc;
        if (!client_step(stream->client, deadline_us)) {
            return error_set(err, ERR_TIMEOUT, "no message from %s in time",
                             stream->channel->address);
        }
    }
}

/* The single reply and then the status, which may still turn the reply into a failure. */
static int receive_only(struct rpc_stream *stream, int64_t deadline_us, struct buffer *reply,
                        struct error *err)
{
    const uint8_t *data;
    size_t len;
    int rc = rpc_stream_receive(stream, &data, &len, deadline_us, err);
    if (rc == ERR_CLOSED) {
        return error_set(err, ERR_FORMAT, "%s answers without a message", stream->channel->address);
    }
    if (rc) return rc;
    struct buffer taken = stream->in;
    stream->in = *reply;
    *reply = taken;
    rc = rpc_stream_receive(stream, &data, &len, deadline_us, err);
    if (rc == ERR_CLOSED) return 0;
    if (rc) return rc;
    return error_set(err, ERR_FORMAT, "%s answers with more than one message",
                     stream->channel->address);
}

int rpc_client_call(struct rpc_client *client, const struct rpc_request *request,
                    struct buffer *reply, struct error *err)
{
    struct rpc_stream *stream = NULL;
    int rc = rpc_stream_open(&stream, client, request->address, request->path,
                             request->wait_for_ready, request->deadline_us, err);
    if (rc) return rc;
    TRY(rpc_stream_send(stream, request->data, request->len, request->deadline_us, err));
    TRY(rpc_stream_half_close(stream, err));
    TRY(receive_only(stream, request->deadline_us, reply, err));
out:
    rpc_stream_close(stream);
    return rc;
}
