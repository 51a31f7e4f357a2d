/* A connection is known by its descriptor and its socket's cookie, because the library closes
 * descriptors without telling, and the kernel gives them out again. Between looking at the cookie
 * and cutting, a descriptor could become another connection's; then that one is cut, and its client
 * tries again. */
#include "rpc/door.h"

#include <arpa/inet.h>
#include <asm/socket.h> /* SO_COOKIE */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "access/reach.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/network.h"

enum {
    CUT_PER_OPEN = 4, /* so many connections are open for each that is cut, but not closed */
    LOOK_US = 100000, /* between two looks at all connections */
    POKE_AFTER_US = 20000,
    WARN_US = 60000000,      /* between two warnings */
    NO_FILES_PAUSE_US = 2000 /* until files may be free again */
};

struct connection {
    int fd, port;
    uint64_t cookie;
    int64_t idle_since_us;
    int n_calls;
    bool is_cut; /* the library closes it soon */
    char host[INET6_ADDRSTRLEN];
};

struct rpc_door {
    struct rpc_door *next;
    int port;                   /* 0: a unix socket */
    struct sockaddr_un path;    /* of that */
    int most;                   /* connections that are not cut */
    pthread_mutex_t lock;       /* of what follows */
    struct connection *entries; /* [n], the oldest first; some may be closed */
    size_t capacity;
    int n, n_cut;
    int64_t looked_us, warned_us;
};

static pthread_mutex_t doors_lock = PTHREAD_MUTEX_INITIALIZER; /* of doors */
static struct rpc_door *doors;

int rpc_door_open(struct rpc_door **out, const char *address, struct error *err)
{
    struct rpc_door *door;
    const char *path = reach_unix_path(address);
    *out = NULL;
    int rc = mem_array(&door, 1, sizeof *door, err);
    if (rc) return rc;
    pthread_mutex_init(&door->lock, NULL);
    if (path) {
        door->path.sun_family = AF_UNIX;
        strncpy(door->path.sun_path, path, sizeof door->path.sun_path - 1);
    } else {
        door->port = atoi(strrchr(address, ':') + 1);
    }
    door->most = network_connections_most();
    pthread_mutex_lock(&doors_lock);
    door->next = doors;
    doors = door;
    pthread_mutex_unlock(&doors_lock);
    *out = door;
    return 0;
}

void rpc_door_close(struct rpc_door *door)
{
    if (!door) return;
    pthread_mutex_lock(&doors_lock);
    struct rpc_door **at = &doors;
    while (*at != door) {
        at = &(*at)->next;
    }
    *at = door->next;
    pthread_mutex_unlock(&doors_lock);
    pthread_mutex_destroy(&door->lock);
    free(door->entries);
    free(door);
}

/* ---- addresses ---- */

/* The port, 0 for unix sockets, and the host as gRPC shows it. */
static int read_address(const struct sockaddr_storage *addr, char host[INET6_ADDRSTRLEN])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* of IPv4 */
    const struct sockaddr_in *four = (const void *)addr;
    const struct sockaddr_in6 *six = (const void *)addr;
    host[0] = '\0';
    if (addr->ss_family == AF_INET) {
        inet_ntop(AF_INET, &four->sin_addr, host, INET6_ADDRSTRLEN);
        return ntohs(four->sin_port);
    }
    if (addr->ss_family != AF_INET6) return 0;
    const uint8_t *bytes = six->sin6_addr.s6_addr;
    if (memcmp(bytes, mapped, sizeof mapped) == 0) {
        inet_ntop(AF_INET, bytes + sizeof mapped, host, INET6_ADDRSTRLEN);
    } else {
        inet_ntop(AF_INET6, bytes, host, INET6_ADDRSTRLEN);
    }
    return ntohs(six->sin6_port);
}

