/* Starts and ends a server. The end has a fixed order: no new calls, grace time for running ones,
 * cancel the rest, wait until the library says that all is over, handle the last events, then
 * destroy the queue. */
#include "rpc/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "access/reach.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text/options.h"
#include "rpc/internal.h"

enum { HAS_WORK_INTERVAL_US = 50000 };

static void set_shut(struct rpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->is_shut = true;
    pthread_cond_signal(&server->shut);
    pthread_mutex_unlock(&server->lock);
}

/* The event that tells that the server has shut down has the server itself as its tag. */
static void handle(struct rpc_server *server, const grpc_event *event)
{
    if (event->tag == server) {
        set_shut(server);
        server->is_ending = true;
    } else {
        rpc_call_handle(event->tag, event->success != 0);
    }
    /* Events of calls may still be under way; they must be handled before the queue is
     * destroyed. */
    if (server->is_ending && server->n_live == 0) grpc_completion_queue_shutdown(server->events);
}

/* Handles events until the server has ended. */
static void *run_network(void *arg)
{
    struct rpc_server *server = arg;
    prctl(PR_SET_NAME, "network"); /* for top -H; best effort */
    for (;;) {
        poll_turn_await(&server->turn);
        grpc_event event =
            grpc_completion_queue_next(server->events, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        handle(server, &event);
    }
}

void rpc_server_wait(struct rpc_server *server, bool (*has_work)(void *arg), void *arg)
{
    while (!has_work(arg)) {
        int64_t until_us = clock_now_us() + HAS_WORK_INTERVAL_US;
        if (!poll_turn_take(&server->turn, until_us)) continue;
        if (has_work(arg)) break; /* the network thread's last event has brought it */
        grpc_event event =
            grpc_completion_queue_next(server->events, rpc_time_of_us(until_us), NULL);
        if (event.type == GRPC_OP_COMPLETE) handle(server, &event);
    }
    poll_turn_leave(&server->turn);
}

void rpc_server_expect(struct rpc_server *server)
{
    poll_turn_expect(&server->turn);
}

/* True when another process listens on the socket at that path. The library would take it over
 * without an error. */
static bool is_socket_alive(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof name.sun_path) return false;
    memcpy(name.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    fcntl(fd, F_SETFL, O_NONBLOCK); /* a server with a full backlog would keep us waiting */
    bool is_alive =
        connect(fd, (const struct sockaddr *)&name, sizeof name) == 0 || errno == EAGAIN;
    close(fd);
    return is_alive;
}

/* Sets *port to the one that is bound. */
static int add_port(struct rpc_server *server, const char *address, int *port, struct error *err)
{
    grpc_server_credentials *credentials;
    int rc = rpc_tls_open_server(&server->tls, &credentials, err);
    if (rc) return rc;
    *port = grpc_server_add_http2_port(server->grpc, address, credentials);
    grpc_server_credentials_release(credentials);
    if (*port > 0) return 0;
    return error_set(err, ERR_IO, "cannot listen on %s: the address is in use or not ours",
                     address);
}

static int check_address(const char *address, struct error *err)
{
    const char *path = reach_unix_path(address);
    const char *colon = strrchr(address, ':');
    int port;
    if (!colon || !colon[1]) {
        return error_set(err, ERR_ARGUMENT, "the address '%s' has no port", address);
    }
    /* The library would take any number modulo 65536. */
    if (!path && options_int(&port, "port", colon + 1, 0, PORT_MAX, err)) {
        return error_set(err, ERR_ARGUMENT, "the address '%s' has no port from 0 to %d", address,
                         PORT_MAX);
    }
    if (path && is_socket_alive(path)) {
        return error_set(err, ERR_IO, "cannot listen on %s: another server does", address);
    }
    return 0;
}

static int bind_address(struct rpc_server *server, const char *address, struct error *err)
{
    int port, rc = 0;
    size_t size = strlen(address) + 16;
    TRY(check_address(address, err));
    TRY(add_port(server, address, &port, err));
    TRY(mem_array(&server->address, size, 1, err));
    if (reach_unix_path(address)) {
        snprintf(server->address, size, "%s", address);
    } else {
        int host_len = (int)(strrchr(address, ':') - address);
        snprintf(server->address, size, "%.*s:%d", host_len, address, port);
    }
    TRY(rpc_door_open(&server->door, server->address, err));
out:
    return rc;
}

/* Ends a server whose network thread does not run; the calling thread handles its events. */
static void end_without_thread(struct rpc_server *server)
{
    grpc_server_shutdown_and_notify(server->grpc, server->events, server);
    grpc_server_cancel_all_calls(server->grpc);
    run_network(server);
}

static void server_free(struct rpc_server *server)
{
    grpc_server_destroy(server->grpc);
    grpc_completion_queue_destroy(server->events);
    rpc_library_close();
    rpc_door_close(server->door);
    poll_turn_close(&server->turn);
    pthread_cond_destroy(&server->shut);
    pthread_mutex_destroy(&server->lock);
    free(server->services);
    free(server->address);
    free(server);
}

static void server_init(struct rpc_server *server, const struct rpc_server_options *wishes)
{
    grpc_arg args[RPC_ARGS_MAX];
    int max_bytes = wishes->max_message_bytes ? wishes->max_message_bytes : MESSAGE_BYTES_MAX;
    const grpc_channel_args options = rpc_server_args(args, max_bytes, wishes->notices_loss);
    pthread_condattr_t attr;
    server->is_accepting = true;
    poll_turn_open(&server->turn);
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&server->shut, &attr);
    pthread_condattr_destroy(&attr);
    rpc_library_open();
    server->events = grpc_completion_queue_create_for_next(NULL);
    server->grpc = grpc_server_create(&options, NULL);
    grpc_server_register_completion_queue(server->grpc, server->events, NULL);
}

