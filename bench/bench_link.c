/* A link with a delay between two programs of this machine, as between two hosts.
 *
 *   bench_link DELAY_US LISTEN TO [LISTEN TO]...
 *
 * LISTEN and TO are paths of Unix sockets. Who calls LISTEN is connected with TO; every byte is
 * DELAY_US under way in each direction, whatever else is. It ends at SIGTERM. One thread carries
 * everything and sleeps in pselect with a timer slack of 1 us, so that a delay is some microseconds
 * longer than asked for; bench/cluster_plan.py measures by how much. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    LINKS_MAX = 64,
    WAYS_MAX = 512, /* two of each connection */
    PIECE_BYTES = 1 << 16,
    BACKLOG = 64
};

/* Bytes that were read together, and when they are due. */
struct piece {
    struct piece *next;
    long long due_ns;
    size_t len, sent;
    char data[];
};

/* One direction of a connection; the other one is its neighbour, at index ^ 1. */
struct way {
    int from, to; /* -1: not used */
    struct piece *first, *last;
};

static struct way ways[WAYS_MAX];
static int listeners[LINKS_MAX];
static const char *targets[LINKS_MAX];
static int n_links;
static long long delay_ns;
static const long long second_ns = 1000000000;

static void give_up(const char *what)
{
    fprintf(stderr, "bench_link: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * second_ns + t.tv_nsec;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        give_up(path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

static int listen_at(const char *path)
{
    const struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) ||
        listen(fd, BACKLOG)) {
        give_up(path);
    }
    return fd;
}

/* ---- connections ---- */

static void open_connection(int caller, const char *path)
{
    const struct sockaddr_un address = address_of(path);
    int other = socket(AF_UNIX, SOCK_STREAM, 0), at = 0;
    while (at < WAYS_MAX && ways[at].from >= 0) {
        at += 2;
    }
    if (at == WAYS_MAX || other < 0 ||
        connect(other, (const struct sockaddr *)&address, sizeof address)) {
        if (other >= 0) close(other);
        close(caller);
        return;
    }
    ways[at] = (struct way){.from = caller, .to = other};
    ways[at + 1] = (struct way){.from = other, .to = caller};
}

static void forget(struct way *way)
{
    while (way->first) {
        struct piece *next = way->first->next;
        free(way->first);
        way->first = next;
    }
    *way = (struct way){.from = -1, .to = -1};
}

static void close_connection(int at)
{
    close(ways[at].from);
    close(ways[at].to);
    forget(&ways[at & ~1]);
    forget(&ways[at | 1]);
}

/* ---- bytes ---- */

/* An empty piece says that the sender has closed. */
static void take_in(struct way *way)
{
    static char bytes[PIECE_BYTES];
    ssize_t n = recv(way->from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    size_t len = n > 0 ? (size_t)n : 0;
    struct piece *piece = malloc(sizeof *piece + len);
    if (!piece) give_up("a piece");
    *piece = (struct piece){.due_ns = now_ns() + delay_ns, .len = len};
    memcpy(piece->data, bytes, len);
    if (way->last) {
        way->last->next = piece;
    } else {
        way->first = piece;
    }
    way->last = piece;
}

static int has_ended(const struct way *way)
{
    return way->last && way->last->len == 0;
}

/* Sends what is due. Returns 1 when the connection is over. */
static int send_due(struct way *way, long long now)
{
    while (way->first && way->first->due_ns <= now) {
        struct piece *piece = way->first;
        if (piece->len == 0) return 1;
        ssize_t n = send(way->to, piece->data + piece->sent, piece->len - piece->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return errno != EAGAIN && errno != EINTR;
        piece->sent += (size_t)n;
        if (piece->sent < piece->len) return 0;
        way->first = piece->next;
        if (!way->first) way->last = NULL;
        free(piece);
    }
    return 0;
}

/* ---- waiting ---- */

/* Lists the descriptors that can be read from; returns the highest. *due: the next piece, or -1. */
static int list_readable(fd_set *set, long long *due)
{
    int highest = -1;
    FD_ZERO(set);
    *due = -1;
    for (int i = 0; i < n_links; i++) {
        FD_SET(listeners[i], set);
        if (listeners[i] > highest) highest = listeners[i];
    }
    for (int i = 0; i < WAYS_MAX; i++) {
        const struct way *way = &ways[i];
        if (way->from < 0) continue;
        if (way->first && (*due < 0 || way->first->due_ns < *due)) *due = way->first->due_ns;
        if (has_ended(way)) continue;
        FD_SET(way->from, set);
        if (way->from > highest) highest = way->from;
    }
    return highest;
}

static void wait_for(fd_set *set, int highest, long long due)
{
    long long left = due - now_ns();
    if (left < 0) left = 0;
    const struct timespec time = {.tv_sec = left / second_ns, .tv_nsec = left % second_ns};
    if (pselect(highest + 1, set, NULL, NULL, due < 0 ? NULL : &time, NULL) < 0) FD_ZERO(set);
}

static void carry_once(void)
{
    fd_set readable;
    long long due;
    int highest = list_readable(&readable, &due);
    wait_for(&readable, highest, due);
    for (int i = 0; i < WAYS_MAX; i++) {
        struct way *way = &ways[i];
        if (way->from >= 0 && !has_ended(way) && FD_ISSET(way->from, &readable)) take_in(way);
    }
    for (int i = 0; i < WAYS_MAX; i++) {
        if (ways[i].from >= 0 && send_due(&ways[i], now_ns())) close_connection(i);
    }
    for (int i = 0; i < n_links; i++) {
        int caller = FD_ISSET(listeners[i], &readable) ? accept(listeners[i], NULL, NULL) : -1;
        if (caller >= 0) open_connection(caller, targets[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc % 2 || argc > 2 + 2 * LINKS_MAX) {
        fprintf(stderr, "usage: bench_link DELAY_US LISTEN TO [LISTEN TO]...\n");
        return 2;
    }
    delay_ns = atoll(argv[1]) * 1000;
    prctl(PR_SET_TIMERSLACK, 1000L, 0, 0, 0);
    for (int i = 0; i < WAYS_MAX; i++) {
        ways[i] = (struct way){.from = -1, .to = -1};
    }
    for (int i = 2; i < argc; i += 2) {
        targets[n_links] = argv[i + 1];
        listeners[n_links++] = listen_at(argv[i]);
    }
    for (;;) {
        carry_once();
    }
}
