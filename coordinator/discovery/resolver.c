/* Names, and a thread that looks them up. */
#include "coordinator/discovery/resolver.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/system/network.h"
#include "base/threads/monitor.h"

enum {
    PAUSE_US = 250000,
    NO_ADDRESS = -5 /* EAI_NODATA, which glibc shows with _GNU_SOURCE alone */
};

struct resolver {
    struct monitor monitor;
    struct target_name names[TARGET_NAMES_MAX];
    struct resolved known[TARGET_NAMES_MAX];
    struct resolved found; /* the thread's: of the look-up that is under way */
    int n_names;
    int64_t pause_us;
    bool is_closed;
};

static void free_resolver(struct resolver *r)
{
    monitor_close(&r->monitor);
    free(r);
}

/* Numbers only, in an order of our own, because servers rotate their answers. */
static int compare_addresses(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void add_address(struct resolved *found, const struct addrinfo *info, int port)
{
    char host[NETWORK_ADDRESS_BYTES], number[16];
    if (found->n == TARGET_WORDS_MAX) return;
    if (getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST)) {
        return;
    }
    snprintf(number, sizeof number, "%d", port);
    network_join(host, number, found->addresses[found->n++]);
}

/* A name without addresses is an answer: nobody is there at the moment. False: there is none. */
static bool look_up(const struct target_name *name, struct resolved *found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    found->n = 0;
    found->why[0] = '\0';
    int code = getaddrinfo(name->name, NULL, &hints, &list);
    if (code) {
        snprintf(found->why, sizeof found->why, "dns:%.200s has no address: %s", name->name,
                 gai_strerror(code));
        return code == EAI_NONAME || code == NO_ADDRESS;
    }
    for (const struct addrinfo *info = list; info; info = info->ai_next) {
        add_address(found, info, name->port);
    }
    freeaddrinfo(list);
    if (found->n == TARGET_WORDS_MAX) {
        snprintf(found->why, sizeof found->why, "dns:%.200s has more than %d addresses", name->name,
                 TARGET_WORDS_MAX - 1);
    }
    qsort(found->addresses, (size_t)found->n, sizeof *found->addresses, compare_addresses);
    return true;
}

static void keep(struct resolved *known, const struct resolved *found, bool is_answer)
{
    bool is_same = !is_answer || (known->n == found->n &&
                                  memcmp(known->addresses, found->addresses,
                                         (size_t)found->n * sizeof *found->addresses) == 0);
    if (is_same && known->version && strcmp(known->why, found->why) == 0) return;
    if (is_answer) {
        memset(known->addresses, 0, sizeof known->addresses);
        memcpy(known->addresses, found->addresses, (size_t)found->n * sizeof *found->addresses);
        known->n = found->n;
    }
    memcpy(known->why, found->why, sizeof known->why);
    known->version++;
}

static void *run(void *arg)
{
    struct resolver *r = arg;
    monitor_enter(&r->monitor);
    while (!r->is_closed) {
        for (int i = 0; i < r->n_names && !r->is_closed; i++) {
            monitor_leave(&r->monitor);
            memset(r->found.addresses, 0, sizeof r->found.addresses);
            bool is_answer = look_up(&r->names[i], &r->found);
            monitor_enter(&r->monitor);
            keep(&r->known[i], &r->found, is_answer);
        }
        int64_t start_us = clock_now_us();
        while (!r->is_closed && clock_now_us() < start_us + r->pause_us) {
            monitor_wait(&r->monitor, start_us + r->pause_us);
        }
    }
    monitor_leave(&r->monitor);
    free_resolver(r);
    return NULL;
}

int resolver_open(struct resolver **resolver, const struct target_name *names, int n_names,
                  struct error *err)
{
    struct resolver *r;
    pthread_t thread;
    *resolver = NULL;
    int rc = mem_array(&r, 1, sizeof *r, err);
    if (rc) return rc;
    memcpy(r->names, names, (size_t)n_names * sizeof *names);
    r->n_names = n_names;
    r->pause_us = PAUSE_US;
    monitor_open(&r->monitor);
    if (pthread_create(&thread, NULL, run, r) != 0) {
        free_resolver(r);
        return error_set(err, ERR_NO_MEMORY, "cannot start the thread that looks names up");
    }
    pthread_detach(thread);
    *resolver = r;
    return 0;
}

void resolver_close(struct resolver *r)
{
    if (!r) return;
    monitor_enter(&r->monitor);
    r->is_closed = true;
    monitor_wake(&r->monitor);
    monitor_leave(&r->monitor);
}

void resolver_set_pause(struct resolver *r, int64_t pause_us)
{
    monitor_enter(&r->monitor);
    if (pause_us < r->pause_us) monitor_wake(&r->monitor);
    r->pause_us = pause_us;
    monitor_leave(&r->monitor);
}

bool resolver_get(struct resolver *r, int name, struct resolved *resolved)
{
    monitor_enter(&r->monitor);
    bool is_news = r->known[name].version > resolved->version;
    if (is_news) *resolved = r->known[name];
    monitor_leave(&r->monitor);
    return is_news;
}