static int copy_services(struct rpc_server *server, const struct rpc_server_options *options,
                         struct error *err)
{
    size_t n = (size_t)options->n_services;
    int rc = mem_array(&server->services, n, sizeof *server->services, err);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        server->services[i] = options->services[i];
    }
    server->n_services = options->n_services;
    return 0;
}

int rpc_server_open(struct rpc_server **server, const struct rpc_server_options *options,
                    struct error *err)
{
    struct rpc_server *s;
    *server = NULL;
    int rc = mem_array(&s, 1, sizeof *s, err);
    if (rc) return rc;
    server_init(s, options);
    if (!reach_unix_path(options->address)) s->tls.certificates = options->certificates;
    s->authenticator = options->authenticator;
    TRY(copy_services(s, options, err));
    TRY(bind_address(s, options->address, err));
    grpc_server_start(s->grpc);
    TRY(rpc_server_arm(s, err));
    if (pthread_create(&s->thread, NULL, run_network, s)) {
        rc = error_set(err, ERR_NO_MEMORY, "cannot start the network thread of %s", s->address);
        goto out;
    }
    *server = s;
out:
    if (rc) {
        end_without_thread(s);
        server_free(s);
    }
    return rc;
}

/* Cancels under the lock, because the library forbids it once is_shut is set. */
static void wait_and_cancel(struct rpc_server *server, int grace_ms)
{
    int64_t deadline_us = clock_now_us() + (int64_t)grace_ms * 1000;
    struct timespec until = {.tv_sec = deadline_us / 1000000,
                             .tv_nsec = deadline_us % 1000000 * 1000};
    pthread_mutex_lock(&server->lock);
    while (!server->is_shut) {
        if (pthread_cond_timedwait(&server->shut, &server->lock, &until)) break;
    }
    if (!server->is_shut) grpc_server_cancel_all_calls(server->grpc);
    pthread_mutex_unlock(&server->lock);
}

void rpc_server_close(struct rpc_server *server, int grace_ms)
{
    if (!server) return;
    poll_turn_end(&server->turn);
    for (int i = 0; i < server->n_services; i++) {
        const struct rpc_service *service = &server->services[i];
        if (service->on_closing) service->on_closing(service->state);
    }
    grpc_server_shutdown_and_notify(server->grpc, server->events, server);
    wait_and_cancel(server, grace_ms);
    pthread_join(server->thread, NULL);
    server_free(server);
}

const char *rpc_server_address(const struct rpc_server *server)
{
    return server->address;
}
