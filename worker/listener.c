/* The rank's gRPC side. Handlers run one at a time: on the server's network thread, or in
 * listener_wait on the engine thread. */
#include "worker/listener.h"

#include <stdlib.h>
#include <string.h>

#include "access/group_key.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads/monitor.h"
#include "rpc/health.h"
#include "worker/members.h"

struct listener {
    struct rpc_health *health;
    struct rpc_server *server;
    struct queue *queue;
    struct watchdog *dog;
    struct buffer starting_description, complete_description; /* before listener_set_serving */
    struct buffer description, busy_description;              /* since then */
    const struct buffer *conventions;                         /* NULL = nothing */
    void (*on_rank_lost)(void *arg);
    void *on_rank_lost_arg;
    struct members members;
    const char *run_names;
    struct rpc_call *current; /* the Run stream that is served; handlers only */
    struct beat *beat;        /* the engine thread's */
    struct monitor draining;  /* of the two below */
    bool has_stream, is_draining;
};

void listened_free(struct listened *item)
{
    if (!item) return;
    if (item->call) rpc_call_unref(item->call);
    free(item->data);
    free(item);
}

static int push(struct listener *ls, enum listened_kind kind, struct rpc_call *call,
                const uint8_t *data, size_t len, struct error *err)
{
    int rc = 0;
    struct listened *item = NULL;
    TRY(mem_array(&item, 1, sizeof *item, err));
    *item = (struct listened){.kind = kind, .received_us = clock_now_us(), .len = len};
    if (call) {
        TRY(mem_array(&item->data, len, 1, err));
        memcpy(item->data, data, len);
        item->call = call;
        rpc_call_ref(call);
    }
    TRY(queue_push(ls->queue, item, err));
    item = NULL;
out:
    if (rc == ERR_CLOSED) rc = error_set(err, ERR_UNAVAILABLE, "the worker is shutting down");
    listened_free(item);
    return rc;
}

/* ---- the end: handlers meet the thread that drains ---- */

static bool is_draining(struct listener *ls)
{
    monitor_enter(&ls->draining);
    bool drains = ls->is_draining;
    monitor_leave(&ls->draining);
    return drains;
}

/* False when the rank is draining, so that no stream may begin any more. */
static bool begin_stream(struct listener *ls)
{
    monitor_enter(&ls->draining);
    ls->has_stream = !ls->is_draining;
    bool has_begun = ls->has_stream;
    monitor_leave(&ls->draining);
    return has_begun;
}

static void end_stream(struct listener *ls)
{
    monitor_enter(&ls->draining);
    ls->has_stream = false;
    monitor_wake(&ls->draining);
    monitor_leave(&ls->draining);
}

bool listener_drain(struct listener *ls)
{
    monitor_enter(&ls->draining);
    ls->is_draining = true;
    bool has_stream = ls->has_stream;
    monitor_leave(&ls->draining);
    listener_set_serving(ls, false);
    return has_stream;
}

bool listener_wait_drained(struct listener *ls, int64_t deadline_us)
{
    monitor_enter(&ls->draining);
    while (ls->has_stream && monitor_wait(&ls->draining, deadline_us)) {
    }
    bool is_drained = !ls->has_stream;
    monitor_leave(&ls->draining);
    return is_drained;
}

/* ---- the handlers ---- */

/* Until listener_set_serving. */
static bool is_starting(struct listener *ls)
{
    return !rpc_health_is_serving(ls->health, "") && !is_draining(ls);
}

/* True while a coordinator has a stream, or a step that it left unfinished has not ended. If a rank
 * hangs in such a step, the group ends soon, and a coordinator that began now would lose a
 * request. */
static bool is_busy(const struct listener *ls)
{
    return ls->current || watchdog_is_armed(ls->dog);
}

/* Stored as the health of a service, because any thread may set and read that. */
static const char complete[] = "outrider.worker.complete";

static const struct buffer *describe_now(struct listener *ls)
{
    if (is_starting(ls)) {
        bool is_complete = rpc_health_is_serving(ls->health, complete);
        return is_complete ? &ls->complete_description : &ls->starting_description;
    }
    return is_busy(ls) || is_draining(ls) ? &ls->busy_description : &ls->description;
}

