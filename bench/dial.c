/* TCP connections by name. */
#include "bench/dial.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int dial(const char *address, int *fd, struct error *err)
{
    char host[128];
    int rc = 0;
    const char *colon = strrchr(address, ':');
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (!colon) return error_set(err, ERR_ARGUMENT, "%s is no HOST:PORT", address);
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    if (getaddrinfo(host, colon + 1, &hints, &found)) {
        return error_set(err, ERR_ARGUMENT, "%s is not found", address);
    }
    *fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (*fd < 0 || connect(*fd, found->ai_addr, found->ai_addrlen)) {
        rc = error_set(err, ERR_IO, "cannot connect to %s: %s", address, strerror(errno));
        if (*fd >= 0) close(*fd);
    }
    freeaddrinfo(found);
    return rc;
}
