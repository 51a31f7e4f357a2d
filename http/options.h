/* Options of an HTTP server. */
#pragma once

#include <stddef.h>

struct certificates; /* access/certificates.h */
struct http_exchange;

/* Called on the network thread. */
typedef void http_handler_fn(struct http_exchange *x, void *state);

struct http_server_options {
    const char *address; /* HOST:PORT or [HOST]:PORT; port 0 = any that is free */
    /* Called when the headers have come and no body has been read, so that strangers cost next to
     * nothing. A request that is answered here never gets to the handler: a small body is read and
     * forgotten, and with a large one the connection is closed unread. NULL = none. */
    http_handler_fn *begin;
    http_handler_fn *handler; /* called with a request that is complete */
    void *state;
    size_t max_body_bytes;
    size_t max_bodies_bytes; /* of the bodies that are being read, together; 0 = any */
    int max_connections;
    int request_timeout_s; /* from a connection's beginning, or the answer before, to the end of a
                            * request */
    int answer_timeout_s;  /* for which a client may read nothing of its answer; at least
                            * request_timeout_s */
    /* Kept; NULL = without TLS. With authorities, only clients are served that show a certificate
     * which those signed that there are at the start. One server of a process may have TLS. */
    struct certificates *certificates;
};
