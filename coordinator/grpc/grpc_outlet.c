/* Messages and ends go to the call as they are. */
#include "coordinator/grpc/grpc_outlet.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

enum { RETRY_AFTER_S = 1 }; /* as over HTTP */

struct grpc_outlet {
    struct outlet base;
    struct rpc_call *call;
    atomic_int n_references;
};

static struct rpc_call *call_of(const struct outlet *outlet)
{
    return ((const struct grpc_outlet *)outlet)->call;
}

static int send(struct outlet *outlet, const uint8_t *data, size_t len, struct error *err)
{
    return rpc_call_send(call_of(outlet), data, len, err);
}

/* The queue is full, or the coordinator drains or has no group: others may take the request. */
static bool is_worth_a_retry(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_EXHAUSTED;
}

static void finish(struct outlet *outlet, int code, const char *text, bool is_abort)
{
    if (is_worth_a_retry(code)) rpc_call_set_retry(call_of(outlet), RETRY_AFTER_S);
    if (is_abort) {
        rpc_call_abort(call_of(outlet), code, text);
    } else {
        rpc_call_finish(call_of(outlet), code, text);
    }
}

static struct reader_progress progress(const struct outlet *outlet)
{
    struct rpc_call *call = call_of(outlet);
    return (struct reader_progress){rpc_call_queued_bytes(call), rpc_call_read_bytes(call)};
}

static bool is_cancelled(const struct outlet *outlet)
{
    return rpc_call_is_cancelled(call_of(outlet));
}

static void ref(struct outlet *outlet)
{
    ((struct grpc_outlet *)outlet)->n_references++;
}

static void unref(struct outlet *outlet)
{
    struct grpc_outlet *own = (struct grpc_outlet *)outlet;
    if (--own->n_references > 0) return;
    rpc_call_unref(own->call);
    free(own);
}

static const struct outlet_ops ops = {
    .send = send,
    .finish = finish,
    .progress = progress,
    .is_cancelled = is_cancelled,
    .ref = ref,
    .unref = unref,
};

int grpc_outlet_open(struct outlet **outlet, struct rpc_call *call, struct error *err)
{
    struct grpc_outlet *made = NULL;
    *outlet = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    *made = (struct grpc_outlet){.base = {.ops = &ops}, .call = call, .n_references = 1};
    rpc_call_ref(call);
    *outlet = &made->base;
    return 0;
}