/* The door that a socket listens for; NULL: none. */
static struct rpc_door *find_door(int listener)
{
    struct sockaddr_storage addr = {0};
    const struct sockaddr_un *un = (const void *)&addr;
    char host[INET6_ADDRSTRLEN];
    socklen_t len = sizeof addr;
    if (getsockname(listener, (struct sockaddr *)&addr, &len)) return NULL;
    int port = read_address(&addr, host);
    pthread_mutex_lock(&doors_lock);
    struct rpc_door *door = doors;
    for (; door; door = door->next) {
        if (addr.ss_family == AF_UNIX) {
            if (!door->port && strcmp(door->path.sun_path, un->sun_path) == 0) break;
        } else if (port && door->port == port) {
            break;
        }
    }
    pthread_mutex_unlock(&doors_lock);
    return door;
}

/* ---- connections, with the lock held ---- */

static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}

static void forget(struct rpc_door *door, int i)
{
    door->n_cut -= door->entries[i].is_cut;
    door->n--;
    memmove(&door->entries[i], &door->entries[i + 1],
            (size_t)(door->n - i) * sizeof *door->entries);
}

static void forget_closed(struct rpc_door *door)
{
    for (int i = door->n - 1; i >= 0; i--) {
        if (cookie_of(door->entries[i].fd) != door->entries[i].cookie) forget(door, i);
    }
}

static void forget_descriptor(struct rpc_door *door, int fd)
{
    for (int i = door->n - 1; i >= 0; i--) {
        if (door->entries[i].fd == fd) forget(door, i);
    }
}

/* Closes the connection that is idle for the longest time, among the first n; false: none is. */
static bool cut_idle(struct rpc_door *door, int n)
{
    int oldest = -1;
    for (int i = 0; i < n; i++) {
        const struct connection *c = &door->entries[i];
        if (c->is_cut || c->n_calls) continue;
        if (oldest < 0 || c->idle_since_us < door->entries[oldest].idle_since_us) oldest = i;
    }
    if (oldest < 0) return false;
    struct connection *c = &door->entries[oldest];
    if (cookie_of(c->fd) == c->cookie) {
        shutdown(c->fd, SHUT_RDWR);
        c->is_cut = true;
        door->n_cut++;
    } else {
        forget(door, oldest);
    }
    return true;
}

static void warn(struct rpc_door *door, const char *event, const char *text)
{
    int64_t now_us = clock_now_us();
    if (door->warned_us && now_us - door->warned_us < WARN_US) return;
    door->warned_us = now_us;
    log_line(LOG_LEVEL_WARN, event, "connections=%d most=%d text=\"%s\"", door->n, door->most,
             text);
}

static void add(struct rpc_door *door, int fd, const struct sockaddr_storage *addr)
{
    struct error err;
    forget_descriptor(door, fd);
    if (mem_grow(&door->entries, &door->capacity, (size_t)door->n + 1, &err)) return;
    struct connection *c = &door->entries[door->n++];
    *c = (struct connection){.fd = fd, .cookie = cookie_of(fd), .idle_since_us = clock_now_us()};
    c->port = read_address(addr, c->host);
    if (door->n - door->n_cut <= door->most) return;
    warn(door, "rpc_door_full",
         "the door has as many connections as it may; idle ones are closed for new ones");
    if (cut_idle(door, door->n - 1)) return;
    shutdown(fd, SHUT_RDWR);
    c->is_cut = true;
    door->n_cut++;
}

/* True if too many connections that were cut are still open: the library closes them between two of
 * its rounds of accepting, so a round must end. */
static bool is_too_fast(struct rpc_door *door)
{
    int64_t now_us = clock_now_us();
    bool is_full = door->n >= door->most;
    bool waits = door->n_cut > door->most / CUT_PER_OPEN;
    if (is_full && (waits || now_us - door->looked_us > LOOK_US)) {
        forget_closed(door);
        door->looked_us = now_us;
    }
    return door->n_cut > door->most / CUT_PER_OPEN;
}

/* ---- connections that are left for later ---- */

/* After an EAGAIN although connections wait, gRPC's polling by epoll waits for a further one to
 * come. So one comes: ours, from a thread that nobody waits for. */
struct poke {
    struct sockaddr_storage to;
    socklen_t len;
};

static atomic_bool is_poking; /* one at a time is enough */

