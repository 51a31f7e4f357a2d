/* grpc.health.v1.Health: a few names, and the calls that watch them. One lock orders the changes
 * and the messages that tell of them. */
#include "rpc/health.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "rpc/call.h"
#include "rpc/health.pb-c.h"

enum { HEALTH_NAMES_MAX = 8, HEALTH_NAME_BYTES = 128, HEALTH_WATCHES_MAX = 256 };

struct health_name {
    char name[HEALTH_NAME_BYTES];
    bool is_serving;
};

struct watch {
    struct watch *next;
    struct rpc_call *call; /* a reference is held */
    char name[HEALTH_NAME_BYTES];
};

struct rpc_health {
    pthread_mutex_t lock;
    struct health_name names[HEALTH_NAMES_MAX]; /* names[0] is "", the process */
    int n_names, n_watches;
    struct watch *watches;
    bool is_shut;
};

/* The schema's values under shorter names. */
enum health_status {
    HEALTH_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
    HEALTH_NOT_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
    HEALTH_UNKNOWN = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
};

int rpc_health_open(struct rpc_health **health, struct error *err)
{
    struct rpc_health *h;
    int rc = mem_array(&h, 1, sizeof *h, err);
    if (rc) return rc;
    pthread_mutex_init(&h->lock, NULL);
    h->n_names = 1;
    *health = h;
    return 0;
}

void rpc_health_close(struct rpc_health *health)
{
    if (!health) return;
    pthread_mutex_destroy(&health->lock);
    free(health);
}

/* ---- with the lock held ---- */

static struct health_name *find_name(struct rpc_health *health, const char *name)
{
    for (int i = 0; i < health->n_names; i++) {
        if (strcmp(health->names[i].name, name) == 0) return &health->names[i];
    }
    return NULL;
}

