/* The inside of a server and its calls, shared by rpc/server.c (start, network thread, end) and
 * rpc/call.c (one call).
 *
 * A call is one grpc_call with at most four batches under way: NEW or CLOSE, RECEIVE, and SEND. One
 * thread at a time handles the events of batches: the network thread, or the thread that waits in
 * its place (rpc_server_wait). Both are called the network thread here. Any thread may start a
 * send, and with the answer of an exchange the next receive, under the call's lock. Once CLOSE has
 * come no batch is started any more, so the last event to be handled releases the grpc_call. The
 * struct itself is freed with its last reference. */
#pragma once

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/threads/poll_turn.h"
#include "rpc/common.h"
#include "rpc/door.h"
#include "rpc/method.h"
#include "rpc/tls.h"

enum rpc_event { RPC_EVENT_NEW, RPC_EVENT_CLOSE, RPC_EVENT_RECEIVE, RPC_EVENT_SEND, N_RPC_EVENTS };

struct rpc_tag {
    enum rpc_event event;
    struct rpc_call *call;
};

struct rpc_server {
    grpc_server *grpc;
    grpc_completion_queue *events;
    struct rpc_service *services; /* [n_services] */
    int n_services;
    struct rpc_authenticator authenticator;
    struct rpc_tls tls;
    char *address;
    pthread_t thread;
    struct poll_turn turn;
    struct rpc_door *door;

    /* The network thread's, once it runs. */
    int n_live; /* calls with a batch under way */
    int n_armed;
    bool is_accepting, is_ending;

    pthread_mutex_t lock; /* of is_shut */
    pthread_cond_t shut;
    bool is_shut; /* no call is running any more */
};

struct queued_message {
    struct queued_message *next;
    grpc_byte_buffer *message;
    size_t len;
};

struct rpc_call {
    struct rpc_server *server;
    const struct rpc_method *method; /* NULL = unknown */
    void *state;                     /* of its service */
    void *data;
    void *caller;                         /* of the server's authenticator */
    void (*release_caller)(void *caller); /* the server may be gone then */
    atomic_int n_refs;                    /* 1 is the network thread's */
    struct rpc_tag tags[N_RPC_EVENTS];

    /* The network thread's. */
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *incoming;
    struct buffer in;
    int close_cancelled; /* filled by gRPC */
    uint64_t connection; /* at the door; 0 = the call does not count there */
    int64_t deadline_us;

    atomic_bool is_cancelled;
    pthread_mutex_t lock; /* of all below */
    grpc_call *grpc;
    int n_batches;
    bool is_closed, is_sending, has_sent_metadata, is_finishing, has_sent_status;
    bool is_overrun; /* a send was refused because the client does not read */
    grpc_status_code status;
    grpc_slice status_text;
    grpc_metadata retry[2]; /* [n_retry], sent with the status */
    size_t n_retry;
    struct queued_message *first, **end; /* waiting after the send that is under way */
    size_t sending_bytes;
    /* Written under the lock, read without it, so that nobody waits for what is being sent. */
    atomic_size_t queued_bytes;       /* that are sent now or wait */
    atomic_uint_least64_t read_bytes; /* sent in all */
};

/* Keeps a few calls armed, each of which waits for a client. On the network thread, or before it
 * runs; does nothing once the server no longer accepts calls. Errors: ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int rpc_server_arm(struct rpc_server *server, struct error *err);
/* Handles one event of a call, on the network thread. */
void rpc_call_handle(const struct rpc_tag *tag, bool ok);