/* Checks by the caller's certificate that it may be a coordinator of this rank. Errors: `code`. */
static int check_client(const struct listener *ls, const struct rpc_call *call, int code,
                        struct error *err)
{
    if (rpc_call_client_is(call, ls->run_names)) return 0;
    return error_set(err, code,
                     "this rank serves coordinators whose certificates are for '%s', and this one "
                     "is not: show another one, or give the ranks --tls-client-name",
                     ls->run_names);
}

/* Other ranks ask while the group forms. Later a coordinator would find out at Run only that it is
 * not served, again and again. For a rank that comes too late this is no end (worker/join.c). */
static void on_describe(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct listener *ls = service;
    struct error err;
    int rc = 0;
    (void)data, (void)len;
    const struct buffer *answer = describe_now(ls);
    if (!is_starting(ls)) TRY(check_client(ls, call, ERR_UNAVAILABLE, &err));
    TRY(rpc_call_send(call, answer->data, answer->len, &err));
out:
    rpc_call_finish(call, rc, rc ? err.text : "");
}

static void on_conventions(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    const struct buffer *told = ((const struct listener *)service)->conventions;
    struct error err;
    (void)data, (void)len;
    int rc = rpc_call_send(call, told ? told->data : NULL, told ? told->len : 0, &err);
    rpc_call_finish(call, rc, rc ? err.text : "");
}

/* The coordinator that opens the stream has the group until the stream ends, even while it sends
 * nothing. */
static void on_run_open(struct rpc_call *call, void *service)
{
    struct listener *ls = service;
    struct error err;
    int rc = 0;
    TRY(check_client(ls, call, ERR_UNAUTHENTICATED, &err));
    if (is_starting(ls)) {
        rc = error_set(&err, ERR_UNAVAILABLE, "this group is still starting");
        goto out;
    }
    if (is_busy(ls)) {
        rc = error_set(
            &err, ERR_UNAVAILABLE,
            "another coordinator is using this group or left a step unfinished; one at a time");
        goto out;
    }
    if (!begin_stream(ls)) {
        rc = error_set(&err, ERR_UNAVAILABLE,
                       "this rank is ending: it takes no coordinator any more");
        goto out;
    }
    rc = push(ls, LISTENED_BEGIN, NULL, NULL, 0, &err);
    if (rc)
        end_stream(ls);
    else
        ls->current = call;
out:
    if (rc) rpc_call_finish(call, rc, err.text);
}

static void on_step(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct listener *ls = service;
    struct error err;
    if (ls->current != call) return; /* this stream has been refused */
    int rc = push(ls, LISTENED_STEP, call, data, len, &err);
    if (rc) rpc_call_finish(call, rc, err.text);
}

static void on_run_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, 0, "");
}

static void on_run_done(struct rpc_call *call, void *service)
{
    struct listener *ls = service;
    if (ls->current != call) return;
    ls->current = NULL;
    end_stream(ls);
    watchdog_hasten(ls->dog, LISTENER_ORPHAN_US);
}

/* The call's data says that the caller is a member. */
static void on_stay_open(struct rpc_call *call, void *service)
{
    struct listener *ls = service;
    struct error err;
    const char *pass = NULL;
    size_t len = 0;
    rpc_call_header(call, MEMBERS_HEADER, &pass, &len);
    int rc = members_enter(&ls->members, pass, len, &err);
    if (rc) {
        rpc_call_finish(call, rc, err.text);
    } else {
        rpc_call_set_data(call, ls);
    }
}

static void on_stay_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, 0, "");
}

/* A rank has left. While the group is still forming that is no loss, because another can take its
 * place; and a group that drains ends anyway. */
static void on_stay_done(struct rpc_call *call, void *service)
{
    struct listener *ls = service;
    if (!rpc_call_data(call)) return; /* it was refused */
    members_leave(&ls->members);
    if (is_draining(ls)) return;
    if (rpc_health_is_serving(ls->health, complete)) ls->on_rank_lost(ls->on_rank_lost_arg);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.target.v1.Target/Describe", .on_message = on_describe},
    {.path = "/outrider.target.v1.Target/DescribeConventions", .on_message = on_conventions},
    {.path = "/outrider.target.v1.Target/Run",
     .is_stream_in = true,
     .is_exchange = true,
     .on_open = on_run_open,
     .on_message = on_step,
     .on_half_close = on_run_half_close,
     .on_done = on_run_done},
    {.path = "/outrider.target.v1.Target/Stay",
     .is_stream_in = true,
     .on_open = on_stay_open,
     .on_half_close = on_stay_half_close,
     .on_done = on_stay_done},
};

