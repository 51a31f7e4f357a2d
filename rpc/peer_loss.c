/* gRPC's own keepalive must be patient, because a peer that computes does not read its pings. TCP's
 * probes are answered by the kernel of the other host, whatever its processes do, so here a few
 * seconds are enough. gRPC 1.51 lets nobody set them but through a socket mutator, a documented
 * argument whose struct is in no public header (src/core/lib/iomgr/socket_mutator.h): it is written
 * down again here, and used only with versions of the core for which it has been compared. */
#include "rpc/peer_loss.h"

#include <grpc/support/sync.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

enum {
    PROBE_AFTER_S = 1, /* of silence, and between probes */
    PROBES = 3,
    LOST_AFTER_MS = 1900 /* without an answer to a probe or to what was sent */
};

struct mutator {
    const struct mutator_table *table;
    gpr_refcount references;
};

struct mutator_table {
    bool (*change)(int fd, struct mutator *mutator);
    int (*compare)(struct mutator *a, struct mutator *b);
    void (*destroy)(struct mutator *mutator);
    bool (*change_used)(const int *fd_and_usage, struct mutator *mutator);
};

/* Fails for unix sockets, which need none of it. */
static void set(int fd, int option, unsigned value)
{
    setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
}

static bool change(int fd, struct mutator *mutator)
{
    const int yes = 1;
    (void)mutator;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    set(fd, TCP_KEEPIDLE, PROBE_AFTER_S);
    set(fd, TCP_KEEPINTVL, PROBE_AFTER_S);
    set(fd, TCP_KEEPCNT, PROBES);
    set(fd, TCP_USER_TIMEOUT, LOST_AFTER_MS);
    return true;
}

static bool change_used(const int *fd_and_usage, struct mutator *mutator)
{
    return change(*fd_and_usage, mutator);
}

/* There is one mutator. */
static int compare(struct mutator *a, struct mutator *b)
{
    return (a > b) - (a < b);
}

/* Our own reference is never given back. */
static void destroy(struct mutator *mutator)
{
    (void)mutator;
}

static const struct mutator_table table = {change, compare, destroy, change_used};
static struct mutator the_mutator = {.table = &table};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_once(void)
{
    gpr_ref_init(&the_mutator.references, 1);
}

static void *arg_copy(void *mutator)
{
    return mutator;
}

static void arg_destroy(void *mutator)
{
    (void)mutator;
}

static int arg_compare(void *a, void *b)
{
    return compare(a, b);
}

bool rpc_peer_loss_arg(grpc_arg *arg)
{
    static const char core[] = "29."; /* gRPC 1.51 */
    static const grpc_arg_pointer_vtable pointers = {arg_copy, arg_destroy, arg_compare};
    static char key[] = GRPC_ARG_SOCKET_MUTATOR;
    if (strncmp(grpc_version_string(), core, sizeof core - 1) != 0) return false;
    pthread_once(&once, open_once);
    *arg = (grpc_arg){.type = GRPC_ARG_POINTER,
                      .key = key,
                      .value.pointer = {.p = &the_mutator, .vtable = &pointers}};
    return true;
}
