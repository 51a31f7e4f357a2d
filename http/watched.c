/* Which clients are watched, by descriptor; watch.c does it. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/memory.h"
#include "http/internal.h"

/* Makes room for the descriptor. With the server's lock held. */
static bool make_room(struct http_server *server, int fd)
{
    size_t n = server->n_watched ? server->n_watched : 64;
    struct error err;
    if ((size_t)fd < server->n_watched) return true;
    while (n <= (size_t)fd)
        n *= 2;
    struct http_watched *grown;
    if (mem_array(&grown, n, sizeof *grown, &err)) return false;
    if (server->n_watched) memcpy(grown, server->watched, server->n_watched * sizeof *grown);
    free(server->watched);
    server->watched = grown;
    server->n_watched = n;
    return true;
}

/* With the server's lock held. */
static bool add(struct http_server *server, struct http_exchange *x, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};
    if (!make_room(server, fd)) return false;
    struct http_watched *watched = &server->watched[fd];
    watched->generation++;
    event.data.u64 = (uint64_t)watched->generation << 32 | (uint32_t)fd;
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event)) return false;
    watched->x = x;
    return true;
}

bool http_watch(struct http_server *server, struct http_exchange *x, int fd)
{
    monitor_enter(&server->monitor);
    bool is_watched = !server->is_cutting && add(server, x, fd);
    monitor_leave(&server->monitor);
    return is_watched;
}

void http_unwatch(struct http_server *server, int fd)
{
    monitor_enter(&server->monitor);
    server->watched[fd].x = NULL;
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    monitor_leave(&server->monitor);
}
