/* The services that a server offers, each of which is a table of methods and the state they
 * share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_call; /* rpc/call.h */

/* The handlers of a method. They run on the network thread, or on the thread that waits in its
 * place (rpc/server.h), one at a time, and must not block. `state` is that of the service. */
struct rpc_method {
    const char *path;  /* "/outrider.target.v1.Target/Run" */
    bool is_stream_in; /* more than one message may come */
    /* With is_stream_in: each message is answered by exactly one, and the client waits for that
     * before it sends the next one. So the next message is awaited only when the answer leaves, and
     * what the transport has to tell about the last one leaves with it: one packet instead of two,
     * and nothing is sent before the work begins. */
    bool is_exchange;
    /* The call has begun; may be NULL. */
    void (*on_open)(struct rpc_call *call, void *state);
    /* A message came; data is lent until the handler returns. Without is_stream_in, exactly one
     * message comes. May be NULL: messages are dropped then. */
    void (*on_message)(struct rpc_call *call, void *state, const uint8_t *data, size_t len);
    /* The client has sent its last message (with is_stream_in only); may be NULL. */
    void (*on_half_close)(struct rpc_call *call, void *state);
    /* The call is over, finished or cancelled, so the service releases what belongs to it. This is
     * the last handler of the call and runs once. May be NULL. */
    void (*on_done)(struct rpc_call *call, void *state);
};

/* Decides who may call. */
struct rpc_authenticator {
    /* Asked about each call before anything of it is read. authorization[len] is the value of the
     * header of that name; NULL: there is none. *caller is kept as long as the call exists
     * (rpc_call_caller). Runs as the handlers do. Errors: the call ends with them. */
    int (*admit)(void *state, const char *authorization, size_t len, void **caller,
                 struct error *err);
    void (*release)(void *caller); /* any thread; not called for NULL */
    void *state;
};

struct rpc_service {
    const struct rpc_method *methods;
    int n_methods;
    void *state;    /* passed to the handlers */
    bool is_public; /* everybody may call it, whatever the server's authenticator would say */
    /* The server is about to close: finishes the calls that would otherwise last as long as their
     * client. Runs on the closing thread; may be NULL. */
    void (*on_closing)(void *state);
};
