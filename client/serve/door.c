/* Tries addresses by binding a socket to them. */
#include "client/serve/door.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_BYTES = 256 };

static int explain(const char *address, const char *advice, int why, struct error *err)
{
    switch (why) {
    case EADDRINUSE:
        return error_set(err, ERR_IO,
                         "%.200s is in use; end the program that listens there, or give "
                         "another %s",
                         address, advice);
    case EADDRNOTAVAIL:
        return error_set(err, ERR_ARGUMENT, "%.200s is no address of this machine; give another %s",
                         address, advice);
    case EACCES:
        return error_set(err, ERR_ARGUMENT,
                         "%.200s: only root may listen at this port; give another %s", address,
                         advice);
    default:
        return error_set(err, ERR_IO, "%.200s cannot be listened at: %s", address, strerror(why));
    }
}

/* Returns errno, or 0. */
static int try_bind(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM, 0), on = 1, why = 0;
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1)) why = errno;
    close(fd);
    return why;
}

int door_check_free(const char *address, const char *advice, struct error *err)
{
    char host[HOST_BYTES];
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0 || !colon) return 0;
    bool has_brackets = address[0] == '[' && colon > address + 1 && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * has_brackets,
             address + has_brackets);
    int failure = getaddrinfo(host, colon + 1, &hints, &found);
    if (failure) {
        return error_set(err, ERR_ARGUMENT, "%.200s is no address: %s; give another %s", address,
                         gai_strerror(failure), advice);
    }
    int why = try_bind(found);
    freeaddrinfo(found);
    return why ? explain(address, advice, why, err) : 0;
}

const char *door_to_open(const char *address, char *out, size_t size)
{
    static const char any[] = "0.0.0.0:", any6[] = "[::]:";
    if (strncmp(address, any, sizeof any - 1) == 0) {
        snprintf(out, size, "127.0.0.1:%s", address + sizeof any - 1);
    } else if (strncmp(address, any6, sizeof any6 - 1) == 0) {
        snprintf(out, size, "[::1]:%s", address + sizeof any6 - 1);
    } else {
        snprintf(out, size, "%s", address);
    }
    return out;
}