/* The id is offered only while the group is forming. */
static int encode_starting(struct listener *ls, const struct target_description *description,
                           struct error *err)
{
    int rc = 0;
    struct target_description desc = *description;
    desc.is_busy = true;
    TRY(target_description_encode(&ls->starting_description, &desc, err));
    desc.has_nccl_id = false;
    TRY(target_description_encode(&ls->complete_description, &desc, err));
out:
    return rc;
}

/* The handlers do not read these two before listener_set_serving. */
int listener_describe(struct listener *ls, const struct target_description *description,
                      struct error *err)
{
    int rc = 0;
    struct target_description desc = *description;
    desc.has_nccl_id = false;
    desc.is_busy = true;
    TRY(target_description_encode(&ls->busy_description, &desc, err));
    desc.is_busy = false;
    TRY(target_description_encode(&ls->description, &desc, err));
out:
    return rc;
}

int listener_open(struct listener **listener, const char *address,
                  const struct target_description *description,
                  const struct listener_options *options, struct error *err)
{
    int rc = 0;
    struct listener *ls = NULL;
    *listener = NULL;
    TRY(mem_array(&ls, 1, sizeof *ls, err));
    monitor_open(&ls->draining);
    ls->queue = options->queue;
    ls->beat = options->beat;
    ls->dog = options->dog;
    ls->conventions = options->conventions;
    ls->on_rank_lost = options->on_rank_lost;
    ls->on_rank_lost_arg = options->arg;
    ls->run_names = options->run_names;
    members_init(&ls->members, options->member_pass, options->n_members);
    TRY(encode_starting(ls, description, err));
    TRY(listener_describe(ls, description, err));
    TRY(rpc_health_open(&ls->health, err));
    listener_set_live(ls, true);
    const struct rpc_service services[] = {
        {.methods = methods, .n_methods = (int)(sizeof methods / sizeof *methods), .state = ls},
        rpc_health_service(ls->health),
    };
    const struct rpc_server_options server = {
        .address = address,
        .services = services,
        .n_services = 2,
        .notices_loss = true,
        .certificates = options->certificates,
        .authenticator = {.admit = options->key ? group_key_admit : NULL, .state = options->key}};
    TRY(rpc_server_open(&ls->server, &server, err));
    *listener = ls;
    ls = NULL;
out:
    listener_close(ls, 0);
    return rc;
}

void listener_close(struct listener *ls, int grace_ms)
{
    if (!ls) return;
    if (ls->health) listener_set_leaving(ls);
    rpc_server_close(ls->server, grace_ms);
    rpc_health_close(ls->health);
    buffer_free(&ls->description);
    buffer_free(&ls->busy_description);
    buffer_free(&ls->starting_description);
    buffer_free(&ls->complete_description);
    monitor_close(&ls->draining);
    free(ls);
}

static bool has_work(void *arg)
{
    struct listener *ls = arg;
    if (ls->beat) beat_mark(ls->beat, 0);
    return queue_length(ls->queue) > 0 || queue_is_shut(ls->queue);
}

void listener_wait(struct listener *ls)
{
    rpc_server_wait(ls->server, has_work, ls);
}

void listener_expect(struct listener *ls)
{
    rpc_server_expect(ls->server);
}

const char *listener_address(const struct listener *ls)
{
    return rpc_server_address(ls->server);
}

void listener_expect_members(struct listener *ls, int n)
{
    atomic_store(&ls->members.n_most, n);
}

void listener_set_complete(struct listener *ls)
{
    rpc_health_set(ls->health, complete, true);
}

void listener_set_leaving(struct listener *ls)
{
    rpc_health_set(ls->health, complete, false);
}

void listener_set_serving(struct listener *ls, bool is_serving)
{
    rpc_health_set(ls->health, "", is_serving);
    rpc_health_set(ls->health, "outrider.target.v1.Target", is_serving);
}

void listener_set_live(struct listener *ls, bool is_live)
{
    rpc_health_set(ls->health, "live", is_live);
}
