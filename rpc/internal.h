/* The inside of server and calls, shared by rpc_server.c (life, network thread), rpc_call.c (one call)
 * and rpc_health.c. Internal to proto/.
 *
 * A call is one grpc_call with at most four batches under way: NEW or CLOSE, RECEIVE and SEND. Events
 * of batches are handled by one thread at a time, the network thread or that which waits in its place
 * (rpc_server_wait), both called the network thread here; sends are started by any thread under the call's
 * lock. Once CLOSE has come no batch is started any more, so the last event to be handled releases
 * the grpc_call; the struct itself lives until the last reference goes. */
#pragma once

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/poll_turn.h"
#include "rpc/common.h"
#include "rpc/server.h"

struct rpc_health;

enum rpc_event { RPC_EVENT_NEW, RPC_EVENT_CLOSE, RPC_EVENT_RECEIVE, RPC_EVENT_SEND, N_RPC_EVENTS };

struct rpc_tag {
    enum rpc_event event;
    struct rpc_call *call;
};

struct rpc_server {
    grpc_server *grpc;
    grpc_completion_queue *events;
    const struct rpc_method *methods;
    int n_methods;
    void *service;
    struct rpc_health *health;
    char *address;
    pthread_t thread;
    struct turn turn;

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
    void *service;
    void *data;
    atomic_int n_refs; /* 1 is the network thread's */
    struct rpc_tag tags[N_RPC_EVENTS];

    /* The network thread's. */
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *incoming;
    struct buffer in;
    int close_cancelled; /* filled by gRPC */
    int64_t deadline_us;

    atomic_bool is_cancelled;
    pthread_mutex_t lock; /* of all below */
    grpc_call *grpc;
    int n_batches;
    bool is_closed, is_sending, has_sent_metadata, is_finishing, has_sent_status;
    bool is_overrun; /* a send was refused because the client does not read */
    grpc_status_code status;
    grpc_slice status_text;
    struct queued_message *first, **end; /* waiting behind the send that is under way */
    size_t sending_bytes, queued_bytes;  /* queued_bytes counts both */
};

/* Keeps some calls armed: one serves one client's call. On the network thread or before it runs. */
void rpc_server_arm(struct rpc_server *server);
int rpc_call_arm(struct rpc_server *server, struct error *err);
/* Handles one event of a call on the network thread. */
void rpc_call_handle(const struct rpc_tag *tag, bool ok);

/* rpc_health.c */
extern const struct rpc_method rpc_health_methods[];
enum { N_RPC_HEALTH_METHODS = 2 };
int rpc_health_open(struct rpc_health **health, struct error *err);
void rpc_health_close(struct rpc_health *health);
void rpc_health_set(struct rpc_health *health, const char *service, bool is_serving);
bool rpc_health_is_serving(struct rpc_health *health, const char *service);
/* Ends all watches, so that they do not keep the server from closing. */
void rpc_health_shut(struct rpc_health *health);
