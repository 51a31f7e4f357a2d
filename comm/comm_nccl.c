/* Ranks with a GPU each. There are two tables: collectives on host memory go to the base
 * communicator, those on device memory to NCCL.
 *
 * NCCL is used in its non-blocking mode: every call may return "in progress", and the communicator
 * must not be used again until that has become success or an error. Therefore settle() follows each
 * call and polls until a deadline; once the connections for a call exist, this takes a few
 * microseconds. Work that a CUDA graph replays does not pass through here.
 *
 * NCCL cannot detect that a peer on the same machine hangs; its kernel waits without a limit. Only
 * ncclCommAbort ends such a wait. This file calls it after the first failure, and exactly once. */
#include "comm/comm_nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads/queue.h"

enum {
    VERSION_LEAST = 21400, /* 2.14, the first with a non-blocking mode */
    N_QUICK_POLLS = 2000,
    POLL_NS = 100000,
    CLOSE_MS = 5000 /* at most for all ranks to leave together, and again for NCCL to clean up */
};

/* The library's functions under their own names, with their types from nccl.h. */
struct nccl_api {
    __typeof__(ncclGetVersion) *ncclGetVersion;
    __typeof__(ncclGetErrorString) *ncclGetErrorString;
    __typeof__(ncclGetLastError) *ncclGetLastError;
    __typeof__(ncclGetUniqueId) *ncclGetUniqueId;
    __typeof__(ncclCommInitRankConfig) *ncclCommInitRankConfig;
    __typeof__(ncclCommGetAsyncError) *ncclCommGetAsyncError;
    __typeof__(ncclCommFinalize) *ncclCommFinalize;
    __typeof__(ncclCommDestroy) *ncclCommDestroy;
    __typeof__(ncclCommAbort) *ncclCommAbort;
    __typeof__(ncclGroupStart) *ncclGroupStart;
    __typeof__(ncclGroupEnd) *ncclGroupEnd;
    __typeof__(ncclSend) *ncclSend;
    __typeof__(ncclRecv) *ncclRecv;
    __typeof__(ncclAllGather) *ncclAllGather;
    __typeof__(ncclAllReduce) *ncclAllReduce;
};

#define SYMBOL(name)                           \
    {                                          \
#name, offsetof(struct nccl_api, name) \
    }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL(ncclGetVersion),   SYMBOL(ncclGetErrorString),     SYMBOL(ncclGetLastError),
    SYMBOL(ncclGetUniqueId),  SYMBOL(ncclCommInitRankConfig), SYMBOL(ncclCommGetAsyncError),
    SYMBOL(ncclCommFinalize), SYMBOL(ncclCommDestroy),        SYMBOL(ncclCommAbort),
    SYMBOL(ncclGroupStart),   SYMBOL(ncclGroupEnd),           SYMBOL(ncclSend),
    SYMBOL(ncclRecv),         SYMBOL(ncclAllGather),          SYMBOL(ncclAllReduce),
};

struct nccl_comm {
    struct comm comm;
    struct comm *base; /* NULL: none */
    struct nccl_api api;
    ncclComm_t handle;    /* NULL: not connected, or aborted */
    struct error failure; /* code 0: none yet; later calls repeat it */
    int timeout_ms, close_ms;
};

static struct nccl_comm *nccl_of(struct comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* ---- the library ---- */

/* The library is never unloaded: it has threads of its own, and other ranks of this process may use
 * it. */
static int api_load(struct nccl_api *api, const char *path, struct error *err)
{
    int version = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return error_set(err, ERR_UNSUPPORTED,
                         "cannot load NCCL (%.300s); ranks on GPUs need it: install NCCL 2 or name "
                         "its file in OUTRIDER_NCCL_LIBRARY",
                         dlerror());
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            return error_set(err, ERR_UNSUPPORTED,
                             "%.300s lacks %s: it is no NCCL, or one older than 2.14", path,
                             symbols[i].name);
        }
        memcpy((char *)api + symbols[i].offset, &symbol, sizeof symbol);
    }
    if (api->ncclGetVersion(&version) != ncclSuccess || version < VERSION_LEAST) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%.300s is NCCL version code %d; 2.14 (%d) or later is needed", path,
                         version, VERSION_LEAST);
    }
    return 0;
}

