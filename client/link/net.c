/* TCP with deadlines. */
#include "client/link/net.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"

enum { HOST_BYTES = 100, PORT_BYTES = 32, BACKLOG = 64 };

static int look_up(const char *address, int flags, struct addrinfo **list, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    const char *colon = strrchr(address, ':');
    char host[HOST_BYTES];
    size_t len = colon ? (size_t)(colon - address) : 0;
    if (!len || len >= sizeof host || !colon[1]) {
        return error_set(err, ERR_ARGUMENT, "'%.100s': expected HOST:PORT", address);
    }
    if (address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)len, address);
    int failure = getaddrinfo(host, colon + 1, &hints, list);
    if (!failure) return 0;
    return error_set(err, ERR_UNAVAILABLE, "cannot look up %.100s: %s", host,
                     gai_strerror(failure));
}

static int wait_connected(int fd, const char *address, int64_t deadline_ms, struct error *err)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int failure = 0;
    socklen_t len = sizeof failure;
    int64_t left_ms = deadline_ms - clock_now_ms();
    if (left_ms <= 0 || poll(&polled, 1, (int)left_ms) <= 0) {
        return error_set(err, ERR_TIMEOUT, "no connection to %s: no answer in time", address);
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len);
    if (!failure) return 0;
    return error_set(err, ERR_UNAVAILABLE, "no connection to %s: %s", address, strerror(failure));
}

static int connect_one(int *out, const struct addrinfo *info, const char *address,
                       int64_t deadline_ms, struct error *err)
{
    int rc = 0, fd = socket(info->ai_family, SOCK_STREAM, 0);
    if (fd < 0) return error_set(err, ERR_IO, "no socket: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connect(fd, info->ai_addr, info->ai_addrlen)) {
        if (errno == EINPROGRESS) {
            rc = wait_connected(fd, address, deadline_ms, err);
        } else {
            rc = error_set(err, ERR_UNAVAILABLE, "no connection to %s: %s", address,
                           strerror(errno));
        }
    }
    if (rc) {
        close(fd);
        return rc;
    }
    fcntl(fd, F_SETFL, 0);
    *out = fd;
    return 0;
}

int link_connect(int *fd, const char *address, int timeout_ms, struct error *err)
{
    struct addrinfo *list = NULL;
    int64_t deadline_ms = clock_now_ms() + timeout_ms;
    int rc = look_up(address, 0, &list, err);
    if (rc) return rc;
    for (const struct addrinfo *info = list; info; info = info->ai_next) {
        rc = connect_one(fd, info, address, deadline_ms, err);
        if (!rc) break;
    }
    freeaddrinfo(list);
    if (!rc) link_prepare(*fd, timeout_ms);
    return rc;
}

static void show_bound(int fd, const char *address, char bound[LINK_ADDRESS_BYTES])
{
    struct sockaddr_storage storage;
    socklen_t len = sizeof storage;
    char port[PORT_BYTES];
    int host_len = (int)(strrchr(address, ':') - address);
    bool is_known = getsockname(fd, (struct sockaddr *)&storage, &len) == 0 &&
                    getnameinfo((struct sockaddr *)&storage, len, NULL, 0, port, sizeof port,
                                NI_NUMERICSERV) == 0;
    snprintf(bound, LINK_ADDRESS_BYTES, "%.*s:%s", host_len, address,
             is_known ? port : address + host_len + 1);
}

int link_listen(int *out, const char *address, char bound[LINK_ADDRESS_BYTES], struct error *err)
{
    const int yes = 1;
    struct addrinfo *list = NULL;
    int rc = look_up(address, AI_PASSIVE, &list, err);
    if (rc) return rc;
    int fd = socket(list->ai_family, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, BACKLOG)) {
        rc = error_set(err, ERR_IO, "cannot listen at %s: %s", address, strerror(errno));
        if (fd >= 0) close(fd);
    } else {
        show_bound(fd, address, bound);
        *out = fd;
    }
    freeaddrinfo(list);
    return rc;
}

void link_prepare(int fd, int timeout_ms)
{
    const int yes = 1;
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static const uint8_t mark[] = {'o', 'l', '1'};

void link_head_write(uint8_t head[LINK_HEAD_BYTES], int kind, uint32_t body_bytes)
{
    memcpy(head, mark, sizeof mark);
    head[3] = (uint8_t)kind;
    for (int i = 0; i < 4; i++) {
        head[4 + i] = (uint8_t)(body_bytes >> (8 * i));
    }
}

int link_head_read(const uint8_t head[LINK_HEAD_BYTES], int *kind, uint32_t *body_bytes,
                   struct error *err)
{
    *kind = head[3];
    *body_bytes = 0;
    for (int i = 0; i < 4; i++) {
        *body_bytes |= (uint32_t)head[4 + i] << (8 * i);
    }
    bool is_ours = memcmp(head, mark, sizeof mark) == 0 &&
                   (*kind == LINK_ECHO || *kind == LINK_SINK) && *body_bytes <= LINK_BODY_BYTES_MAX;
    return is_ours ? 0 : error_set(err, ERR_FORMAT, "the other side is no 'outrider link'");
}

static int failed(struct error *err)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return error_set(err, ERR_TIMEOUT, "the other side does not answer in time");
    }
    return error_set(err, ERR_UNAVAILABLE, "the connection is lost: %s", strerror(errno));
}

int link_send(int fd, const void *data, size_t len, struct error *err)
{
    const uint8_t *at = data;
    while (len) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(err);
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

int link_receive(int fd, void *data, size_t len, struct error *err)
{
    uint8_t *at = data;
    while (len) {
        ssize_t n = recv(fd, at, len, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(err);
        if (n == 0) return error_set(err, ERR_CLOSED, "the other side has ended the connection");
        at += n;
        len -= (size_t)n;
    }
    return 0;
}
