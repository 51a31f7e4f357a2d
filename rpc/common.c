/* The parts of the gRPC wrapper that both sides need. These numbers belong together: a server must
 * allow the pings that its clients send, and both sides must allow the same message length. */
#include "rpc/common.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/log.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/system/process.h"
#include "rpc/peer_loss.h"
#include "rpc/tls.h"

enum {
    KEEPALIVE_MS = 10000,
    KEEPALIVE_TIMEOUT_MS = 20000, /* longer than any step: a peer may not poll while it computes */
    LEAST_PING_INTERVAL_MS = 5000,
    IDLE_MS = 300000,     /* without a call; a client that calls again connects again */
    HANDSHAKE_MS = 20000, /* a client that says nothing, or goes on slowly, holds a descriptor */
    RECONNECT_FIRST_MS = 100,
    RECONNECT_MOST_MS = 250, /* a peer that comes back is used at once */
    /* That an attempt to connect may take at least, TLS handshake included: machines may be busy or
     * far away. Clients wait longer (client/server.c), because the second address of a name has its
     * turn when the first one was silent for so long. Between hosts a silent one is given up after
     * TCP_USER_TIMEOUT already (rpc/peer_loss.c). */
    CONNECT_MS = 3000,
    CALLS_PER_CONNECTION_MAX = 1024,
    IDENTITY_ONLY = 1 << GRPC_COMPRESS_NONE
};

static pthread_once_t log_once = PTHREAD_ONCE_INIT;

/* True if the line comes from that source file and begins so: gRPC also logs what a peer has sent,
 * and nobody must be able to make up a line of gRPC's. */
static bool says(const gpr_log_func_args *args, const char *file, const char *beginning)
{
    return strstr(args->file, file) && strncmp(args->message, beginning, strlen(beginning)) == 0;
}

/* gRPC 1.51 stops listening for good at an error of accept, which rpc/door.c keeps from it. A
 * server that nobody can reach any more must not go on as if it were well. */
static void note_accept(const gpr_log_func_args *args)
{
    const char *line = args->message;
    if (!says(args, "tcp_server", "Failed accept")) return;
    log_line(LOG_LEVEL_ERROR, "rpc_accept_failed",
             "text=\"%s; gRPC takes no connection any more, so the process ends: start it again, "
             "with a higher limit of open files\"",
             line);
    process_fail();
}

static void forward_log(gpr_log_func_args *args)
{
    note_accept(args);
    if (says(args, "transport_security", "Handshake failed")) rpc_tls_note(args->message);
    log_line(LOG_LEVEL_DEBUG, "grpc", "text=\"%s\"", args->message);
}

/* With epoll, gRPC's default, all threads of a process wait in one set of descriptors: whichever is
 * in the kernel takes what comes for the others and wakes them, which is nearly two of three
 * changes of thread in a coordinator of two groups. With poll each waits for its own. */
__attribute__((constructor)) static void choose_polling(void)
{
    setenv("GRPC_POLL_STRATEGY", "poll", 0); /* now, because there is no other thread yet */
}

static void set_log(void)
{
    gpr_set_log_function(forward_log);
}

void rpc_library_open(void)
{
    pthread_once(&log_once, set_log);
    grpc_init();
}

void rpc_library_close(void)
{
    grpc_shutdown();
}

/* The API wants texts that are not const and never writes to them. */
static char *plain(const char *text)
{
    union {
        const char *in;
        char *out;
    } both = {.in = text};
    return both.out;
}

static grpc_arg int_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = plain(key), .value.integer = value};
}

static int add_common(grpc_arg *args, int max_receive_bytes)
{
    int n = 0;
    args[n++] = int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_receive_bytes);
    args[n++] = int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, MESSAGE_BYTES_MAX);
    args[n++] = int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS);
    args[n++] = int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
    args[n++] = int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* Compression is refused, because a small compressed message may unpack to any size. */
    args[n++] = int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, IDENTITY_ONLY);
    return n;
}

grpc_channel_args rpc_server_args(grpc_arg args[RPC_ARGS_MAX], int max_receive_bytes,
                                  bool notices_loss)
{
    int n = add_common(args, max_receive_bytes);
    /* Otherwise two servers could share a port without an error, each with half of the
     * connections. */
    args[n++] = int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0);
    args[n++] =
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, LEAST_PING_INTERVAL_MS);
    args[n++] = int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args[n++] = int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, CALLS_PER_CONNECTION_MAX);
    args[n++] = int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS);
    args[n++] = int_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, IDLE_MS);
    if (notices_loss && rpc_peer_loss_arg(&args[n])) n++;
    return (grpc_channel_args){.num_args = (size_t)n, .args = args};
}