static const char *library_path(const struct comm_nccl_options *options)
{
    const char *path = options->path ? options->path : getenv("OUTRIDER_NCCL_LIBRARY");
    return path && *path ? path : "libnccl.so.2";
}

/* ---- calls that may not return ---- */

/* ncclCommDestroy and ncclCommAbort wait for the device, so a thread of their own calls them. If
 * that thread does not return in time, it keeps this struct, because the process is about to
 * end. */
struct last_call {
    ncclResult_t (*fn)(ncclComm_t handle);
    ncclComm_t handle;
    struct queue *done;
};

static void *last_call_main(void *arg)
{
    struct last_call *call = arg;
    struct error err;
    call->fn(call->handle); /* NCCL selects the device itself */
    queue_push(call->done, call, &err);
    return NULL;
}

/* Calls fn(nc->handle) and waits for it for at most close_ms. Its result is of no use any more. */
static void last_call(struct nccl_comm *nc, ncclResult_t (*fn)(ncclComm_t))
{
    int rc = 0;
    struct error err;
    struct last_call *call = NULL;
    struct queue *done = NULL;
    pthread_t thread;
    void *item;
    TRY(mem_array(&call, 1, sizeof *call, &err));
    TRY(queue_open(&done, 1, &err));
    *call = (struct last_call){.fn = fn, .handle = nc->handle, .done = done};
    nc->handle = NULL;
    if (pthread_create(&thread, NULL, last_call_main, call)) goto out;
    if (queue_pop(done, &item, clock_now_us() + (int64_t)nc->close_ms * 1000, &err)) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
out:
    queue_close(done);
    free(call);
}

/* ---- failure ---- */

static int code_of(ncclResult_t result)
{
    bool is_ours = result == ncclInvalidArgument || result == ncclInvalidUsage;
    return is_ours ? ERR_INTERNAL : ERR_UNAVAILABLE;
}

/* Stores err, the reason of the failure, and ends work that may still run on the device. Returns
 * its code. */
static int give_up(struct nccl_comm *nc, const struct error *err)
{
    nc->failure = *err;
    if (nc->handle) last_call(nc, nc->api.ncclCommAbort);
    nc->handle = NULL;
    return err->code;
}

/* NCCL's texts contain line breaks; copies one as a single line. */
static void copy_line(char *out, size_t size, const char *text)
{
    size_t n = 0;
    while (text && (*text == '\n' || *text == ' '))
        text++;
    for (; text && *text && n + 1 < size; text++)
        out[n++] = *text == '\n' ? ' ' : *text;
    out[n] = '\0';
}

static int fail(struct nccl_comm *nc, ncclResult_t result, const char *call, struct error *err)
{
    char last[300];
    copy_line(last, sizeof last, nc->api.ncclGetLastError(nc->handle));
    error_set(err, code_of(result), "%s failed on rank %d of %d: %.100s%s%s", call, nc->comm.rank,
              nc->comm.size, nc->api.ncclGetErrorString(result), *last ? ": " : "", last);
    return give_up(nc, err);
}

static int fail_late(struct nccl_comm *nc, const char *call, int timeout_ms, struct error *err)
{
    error_set(err, ERR_TIMEOUT,
              "%s has not ended on rank %d of %d after %d ms: a rank has not come, or hangs", call,
              nc->comm.rank, nc->comm.size, timeout_ms);
    return give_up(nc, err);
}

static int check_ready(const struct nccl_comm *nc, struct error *err)
{
    if (nc->failure.code) return error_set(err, nc->failure.code, "%s", nc->failure.text);
    if (nc->handle) return 0;
    return error_set(err, ERR_UNAVAILABLE, "rank %d of %d is not connected to its group yet",
                     nc->comm.rank, nc->comm.size);
}

/* Pauses before the next poll: not at all at first, then 100 us. */
static void wait_a_little(int64_t n_polls)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    if (n_polls > N_QUICK_POLLS) nanosleep(&pause, NULL);
}

/* Waits until the call that returned `result` has ended.
 * Errors: ERR_TIMEOUT and those of fail(); the communicator is aborted then. */
