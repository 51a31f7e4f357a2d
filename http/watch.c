/* Watches what libmicrohttpd does not: clients that leave while their connection is suspended,
 * which it would notice at the next write only, connections that take too long over a request,
 * where it knows only how long they were silent, and clients that vanish while an answer is
 * written. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/exchange.h"
#include "http/internal.h"

enum { EVENTS = 64, SWEEP_MS = 250, LOOK_MS = 2000 };

/* ---- clients that leave ---- */

/* The exchange of an event, with a reference; NULL if it is not watched any more. */
static struct http_exchange *find(struct http_server *server, uint64_t data)
{
    struct http_exchange *x = NULL;
    size_t fd = (uint32_t)data;
    monitor_enter(&server->monitor);
    if (fd < server->n_watched && server->watched[fd].generation == data >> 32) {
        x = server->watched[fd].x;
        if (x) http_exchange_ref(x);
    }
    monitor_leave(&server->monitor);
    return x;
}

/* ---- requests that take too long, and clients that vanish ---- */

/* libmicrohttpd misses the end of a connection that comes right after a part of a body. */
static bool has_left(const struct http_connection *c)
{
    char byte;
    return c->has_headers && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void http_cut(struct http_server *server, struct http_connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->deadline_us = INT64_MAX;
    c->has_headers = false;
    if (!c->is_cut) server->n_connections--;
    c->is_cut = true;
}

/* looks: also asks the kernel about the peers. */
static void sweep(struct http_server *server, bool looks)
{
    int64_t now_us = clock_now_us();
    monitor_enter(&server->monitor);
    struct http_connection *head = &server->connections;
    for (struct http_connection *c = head->next; c != head; c = c->next) {
        bool is_late = now_us >= c->deadline_us;
        if (!is_late && !has_left(c) && !(looks && http_peer_is_lost(c->fd))) continue;
        http_cut(server, c);
    }
    monitor_leave(&server->monitor);
}

/* ---- the thread ---- */

static bool is_closing(struct http_server *server)
{
    monitor_enter(&server->monitor);
    bool is_closing = server->is_closing;
    monitor_leave(&server->monitor);
    return is_closing;
}

static void *watch(void *arg)
{
    struct http_server *server = arg;
    struct epoll_event events[EVENTS];
    int64_t swept_ms = clock_now_ms(), looked_ms = swept_ms;
    while (!is_closing(server)) {
        int n = epoll_wait(server->epoll_fd, events, EVENTS, SWEEP_MS);
        for (int i = 0; i < n; i++) {
            struct http_exchange *x = find(server, events[i].data.u64);
            if (!x) continue;
            http_exchange_leave(x);
            http_exchange_unref(x);
        }
        int64_t now_ms = clock_now_ms();
        if (now_ms - swept_ms < SWEEP_MS) continue;
        bool looks = now_ms - looked_ms >= LOOK_MS;
        sweep(server, looks);
        swept_ms = now_ms;
        if (looks) looked_ms = now_ms;
    }
    return NULL;
}

int http_watch_open(struct http_server *server, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll_fd < 0 || server->wake_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &event)) {
        return error_set(err, ERR_IO, "no epoll for HTTP: %s", strerror(errno));
    }
    if (pthread_create(&server->watcher, NULL, watch, server)) {
        return error_set(err, ERR_NO_MEMORY, "cannot start a thread for HTTP");
    }
    server->has_watcher = true;
    return 0;
}

void http_watch_close(struct http_server *server)
{
    uint64_t one = 1;
    monitor_enter(&server->monitor);
    server->is_closing = true;
    monitor_leave(&server->monitor);
    if (server->has_watcher) {
        if (write(server->wake_fd, &one, sizeof one) != sizeof one) {
        } /* it wakes up anyway */
        pthread_join(server->watcher, NULL);
    }
    if (server->epoll_fd >= 0) close(server->epoll_fd);
    if (server->wake_fd >= 0) close(server->wake_fd);
    free(server->watched);
}