grpc_channel_args rpc_channel_args(grpc_arg args[RPC_ARGS_MAX], const char *server_name,
                                   bool notices_loss)
{
    int n = add_common(args, MESSAGE_BYTES_MAX);
    args[n++] = int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args[n++] = int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    args[n++] = int_arg(GRPC_ARG_ENABLE_RETRIES, 0);
    args[n++] = int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS);
    args[n++] = int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS);
    args[n++] = int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MOST_MS);
    /* Otherwise clients of one process would share a connection, and with it its wake-ups. */
    args[n++] = int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (notices_loss && rpc_peer_loss_arg(&args[n])) n++;
    if (server_name) {
        args[n++] = (grpc_arg){.type = GRPC_ARG_STRING,
                               .key = plain(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG),
                               .value.string = plain(server_name)};
    }
    return (grpc_channel_args){.num_args = (size_t)n, .args = args};
}

grpc_status_code rpc_status_of_error(int code)
{
    switch (code) {
    case ERR_NONE:
        return GRPC_STATUS_OK;
    case ERR_ARGUMENT:
    case ERR_FORMAT:
    case ERR_TOO_LONG:
        return GRPC_STATUS_INVALID_ARGUMENT;
    case ERR_UNSUPPORTED:
        return GRPC_STATUS_UNIMPLEMENTED;
    case ERR_NO_MEMORY:
    case ERR_EXHAUSTED:
        return GRPC_STATUS_RESOURCE_EXHAUSTED;
    case ERR_NOT_FOUND:
        return GRPC_STATUS_NOT_FOUND;
    case ERR_UNAVAILABLE:
    case ERR_CLOSED:
        return GRPC_STATUS_UNAVAILABLE;
    case ERR_TIMEOUT:
        return GRPC_STATUS_DEADLINE_EXCEEDED;
    case ERR_CANCELLED:
        return GRPC_STATUS_CANCELLED;
    case ERR_UNAUTHENTICATED:
        return GRPC_STATUS_UNAUTHENTICATED;
    default:
        return GRPC_STATUS_INTERNAL;
    }
}

int rpc_error_of_status(grpc_status_code status)
{
    switch (status) {
    case GRPC_STATUS_OK:
        return ERR_NONE;
    case GRPC_STATUS_CANCELLED:
        return ERR_CANCELLED;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_OUT_OF_RANGE:
    case GRPC_STATUS_FAILED_PRECONDITION:
    case GRPC_STATUS_ALREADY_EXISTS:
    case GRPC_STATUS_PERMISSION_DENIED: /* the same request would fail again */
        return ERR_ARGUMENT;
    case GRPC_STATUS_UNAUTHENTICATED:
        return ERR_UNAUTHENTICATED;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return ERR_TIMEOUT;
    case GRPC_STATUS_NOT_FOUND:
        return ERR_NOT_FOUND;
    case GRPC_STATUS_RESOURCE_EXHAUSTED:
        return ERR_EXHAUSTED;
    case GRPC_STATUS_UNIMPLEMENTED:
        return ERR_UNSUPPORTED;
    case GRPC_STATUS_UNAVAILABLE:
    case GRPC_STATUS_ABORTED:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

/* gRPC's monotonic clock is CLOCK_MONOTONIC, like ours. */
gpr_timespec rpc_time_of_us(int64_t time_us)
{
    if (time_us == INT64_MAX) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_from_micros(time_us, GPR_CLOCK_MONOTONIC);
}

int64_t rpc_us_of_time(gpr_timespec time)
{
    if (gpr_time_cmp(time, gpr_inf_future(time.clock_type)) == 0) return INT64_MAX;
    gpr_timespec mono = gpr_convert_clock_type(time, GPR_CLOCK_MONOTONIC);
    if (mono.tv_sec > INT64_MAX / 1000000 - 1) return INT64_MAX;
    return mono.tv_sec * 1000000 + mono.tv_nsec / 1000;
}

grpc_byte_buffer *rpc_message_create(const uint8_t *data, size_t len)
{
    grpc_slice slice = grpc_slice_malloc(len);
    if (len) memcpy(GRPC_SLICE_START_PTR(slice), data, len);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return message;
}

int rpc_message_read(grpc_byte_buffer *message, struct buffer *buf, struct error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    buf->len = 0;
    int rc = buffer_reserve(buf, grpc_byte_buffer_length(message), err);
    if (rc) return rc;
    if (!grpc_byte_buffer_reader_init(&reader, message)) {
        return error_set(err, ERR_FORMAT, "a message cannot be read");
    }
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        size_t len = GRPC_SLICE_LENGTH(*slice);
        if (len) memcpy(buf->data + buf->len, GRPC_SLICE_START_PTR(*slice), len);
        buf->len += len;
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return 0;
}

int rpc_message_check_len(size_t len, struct error *err)
{
    if (len <= MESSAGE_BYTES_MAX) return 0;
    return error_set(err, ERR_ARGUMENT, "a message of %zu bytes is longer than the %d allowed", len,
                     (int)MESSAGE_BYTES_MAX);
}