static int settle(struct nccl_comm *nc, ncclResult_t result, const char *call, int timeout_ms,
                  struct error *err)
{
    int64_t deadline_us = clock_now_us() + (int64_t)timeout_ms * 1000;
    for (int64_t n = 0; result == ncclInProgress; n++) {
        if (clock_now_us() >= deadline_us) return fail_late(nc, call, timeout_ms, err);
        wait_a_little(n);
        ncclResult_t rc = nc->api.ncclCommGetAsyncError(nc->handle, &result);
        if (rc != ncclSuccess) result = rc;
    }
    return result == ncclSuccess ? 0 : fail(nc, result, call, err);
}

/* ---- device memory ---- */

static int device_gather(struct comm *comm, const float *mine, float *all, size_t n, void *stream,
                         struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    int rc = check_ready(nc, err);
    if (rc || !n) return rc;
    return settle(nc, nc->api.ncclAllGather(mine, all, n, ncclFloat32, nc->handle, stream),
                  "ncclAllGather", nc->timeout_ms, err);
}

/* Within a group, NCCL only records the calls. "In progress" is then the state of the
 * communicator. */
static bool is_recorded(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

static int device_swap(struct comm *comm, int partner, const float *mine, float *theirs, size_t n,
                       void *stream, struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    int rc = check_ready(nc, err);
    if (rc) return rc;
    if (partner < 0 || partner >= comm->size || partner == comm->rank) {
        return error_set(err, ERR_ARGUMENT, "rank %d of %d cannot swap with rank %d", comm->rank,
                         comm->size, partner);
    }
    if (!n) return 0;
    ncclResult_t result = nc->api.ncclGroupStart();
    if (result != ncclSuccess) return fail(nc, result, "ncclGroupStart", err);
    result = nc->api.ncclSend(mine, n, ncclFloat32, partner, nc->handle, stream);
    if (is_recorded(result)) {
        result = nc->api.ncclRecv(theirs, n, ncclFloat32, partner, nc->handle, stream);
    }
    ncclResult_t end = nc->api.ncclGroupEnd(); /* also after a failure, to close the group */
    return settle(nc, is_recorded(result) ? end : result, "a swap (ncclSend, ncclRecv)",
                  nc->timeout_ms, err);
}

static int device_sum(struct comm *comm, float *data, size_t n, void *stream, struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    int rc = check_ready(nc, err);
    if (rc || !n) return rc;
    return settle(nc,
                  nc->api.ncclAllReduce(data, data, n, ncclFloat32, ncclSum, nc->handle, stream),
                  "ncclAllReduce", nc->timeout_ms, err);
}

static int device_failed(struct comm *comm, struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    ncclResult_t state = ncclSuccess;
    int rc = check_ready(nc, err);
    if (rc) return rc;
    ncclResult_t result = nc->api.ncclCommGetAsyncError(nc->handle, &state);
    if (result == ncclSuccess) result = state;
    return is_recorded(result) ? 0 : fail(nc, result, "a collective", err);
}

static const struct comm_device_ops device_ops = {device_gather, device_swap, device_sum,
                                                  device_failed};

/* ---- host memory ---- */

static int no_base(const struct comm *comm, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED,
                     "%d ranks without MPI have no collectives on host memory: start them with "
                     "mpirun, or compute on the GPU",
                     comm->size);
}

static int host_sum(struct comm *comm, float *data, size_t n, struct error *err)
{
    struct comm *base = nccl_of(comm)->base;
    return base ? comm_tree_sum(base, data, n, err) : no_base(comm, err);
}

static int host_exchange(struct comm *comm, const void *mine, void *all, size_t n_bytes,
                         struct error *err)
{
    struct comm *base = nccl_of(comm)->base;
    return base ? comm_exchange(base, mine, all, n_bytes, err) : no_base(comm, err);
}

static void abort_group(struct comm *comm, int status)
{
    struct nccl_comm *nc = nccl_of(comm);
    struct error err;
    error_set(&err, ERR_UNAVAILABLE, "rank %d took the group down with status %d", comm->rank,
              status);
    give_up(nc, &err);
    if (!nc->base) _Exit(status);
    comm_abort(nc->base, status);
}

static void nccl_close(struct comm *comm)
{
    struct nccl_comm *nc = nccl_of(comm);
    struct error err;
    if (nc->handle &&
        !settle(nc, nc->api.ncclCommFinalize(nc->handle), "ncclCommFinalize", nc->close_ms, &err)) {
        last_call(nc, nc->api.ncclCommDestroy);
    }
    comm_close(nc->base);
    free(nc);
}

