/* The server that a command calls: one connection, one call at a time, interrupted by SIGINT and
 * SIGTERM. Owned by the main thread, which waits inside the calls. A signal shuts the queue
 * `interrupts`, which the calls check ten times a second. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/threads/queue.h"
#include "client/connection.h"
#include "proto/generation_wire.h"
#include "rpc/client.h"
#include "rpc/health_wire.h"

/* A zeroed one is valid to close. */
struct server {
    const char *address; /* the connection's */
    struct rpc_client *client;
    struct rpc_stream *stream;
    struct queue *interrupts;
    struct buffer reply;
    struct arena arena;
    int64_t deadline_us;
    int timeout_s;
    enum health_answer health; /* the last answer */
    bool has_key;
    int (*look)(void *arg, struct error *err); /* see server_watch */
    void *look_arg;
};

/* Opens the client and handles signals from now on; keeps what connection points to, which is open.
 * timeout_s limits the time of all calls together; 0 = only keepalive limits it. Errors: those of
 * the parts. */
int server_open(struct server *server, const struct connection *connection, int timeout_s,
                struct error *err);
/* As server_open, for a command that has to end more than calls, such as a cluster that it started:
 * after a signal it has grace_ms for that. */
int server_open_with_grace(struct server *server, const struct connection *connection,
                           int timeout_s, int grace_ms, struct error *err);
void server_close(struct server *server);
/* Ends the connection alone: signals are still handled. */
void server_disconnect(struct server *server);

/* Asks for the server's health. Commands do this first, because it finds out within two seconds
 * when there is no server. Errors: ERR_UNAVAILABLE, with advice; ERR_NOT_FOUND no such service. */
int server_health(struct server *server, const char *service, enum health_answer *answer,
                  struct error *err);

/* Puts what is known about the state of the server in front of the text of err. */
void server_explain(const struct server *server, struct error *err);

/* Sends one request and waits for one reply, which is then in server->reply. */
int server_call(struct server *server, const char *path, const struct buffer *request,
                struct error *err);

/* Asks what a coordinator serves. desc is valid until the next call. Errors: also those of
 * server_health. */
int server_describe(struct server *server, struct service_description *desc, struct error *err);

/* True if it answers, and serves. */
bool server_is_serving(struct server *server);
/* True once no group is to be calibrated any more: until then requests are planned in another way,
 * and measurements come between them. */
bool server_is_calibrated(struct server *server);

/* Sends one request whose replies are a stream. */
int server_start(struct server *server, const char *path, const struct buffer *request,
                 struct error *err);
/* The next reply, lent until the next call. Errors: ERR_CLOSED the stream ended well, ERR_CANCELLED
 * interrupted, ERR_TIMEOUT, those that the server sent. */
int server_receive(struct server *server, const uint8_t **data, size_t *len, struct error *err);

/* Calls look while a reply is awaited, ten times a second and before each one; what it returns ends
 * server_receive, if that is not 0. NULL: nothing any more. */
void server_watch(struct server *server, int (*look)(void *arg, struct error *err), void *arg);
/* Cancels the stream that server_start began; the server stops working on it. */
void server_stop(struct server *server);

/* Errors: ERR_CANCELLED interrupted. */
int server_check_interrupt(struct server *server, struct error *err);

/* Waits for ms. Errors: ERR_CANCELLED interrupted. */
int server_sleep(struct server *server, int ms, struct error *err);

/* An empty arena with enough room to decode a message of len bytes. Errors: ERR_NO_MEMORY. */
int server_arena(struct server *server, size_t len, struct arena **arena, struct error *err);
