/* An HTTP/1.1 server: libmicrohttpd, wrapped once. One network thread accepts connections, reads
 * requests and writes answers; a handler gets whole requests and must not wait. The answer comes
 * from any thread, at once or piece by piece. A second thread watches the connections that
 * libmicrohttpd does not: those whose answer is awaited, for clients that leave, and those whose
 * request takes too long to come. */
#pragma once

#include "base/error.h"
#include "http/exchange.h"
#include "http/options.h"

struct http_server;

/* Errors: ERR_ARGUMENT the address, ERR_IO it cannot be bound, ERR_NO_MEMORY. */
int http_server_open(struct http_server **server, const struct http_server_options *options,
                     struct error *err);
/* Takes no more connections, and waits at most grace_ms for the answers under way; those that are
 * left then are cut off. Accepts NULL. */
void http_server_close(struct http_server *server, int grace_ms);

/* HOST:PORT, with the port that was taken. */
const char *http_server_address(const struct http_server *server);
