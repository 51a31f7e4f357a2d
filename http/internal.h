/* Types and functions that the files of http/ share. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/text/buffer.h"
#include "base/threads/monitor.h"
#include "http/options.h"

enum {
    HTTP_ADDRESS_BYTES = 128,
    HTTP_HEADERS_BYTES = 64 << 10 /* of a request, and libmicrohttpd's buffers */
};

/* The result of verifying a client's certificate. */
struct http_trust {
    uint64_t version; /* of the files that it was verified with; 0 = it was not */
    bool is_given;
};

/* A connection while it waits for a request: cut at its deadline. */
struct http_connection {
    struct http_connection *next, *previous;
    struct MHD_Connection *connection;
    int fd;
    struct http_trust trust;
    int64_t deadline_us;   /* INT64_MAX = its request is complete */
    int64_t idle_since_us; /* INT64_MAX = the headers of a request have come */
    bool is_cut;           /* shut down, and closed soon */
    bool has_headers;      /* of a request whose body is being read */
    bool has_served;       /* a request before this one */
    bool is_refused;       /* by early.c; it is about to be closed */
    char peer[HTTP_ADDRESS_BYTES];
};

/* An exchange whose client is watched, by descriptor. */
struct http_watched {
    struct http_exchange *x; /* NULL = none; a reference */
    uint32_t generation;
};

struct http_server {
    struct http_server_options options;
    char address[HTTP_ADDRESS_BYTES];
    struct MHD_Daemon *daemon;
    int epoll_fd, wake_fd;
    pthread_t watcher;
    bool has_watcher;

    struct monitor monitor;             /* of what follows; entered after an exchange's */
    struct http_connection connections; /* head of a ring */
    int n_connections;                  /* those that are not cut */
    int n_roomy; /* with more of them, idle ones are closed, so that new ones are accepted */
    struct http_watched *watched;
    size_t n_watched;
    int n_exchanges;
    bool is_cutting; /* no connection may be suspended any more */
    bool is_closing;

    atomic_bool is_ending; /* an answer is its connection's last one */
    size_t n_body_bytes;   /* of bodies that are being read; the network thread's */
};

/* Why a body is not kept. */
enum http_refusal { HTTP_TAKEN, HTTP_TOO_LARGE, HTTP_TOO_MANY };

enum http_answer_state { HTTP_UNANSWERED, HTTP_WHOLE, HTTP_STREAM, HTTP_STREAM_ENDED };

struct http_header_line {
    struct http_header_line *next;
    char *name, *value;
};

struct http_exchange {
    struct http_server *server;
    struct http_connection *on;
    struct MHD_Connection *connection; /* NULL once the exchange is over */
    atomic_int n_references;
    char *method, *path;
    struct buffer body;
    size_t max_body_bytes;
    size_t n_counted_bytes; /* of the body, in the server's n_body_bytes */
    enum http_refusal refusal;
    bool is_dispatched;
    bool has_chunks; /* its body comes in chunks; the connection ends with the answer */
    void *context;   /* with its release, both NULL = none */
    void (*release)(void *context);

    struct monitor monitor; /* of what follows */
    enum http_answer_state state;
    int status;
    char *content_type;
    struct http_header_line *headers;
    struct buffer out; /* from out_begin on not taken yet */
    size_t out_begin;
    uint64_t n_taken;
    bool is_suspended, is_watched, is_gone, is_queued;
};

/* ---- listen.c ---- */
void http_show_address(const struct sockaddr *addr, socklen_t len, char out[HTTP_ADDRESS_BYTES]);
/* A socket that listens, which the caller closes, and where. Errors: ERR_ARGUMENT, ERR_IO. */
int http_listen(const char *address, int *fd, char bound_address[HTTP_ADDRESS_BYTES],
                struct error *err);
/* The kernel ends an idle connection 25 s after its peer has vanished without a word. */
void http_probe_peer(int fd);
/* True if bytes that were sent have not been acknowledged for 30 s. */
bool http_peer_is_lost(int fd);

/* ---- tls.c ---- */
/* keeps certificates; newer ones are served from the next handshake on, and newer authorities
 * count from the next request on. Errors: ERR_FORMAT, ERR_NO_MEMORY. */
int http_tls_open(struct certificates *certificates, struct error *err);
void http_tls_close(void);
/* A gnutls_certificate_retrieve_function2. */
void *http_tls_callback(void);
/* Given every line that libmicrohttpd logs: warns of handshakes that failed, at most once a minute,
 * because anybody can make them fail. It says nothing else of them. */
void http_tls_note(const char *line);
/* True if the client has shown a certificate that the authorities signed, or needs none. */
bool http_tls_trusts(struct MHD_Connection *connection, struct http_trust *trust);

/* ---- early.c ---- */
/* The body of an error, as OpenAI has it; returns its length, as snprintf does. */
int http_error_json(char *out, size_t size, const char *type, const char *text);
/* Given every line that libmicrohttpd logs, on its thread: answers the request that the line
 * refuses, if libmicrohttpd would answer it wrongly. */
void http_early_note(struct http_server *server, const char *line);

/* ---- framing.c ---- */
#define HTTP_BAD_LENGTH "The Content-Length is no number, or too large."
/* NULL, or a sentence on what makes it doubtful where the request ends or for whom it is. Takes
 * method and version as libmicrohttpd has them. */
const char *http_framing_fault(struct MHD_Connection *connection, const char *method,
                               const char *version);

/* ---- exchange.c ---- */
int http_exchange_open(struct http_exchange **x, struct http_server *server,
                       struct MHD_Connection *connection, const char *method, const char *path,
                       struct error *err);
bool http_exchange_is_answered(struct http_exchange *x);
/* Hands libmicrohttpd the answer, or suspends the connection until there is one. */
enum MHD_Result http_exchange_proceed(struct http_exchange *x);
/* The client has left: the handler that answers learns it, and a suspended connection goes on, to
 * end. */
void http_exchange_leave(struct http_exchange *x);
/* The connection is done with the exchange. */
void http_exchange_over(struct http_exchange *x);

/* ---- watched.c ---- */
/* From now on the exchange learns when its client leaves; the server gets a reference, which the
 * caller takes for it. With the exchange's lock held, once. false: the server is closing, or there
 * is no memory. */
bool http_watch(struct http_server *server, struct http_exchange *x, int fd);
/* With the exchange's lock held, before the descriptor of a watched exchange is closed; the
 * reference is the caller's again. */
void http_unwatch(struct http_server *server, int fd);

/* ---- watch.c ---- */
/* Ends a connection, which the network thread closes soon. With the server's lock held. */
void http_cut(struct http_server *server, struct http_connection *c);
int http_watch_open(struct http_server *server, struct error *err);
void http_watch_close(struct http_server *server);
