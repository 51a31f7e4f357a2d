/* Calls to a server. */
#include "client/server.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/process.h"

enum {
    GRACE_MS = 1500,
    LOOK_US = 100000,
    CONNECT_US = 5000000, /* and for the answer; longer than an attempt takes (rpc/common.c) */
    SILENT_US = 2500000,  /* an attempt that fails so late was not refused, but had no answer */
    CALL_US = 10000000,
    ARENA_SLACK_BYTES = 65536,
    REASON_BYTES = 96
};

static void on_stop(void *arg)
{
    struct server *server = arg;
    queue_shut(server->interrupts);
}

int server_open(struct server *server, const struct connection *connection, int timeout_s,
                struct error *err)
{
    return server_open_with_grace(server, connection, timeout_s, GRACE_MS, err);
}

int server_open_with_grace(struct server *server, const struct connection *connection,
                           int timeout_s, int grace_ms, struct error *err)
{
    int rc = 0;
    const struct rpc_client_options client = {.certificates = connection->certificates,
                                              .server_name = connection->server_name,
                                              .api_key = connection->api_key,
                                              .is_patient = true};
    *server = (struct server){.address = connection->address,
                              .timeout_s = timeout_s,
                              .deadline_us = INT64_MAX,
                              .has_key = connection->api_key != NULL};
    if (timeout_s) server->deadline_us = clock_now_us() + (int64_t)timeout_s * 1000000;
    log_open("outrider", LOG_LEVEL_WARN);
    TRY(queue_open(&server->interrupts, 1, err));
    TRY(process_open(&(struct process_calls){.on_stop = on_stop, .arg = server}, grace_ms, err));
    TRY(rpc_client_open(&server->client, &client, err));
out:
    if (rc) server_close(server);
    return rc;
}

void server_disconnect(struct server *server)
{
    rpc_stream_close(server->stream);
    rpc_client_close(server->client);
    server->stream = NULL;
    server->client = NULL;
}

void server_close(struct server *server)
{
    server_disconnect(server);
    process_close();
    queue_close(server->interrupts);
    buffer_free(&server->reply);
    arena_close(&server->arena);
    *server = (struct server){0};
}

static int64_t deadline_within(const struct server *server, int64_t us)
{
    int64_t deadline_us = clock_now_us() + us;
    return deadline_us < server->deadline_us ? deadline_us : server->deadline_us;
}

/* Takes the cause from gRPC's description of a failure, which is a long chain, and its last part.
 * That nothing came in time has several names there, of which one is also that of an attempt which
 * was refused, so the time says which it is. */
static void cut_reason(char reason[REASON_BYTES], const struct error *err, int64_t us)
{
    const char *last = err->text;
    if (err->code == ERR_TIMEOUT || us >= SILENT_US || strstr(last, "handshaker shutdown") ||
        strstr(last, "attempt timed out")) {
        last = "it did not answer in time";
    }
    for (const char *at = strstr(last, ": "); at; at = strstr(at + 2, ": ")) {
        last = at + 2;
    }
    snprintf(reason, REASON_BYTES, "%.90s", last);
}

/* us: how long was tried. */
static int set_unreachable(const struct server *server, int64_t us, struct error *err)
{
    char reason[REASON_BYTES];
    cut_reason(reason, err, us);
    return error_set(
        err, ERR_UNAVAILABLE,
        "no server answers at %.160s (%s): start outrider serve MODEL --listen %.160s, "
        "or name another with --address",
        server->address, reason, server->address);
}

static int call(struct server *server, const char *path, const struct buffer *message,
                int64_t within_us, struct error *err)
{
    const struct rpc_request request = {.address = server->address,
                                        .path = path,
                                        .data = message->data,
                                        .len = message->len,
                                        .deadline_us = deadline_within(server, within_us)};
    return rpc_client_call(server->client, &request, &server->reply, err);
}

int server_health(struct server *server, const char *service, enum health_answer *answer,
                  struct error *err)
{
    int rc = 0;
    int64_t begin_us = clock_now_us();
    struct buffer request = {0};
    *answer = HEALTH_ANSWER_UNKNOWN;
    TRY(health_request_encode(&request, service, err));
    rc = call(server, "/grpc.health.v1.Health/Check", &request, CONNECT_US, err);
    if (rc == ERR_UNAVAILABLE || rc == ERR_TIMEOUT) {
        rc = set_unreachable(server, clock_now_us() - begin_us, err);
    }
    if (rc) goto out;
    TRY(health_response_decode(server->reply.data, server->reply.len, answer, err));
    server->health = *answer;
out:
    buffer_free(&request);
    return rc == ERR_UNSUPPORTED ? 0 : rc; /* a server is there, without a health service */
}

