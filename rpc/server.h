/* gRPC server over the C core, wrapped once. It offers a list of services (rpc/method.h); a method
 * that none of them has is answered with UNIMPLEMENTED. One network thread per server runs the
 * handlers. Another thread may run them in its place while it waits for work that they bring
 * (rpc_server_wait); the two never run handlers at the same time. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "rpc/call.h"
#include "rpc/method.h"

struct certificates; /* access/certificates.h */
struct rpc_server;

struct rpc_server_options {
    const char *address; /* "127.0.0.1:7070" (port 0: any), "unix:/path" */
    const struct rpc_service *services;
    int n_services;
    bool notices_loss;     /* of a client's host, within 4 s; otherwise it takes 30 s */
    int max_message_bytes; /* that a client may send; 0 = MESSAGE_BYTES_MAX, which is the most */
    /* kept; TLS, and verified clients if there are authorities. NULL: plain, as unix sockets are in
     * any case */
    struct certificates *certificates;
    /* copied; asked about every call, also of methods that there are not, but for those of public
     * services. admit NULL: everybody may call */
    struct rpc_authenticator authenticator;
};

/* keeps the services' methods and states; copies the list. The server answers at once.
 * Errors: ERR_IO the address, which is named, cannot be bound; ERR_ARGUMENT; ERR_NO_MEMORY. */
int rpc_server_open(struct rpc_server **server, const struct rpc_server_options *options,
                    struct error *err);

/* Stops accepting calls, waits up to grace_ms for those that run, cancels the rest and ends the
 * network thread. */
void rpc_server_close(struct rpc_server *server, int grace_ms);

/* The calling thread runs the handlers until has_work says that they have brought something.
 * has_work is asked after every event and 20 times a second. The thread may then start on the work
 * without being woken by another one; while it works, the network thread takes over after some
 * milliseconds. Only one thread may do this, and not while the server closes. rpc_server_expect
 * announces that the thread will wait again soon: the event of the reply that it is about to send
 * is then the last one that the network thread handles. */
void rpc_server_wait(struct rpc_server *server, bool (*has_work)(void *arg), void *arg);
void rpc_server_expect(struct rpc_server *server);

/* The bound address with the true port; valid as long as the server. */
const char *rpc_server_address(const struct rpc_server *server);
