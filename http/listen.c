/* Addresses as text, and the socket that listens at one. */
#include <errno.h>
#include <linux/tcp.h> /* its tcp_info asks for no feature macro */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system/network.h"
#include "http/internal.h"

enum { BACKLOG = 1024, PROBE_IDLE_S = 10, PROBE_PAUSE_S = 5, PROBES = 3, LOST_MS = 30000 };

static int split_address(const char *address, char host[HTTP_ADDRESS_BYTES], const char **port,
                         struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon ? (size_t)(colon - address) : 0;
    bool has_brackets = len > 1 && address[0] == '[' && colon[-1] == ']';
    if (!colon || !colon[1] || len >= HTTP_ADDRESS_BYTES ||
        (!has_brackets && memchr(address, ':', len))) {
        return error_set(err, ERR_ARGUMENT,
                         "the HTTP address %s is not HOST:PORT, such as 127.0.0.1:8000 or "
                         "[::1]:8000",
                         address);
    }
    *port = colon + 1;
    snprintf(host, HTTP_ADDRESS_BYTES, "%.*s", (int)(has_brackets ? len - 2 : len),
             address + has_brackets);
    return 0;
}

void http_show_address(const struct sockaddr *addr, socklen_t len, char out[HTTP_ADDRESS_BYTES])
{
    char host[HTTP_ADDRESS_BYTES] = "?", port[16] = "0";
    getnameinfo(addr, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    network_join(host, port, out);
}

static int bind_one(const struct addrinfo *one, int *fd)
{
    int on = 1;
    *fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return -1;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(*fd, one->ai_addr, one->ai_addrlen) == 0 && listen(*fd, BACKLOG) == 0) return 0;
    int reason = errno;
    close(*fd);
    errno = reason;
    return -1;
}

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value,
               sizeof value); /* without it the peer is only missed later */
}

void http_probe_peer(int fd)
{
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_PAUSE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
}

/* TCP_USER_TIMEOUT would do the same, but it also ends connections whose peer is there and reads
 * slowly with a small window. A peer that reads nothing still acknowledges. */
bool http_peer_is_lost(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           (info.tcpi_unacked > 0 || info.tcpi_probes > 0) && info.tcpi_last_ack_recv > LOST_MS;
}

int http_listen(const char *address, int *fd, char bound_address[HTTP_ADDRESS_BYTES],
                struct error *err)
{
    char host[HTTP_ADDRESS_BYTES];
    const char *port = "";
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    int rc = split_address(address, host, &port, err);
    if (rc) return rc;
    int status = getaddrinfo(*host ? host : NULL, port, &hints, &found);
    if (status) {
        return error_set(err, ERR_IO, "cannot find the HTTP address %s: %s", address,
                         gai_strerror(status));
    }
    if (bind_one(found, fd)) {
        rc = error_set(err, ERR_IO, "cannot listen for HTTP at %s: %s", address, strerror(errno));
    } else {
        getsockname(*fd, (struct sockaddr *)&bound, &len);
        http_show_address((struct sockaddr *)&bound, len, bound_address);
    }
    freeaddrinfo(found);
    return rc;
}