void server_explain(const struct server *server, struct error *err)
{
    if (err->code == ERR_UNSUPPORTED && !strstr(err->text, "--serve-features")) {
        error_wrap(err, "%.160s does not answer as a coordinator of this version", server->address);
    }
    if (err->code == ERR_UNAUTHENTICATED && strstr(err->text, "API key") && !server->has_key) {
        error_wrap(err, "give --api-key KEY or set OUTRIDER_API_KEY");
    }
    if (err->code != ERR_UNAVAILABLE || server->health != HEALTH_ANSWER_NOT_SERVING) return;
    error_wrap(err, "the coordinator is not serving now (outrider describe tells more)");
}

int server_call(struct server *server, const char *path, const struct buffer *request,
                struct error *err)
{
    return call(server, path, request, CALL_US, err);
}

int server_start(struct server *server, const char *path, const struct buffer *request,
                 struct error *err)
{
    int rc = 0;
    rpc_stream_close(server->stream);
    server->stream = NULL;
    TRY(rpc_stream_open(&server->stream, server->client, server->address, path, false,
                        server->deadline_us, err));
    TRY(rpc_stream_send(server->stream, request->data, request->len,
                        deadline_within(server, CALL_US), err));
    TRY(rpc_stream_half_close(server->stream, err));
out:
    return rc;
}

int server_check_interrupt(struct server *server, struct error *err)
{
    if (!queue_is_shut(server->interrupts)) return 0;
    return error_set(err, ERR_CANCELLED, "interrupted");
}

void server_watch(struct server *server, int (*look)(void *arg, struct error *err), void *arg)
{
    server->look = look;
    server->look_arg = arg;
}

void server_stop(struct server *server)
{
    rpc_stream_close(server->stream);
    server->stream = NULL;
}

int server_receive(struct server *server, const uint8_t **data, size_t *len, struct error *err)
{
    for (;;) {
        int rc = server_check_interrupt(server, err);
        if (!rc && server->look) rc = server->look(server->look_arg, err);
        if (rc) return rc;
        rc = rpc_stream_receive(server->stream, data, len, deadline_within(server, LOOK_US), err);
        if (rc != ERR_TIMEOUT) return rc;
        bool is_late = clock_now_us() >= server->deadline_us;
        if (is_late) {
            return error_set(err, ERR_TIMEOUT,
                             "no end within the --timeout of %d s; the request is cancelled",
                             server->timeout_s);
        }
        if (rpc_stream_is_over(server->stream))
            return rc; /* the deadline of the server has passed */
    }
}

int server_sleep(struct server *server, int ms, struct error *err)
{
    void *item;
    int rc = queue_pop(server->interrupts, &item, clock_now_us() + (int64_t)ms * 1000, err);
    return rc == ERR_TIMEOUT ? 0 : server_check_interrupt(server, err);
}

int server_arena(struct server *server, size_t len, struct arena **arena, struct error *err)
{
    int rc = 0;
    size_t wanted = 32 * len + ARENA_SLACK_BYTES; /* a token of a few bytes decodes into many */
    if (server->arena.size_bytes < wanted) {
        arena_close(&server->arena);
        TRY(arena_open(&server->arena, 2 * wanted, err));
    }
    arena_reset(&server->arena);
    *arena = &server->arena;
out:
    return rc;
}

int server_describe(struct server *server, struct service_description *desc, struct error *err)
{
    const struct buffer request = {0}; /* a DescribeRequest has no fields */
    enum health_answer health;
    struct arena *arena;
    int rc = 0;
    TRY(server_health(server, "", &health, err));
    TRY(server_call(server, "/outrider.generation.v1.Generation/Describe", &request, err));
    TRY(server_arena(server, server->reply.len, &arena, err));
    TRY(service_description_decode(server->reply.data, server->reply.len, arena, desc, err));
out:
    return rc;
}

bool server_is_serving(struct server *server)
{
    enum health_answer answer;
    struct error reason;
    return server_health(server, "", &answer, &reason) == 0 && answer == HEALTH_ANSWER_SERVING;
}

bool server_is_calibrated(struct server *server)
{
    struct service_description desc;
    struct error reason;
    if (server_describe(server, &desc, &reason)) return false;
    for (int i = 0; i < desc.n_groups; i++) {
        const struct service_group *group = &desc.groups[i];
        if (group->n_addresses > 0 && !group->is_measured) return false;
    }
    return true;
}