static void *poke_door(void *arg)
{
    struct poke *poke = arg;
    int fd = -1;
    while (fd < 0) { /* as long as the process may open no more files, too */
        clock_sleep_us(POKE_AFTER_US);
        fd = socket(poke->to.ss_family, SOCK_STREAM, 0);
        if (fd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            break;
    }
    atomic_store(&is_poking, false);
    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        connect(fd, (const struct sockaddr *)&poke->to, poke->len); /* it need not succeed */
        clock_sleep_us(POKE_AFTER_US);
        close(fd);
    }
    free(poke);
    return NULL;
}

static void come_back(int listener)
{
    struct error err;
    struct poke *poke = NULL;
    pthread_t thread;
    if (atomic_exchange(&is_poking, true)) return;
    if (mem_array(&poke, 1, sizeof *poke, &err) == 0) {
        poke->len = sizeof poke->to;
        getsockname(listener, (struct sockaddr *)&poke->to, &poke->len);
        if (pthread_create(&thread, NULL, poke_door, poke) == 0) {
            pthread_detach(thread);
            return;
        }
    }
    free(poke);
    atomic_store(&is_poking, false);
}

/* ---- accepting ---- */

/* True if the socket still listens, so that the next connection may be better. */
static bool is_passing(int code)
{
    return code != EAGAIN && code != EINTR && code != EBADF && code != EINVAL && code != ENOTSOCK;
}

/* gRPC would listen no more after an error that is not EAGAIN. */
static void pass_over(struct rpc_door *door, int listener, int code)
{
    bool lacks_files = code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
    if (lacks_files) {
        warn(door, "rpc_files_exhausted",
             "the process may open no more files, so new connections wait; raise its limit of open "
             "files");
        cut_idle(door, door->n);
        clock_sleep_us(NO_FILES_PAUSE_US);
    }
    come_back(listener);
    errno = EAGAIN;
}

static int accept_at(struct rpc_door *door, int listener, struct sockaddr_storage *addr,
                     socklen_t *len, int flags)
{
    if (door->port && is_too_fast(door)) {
        come_back(listener);
        errno = EAGAIN;
        return -1;
    }
    int fd = network_accept(listener, (struct sockaddr *)addr, len, flags);
    if (fd < 0 && is_passing(errno)) pass_over(door, listener, errno);
    if (fd >= 0 && door->port) add(door, fd, addr);
    return fd;
}

/* In place of the C library's, for the whole program. */
int accept4(int listener, struct sockaddr *addr, socklen_t *len, int flags);

int accept4(int listener, struct sockaddr *addr, socklen_t *len, int flags)
{
    struct sockaddr_storage peer = {0};
    socklen_t peer_len = sizeof peer;
    struct rpc_door *door = find_door(listener);
    if (!door) return network_accept(listener, addr, len, flags);
    pthread_mutex_lock(&door->lock);
    int fd = accept_at(door, listener, &peer, &peer_len, flags);
    int code = errno;
    pthread_mutex_unlock(&door->lock);
    if (fd >= 0 && addr && len) {
        memcpy(addr, &peer, *len < peer_len ? *len : peer_len);
        *len = peer_len;
    }
    errno = code;
    return fd;
}

/* ---- calls ---- */

uint64_t rpc_door_enter(struct rpc_door *door, const char *peer)
{
    const char *colon = peer ? strrchr(peer, ':') : NULL;
    int port = colon ? atoi(colon + 1) : 0;
    uint64_t found = 0;
    pthread_mutex_lock(&door->lock);
    for (int i = door->n - 1; i >= 0 && port && !found; i--) {
        struct connection *c = &door->entries[i];
        if (c->port != port || c->is_cut || !strstr(peer, c->host)) continue;
        c->n_calls++;
        found = c->cookie;
    }
    pthread_mutex_unlock(&door->lock);
    return found;
}

void rpc_door_leave(struct rpc_door *door, uint64_t connection)
{
    if (!connection) return;
    pthread_mutex_lock(&door->lock);
    for (int i = 0; i < door->n; i++) {
        struct connection *c = &door->entries[i];
        if (c->cookie != connection) continue;
        c->n_calls--;
        c->idle_since_us = clock_now_us();
        break;
    }
    pthread_mutex_unlock(&door->lock);
}