static const struct comm_ops host_ops = {"nccl", host_sum, host_exchange, abort_group, nccl_close};

/* ---- start-up ---- */

int comm_nccl_open_take(struct comm **comm, struct comm *base, int rank, int size,
                        const struct comm_nccl_options *options, struct error *err)
{
    int rc = 0;
    struct nccl_comm *nc = NULL;
    *comm = NULL;
    if (size < 1 || rank < 0 || rank >= size) {
        return error_set(err, ERR_ARGUMENT, "there is no rank %d of %d", rank, size);
    }
    if (base && (base->rank != rank || base->size != size)) {
        return error_set(err, ERR_ARGUMENT,
                         "rank %d of %d for NCCL is rank %d of %d in the group that it builds on",
                         rank, size, base->rank, base->size);
    }
    TRY(mem_array(&nc, 1, sizeof *nc, err));
    TRY(api_load(&nc->api, library_path(options), err));
    nc->comm = (struct comm){.ops = &host_ops, .rank = rank, .size = size, .device = &device_ops};
    nc->timeout_ms = options->timeout_ms ? options->timeout_ms : COMM_NCCL_TIMEOUT_MS;
    nc->close_ms = nc->timeout_ms < CLOSE_MS ? nc->timeout_ms : CLOSE_MS;
    nc->base = base;
    *comm = &nc->comm;
    nc = NULL;
out:
    free(nc);
    return rc;
}

int comm_nccl_make_id(struct comm *comm, struct comm_nccl_id *id, struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    ncclUniqueId unique;
    _Static_assert(sizeof unique == sizeof *id, "an id is NCCL's");
    ncclResult_t result = nc->api.ncclGetUniqueId(&unique);
    if (result != ncclSuccess) {
        char last[300];
        copy_line(last, sizeof last, nc->api.ncclGetLastError(NULL));
        return error_set(err, ERR_UNAVAILABLE, "NCCL makes no id for a group: %.100s: %s",
                         nc->api.ncclGetErrorString(result), last);
    }
    memcpy(id, &unique, sizeof *id);
    return 0;
}

/* The message of rank 0 to the others over base. It also says if there is no id, so that no rank
 * waits for one. */
struct id_offer {
    int32_t code;
    struct comm_nccl_id id;
};

static int share_id(struct nccl_comm *nc, struct comm_nccl_id *id, struct error *err)
{
    int rc = 0;
    struct id_offer mine = {0}, *all = NULL;
    if (!nc->base) {
        return error_set(err, ERR_ARGUMENT, "%d ranks without a base need an id to find each other",
                         nc->comm.size);
    }
    TRY(mem_array(&all, (size_t)nc->comm.size, sizeof *all, err));
    if (nc->comm.rank == 0) mine.code = comm_nccl_make_id(&nc->comm, &mine.id, err);
    struct error why = mine.code ? *err : (struct error){0};
    TRY(comm_exchange(nc->base, &mine, all, sizeof mine, err));
    *id = all[0].id;
    if (mine.code) {
        *err = why;
        rc = mine.code;
    } else if (all[0].code) {
        rc = error_set(err, ERR_UNAVAILABLE, "rank 0 has no NCCL id to offer; its log says why");
    }
out:
    free(all);
    return rc;
}

int comm_nccl_connect(struct comm *comm, const struct comm_nccl_id *id, struct error *err)
{
    struct nccl_comm *nc = nccl_of(comm);
    struct comm_nccl_id shared;
    ncclUniqueId unique;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (nc->failure.code) return check_ready(nc, err);
    if (nc->handle) return error_set(err, ERR_INTERNAL, "rank %d is connected", comm->rank);
    int rc = id ? 0 : share_id(nc, &shared, err);
    if (rc) return rc;
    memcpy(&unique, id ? id : &shared, sizeof unique);
    config.blocking = 0;
    ncclResult_t result =
        nc->api.ncclCommInitRankConfig(&nc->handle, comm->size, unique, comm->rank, &config);
    return settle(nc, result, "ncclCommInitRankConfig", nc->timeout_ms, err);
}
