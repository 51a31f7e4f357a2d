/* The server that a command talks to: one connection, one call at a time, interrupted by SIGINT and
 * SIGTERM. Owned by the main thread, which waits inside the calls; signals reach it through a queue
 * that is shut, looked at ten times a second. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/queue.h"
#include "proto/generation_wire.h"
#include "rpc/client.h"
#include "rpc/health_wire.h"

/* A zeroed one is valid to close. */
struct server {
    const char *address;
    struct rpc_client *client;
    struct rpc_stream *stream;
    struct queue *interrupts;
    struct buffer reply;
    struct arena arena;
    int64_t deadline_us;
    int timeout_s;
    enum health_answer health; /* as last heard */
};

/* Opens the client and takes the signals; keeps address. timeout_s bounds all that follows, 0 = no
 * bound but keepalive. Errors: of the parts. */
int server_open(struct server *server, const char *address, int timeout_s, struct error *err);
/* The same for a command that has more to end than calls: a signal leaves it grace_ms for that. */
int server_open_with_grace(struct server *server, const char *address, int timeout_s, int grace_ms,
                           struct error *err);
void server_close(struct server *server);

/* Asks the server's health, so that a server that is not there is found within two seconds.
 * Errors: ERR_UNAVAILABLE with the way out, ERR_NOT_FOUND no such service. */
int server_health(struct server *server, const char *service, enum health_answer *answer,
                  struct error *err);

/* Puts what is known of the server's state before the text of a failure. */
void server_explain(const struct server *server, struct error *err);

/* One request, one reply: it is in server->reply. */
int server_call(struct server *server, const char *path, const struct buffer *request,
                struct error *err);

/* What a coordinator serves; desc lives until the next call. Errors: also those of server_health. */
int server_describe(struct server *server, struct service_description *desc, struct error *err);

/* The same with a stream of replies. */
int server_start(struct server *server, const char *path, const struct buffer *request,
                 struct error *err);
/* The next reply, lent until the next call. Errors: ERR_CLOSED a good end, ERR_CANCELLED interrupted,
 * ERR_TIMEOUT, the server's own. */
int server_receive(struct server *server, const uint8_t **data, size_t *len, struct error *err);

/* Errors: ERR_CANCELLED interrupted. */
int server_check_interrupt(struct server *server, struct error *err);

/* Waits, for watching. Errors: ERR_CANCELLED interrupted. */
int server_sleep(struct server *server, int ms, struct error *err);

/* The empty arena with room to decode a message of len bytes. Errors: ERR_NO_MEMORY. */
int server_arena(struct server *server, size_t len, struct arena **arena, struct error *err);