static enum health_status status_of(struct rpc_health *health, const char *name)
{
    const struct health_name *known = find_name(health, name);
    if (!known) return HEALTH_UNKNOWN;
    return known->is_serving ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static void send_status(struct rpc_call *call, enum health_status status)
{
    uint8_t bytes[32]; /* one field */
    struct error err;
    Grpc__Health__V1__HealthCheckResponse response;
    grpc__health__v1__health_check_response__init(&response);
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    size_t len = grpc__health__v1__health_check_response__pack(&response, bytes);
    if (rpc_call_send(call, bytes, len, &err)) {
        log_line(LOG_LEVEL_DEBUG, "health_not_sent", "error=\"%s\"", err.text);
    }
}

static void tell_watches(struct rpc_health *health, const char *name)
{
    for (struct watch *watch = health->watches; watch; watch = watch->next) {
        if (strcmp(watch->name, name) == 0) send_status(watch->call, status_of(health, name));
    }
}

void rpc_health_set(struct rpc_health *health, const char *name, bool is_serving)
{
    pthread_mutex_lock(&health->lock);
    struct health_name *known = find_name(health, name);
    bool is_news = !known || known->is_serving != is_serving;
    if (!known && health->n_names < HEALTH_NAMES_MAX && strlen(name) < HEALTH_NAME_BYTES) {
        known = &health->names[health->n_names++];
        memcpy(known->name, name, strlen(name) + 1);
    }
    if (known && is_news) {
        known->is_serving = is_serving;
        tell_watches(health, name);
    }
    pthread_mutex_unlock(&health->lock);
    if (!known) log_line(LOG_LEVEL_WARN, "health_name_refused", "service=%.64s", name);
}

bool rpc_health_is_serving(struct rpc_health *health, const char *name)
{
    pthread_mutex_lock(&health->lock);
    bool is_serving = status_of(health, name) == HEALTH_SERVING;
    pthread_mutex_unlock(&health->lock);
    return is_serving;
}

/* Watches would last as long as their clients and use up the time that the server gives to
 * calls. */
static void end_watches(void *state)
{
    struct rpc_health *health = state;
    pthread_mutex_lock(&health->lock);
    health->is_shut = true;
    for (struct watch *watch = health->watches; watch; watch = watch->next) {
        rpc_call_finish(watch->call, ERR_UNAVAILABLE, "the server is closing");
    }
    pthread_mutex_unlock(&health->lock);
}

/* ---- the methods ---- */

/* Reads the name that a client asks for. If the request is not one, finishes the call and returns
 * false. */
static bool read_name(struct rpc_call *call, const uint8_t *data, size_t len,
                      char name[HEALTH_NAME_BYTES])
{
    Grpc__Health__V1__HealthCheckRequest *request =
        grpc__health__v1__health_check_request__unpack(NULL, len, data);
    if (!request) {
        rpc_call_finish(call, ERR_FORMAT, "this is not a HealthCheckRequest");
        return false;
    }
    bool fits = strlen(request->service) < HEALTH_NAME_BYTES;
    if (fits) memcpy(name, request->service, strlen(request->service) + 1);
    grpc__health__v1__health_check_request__free_unpacked(request, NULL);
    if (!fits) rpc_call_finish(call, ERR_NOT_FOUND, "the service's name is too long");
    return fits;
}

static void on_check(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct rpc_health *health = state;
    char name[HEALTH_NAME_BYTES], text[HEALTH_NAME_BYTES + 64];
    if (!read_name(call, data, len, name)) return;
    pthread_mutex_lock(&health->lock);
    enum health_status status = status_of(health, name);
    pthread_mutex_unlock(&health->lock);
    if (status == HEALTH_UNKNOWN) {
        snprintf(text, sizeof text, "there is no service '%s'", name);
        rpc_call_finish(call, ERR_NOT_FOUND, text);
        return;
    }
    send_status(call, status);
    rpc_call_finish(call, ERR_NONE, "");
}

static void add_watch(struct rpc_health *health, struct rpc_call *call, struct watch *watch)
{
    watch->call = call;
    watch->next = health->watches;
    health->watches = watch;
    health->n_watches++;
    rpc_call_ref(call);
    rpc_call_set_data(call, watch);
    send_status(call, status_of(health, watch->name));
}

static void on_watch(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct rpc_health *health = state;
    struct watch *watch;
    struct error err;
    if (mem_array(&watch, 1, sizeof *watch, &err)) {
        rpc_call_finish(call, err.code, err.text);
        return;
    }
    if (!read_name(call, data, len, watch->name)) {
        free(watch);
        return;
    }
    pthread_mutex_lock(&health->lock);
    bool is_taken = !health->is_shut && health->n_watches < HEALTH_WATCHES_MAX;
    bool is_shut = health->is_shut;
    if (is_taken) add_watch(health, call, watch);
    pthread_mutex_unlock(&health->lock);
    if (is_taken) return;
    free(watch);
    rpc_call_finish(call, is_shut ? ERR_UNAVAILABLE : ERR_EXHAUSTED,
                    is_shut ? "the server is closing" : "too many health watches");
}

static void on_watch_done(struct rpc_call *call, void *state)
{
    struct rpc_health *health = state;
    struct watch *watch = rpc_call_data(call);
    if (!watch) return;
    pthread_mutex_lock(&health->lock);
    struct watch **link = &health->watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link) *link = watch->next;
    health->n_watches--;
    pthread_mutex_unlock(&health->lock);
    rpc_call_unref(call);
    free(watch);
}

static const struct rpc_method methods[] = {
    {.path = "/grpc.health.v1.Health/Check", .on_message = on_check},
    {.path = "/grpc.health.v1.Health/Watch", .on_message = on_watch, .on_done = on_watch_done},
};

struct rpc_service rpc_health_service(struct rpc_health *health)
{
    return (struct rpc_service){.methods = methods,
                                .n_methods = (int)(sizeof methods / sizeof *methods),
                                .state = health,
                                .is_public = true,
                                .on_closing = end_watches};
}
