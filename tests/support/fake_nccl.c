/* A libnccl for tests on machines without a GPU: host memory is its device memory, and streams are
 * ignored. Built as a shared object, with its own declarations, which follow nccl.h.
 *
 * Ranks are threads or processes. They meet in a file that all of them map; the id holds its name.
 * Between each two ranks there is a box for one message in each direction. As in a non-blocking
 * communicator, no call waits: every ncclCommGetAsyncError tries again what cannot be done yet.
 *
 * FAKE_NCCL_FAULT="NAME", "NAME:N" or "NAME:N@RANK" makes one thing fail; it is read when it
 * matters:
 *   old, no_id                       ncclGetVersion, ncclGetUniqueId
 *   init_refused, init_error         ncclCommInitRankConfig fails at once, or later
 *   init_hang, call_hang, finalize_hang   never ends; of the calls, the N-th (from 1)
 *   send_refused                     an ncclSend, while the group that it is in succeeds
 *   call_refused, async              the N-th call fails at once; the communicator fails after it
 *   abort_hang, destroy_hang         the call does not return */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7
};
enum { FLOAT32 = 7, SUM = 0, RANKS_MAX = 8, BOX_FLOATS = 131072, WORK_MAX = 2 * RANKS_MAX };

struct unique_id {
    char bytes[128];
};

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct box {
    atomic_int is_full;
    size_t n;
    float data[BOX_FLOATS];
};

struct meeting {
    atomic_int n_joined, n_finalized;
    struct box boxes[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

struct work {
    int peer;
    const float *from; /* send, or */
    float *into;       /* receive */
    size_t n;
    bool is_done;
};

struct fake_comm {
    struct meeting *meeting;
    struct unique_id id;
    int rank, size, state, n_calls;
    bool is_joining, is_finalizing, is_stuck, is_doomed;
    struct work work[WORK_MAX];
    int n_work;
    float *sum_into, *sum_parts; /* all-reduce: [n], [size][n] */
    size_t n_sum;
};

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(struct fake_comm *comm);
int ncclGetUniqueId(struct unique_id *id);
int ncclCommInitRankConfig(struct fake_comm **comm, int size, struct unique_id id, int rank,
                           const struct config *config);
int ncclCommGetAsyncError(struct fake_comm *comm, int *state);
int ncclCommFinalize(struct fake_comm *comm);
int ncclCommDestroy(struct fake_comm *comm);
int ncclCommAbort(struct fake_comm *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *data, size_t n, int type, int peer, struct fake_comm *comm, void *stream);
int ncclRecv(void *data, size_t n, int type, int peer, struct fake_comm *comm, void *stream);
int ncclAllGather(const void *mine, void *all, size_t n, int type, struct fake_comm *comm,
                  void *stream);
int ncclAllReduce(const void *mine, void *out, size_t n, int type, int op, struct fake_comm *comm,
                  void *stream);
/* How often this process has called ncclComm*: "Init", "Finalize", "Destroy", "Abort". */
int fake_nccl_count(const char *name);

static atomic_int n_inits, n_finalizes, n_destroys, n_aborts;
static _Thread_local int group_depth;
static _Thread_local struct fake_comm *group_comm;

int fake_nccl_count(const char *name)
{
    if (strcmp(name, "Init") == 0) return n_inits;
    if (strcmp(name, "Finalize") == 0) return n_finalizes;
    if (strcmp(name, "Destroy") == 0) return n_destroys;
    return strcmp(name, "Abort") == 0 ? n_aborts : -1;
}

/* True if this rank is to have the fault of that name, at its n-th call (0: at any). */
static bool is_fault(const char *name, int n, int rank)
{
    const char *fault = getenv("FAKE_NCCL_FAULT");
    size_t len = strlen(name);
    if (!fault || strncmp(fault, name, len) != 0) return false;
    const char *number = fault + len, *at = strchr(number, '@');
    if (*number && *number != ':' && *number != '@') return false;
    if (at && rank >= 0 && atoi(at + 1) != rank) return false;
    return *number != ':' || n == 0 || atoi(number + 1) == n;
}

static void hang_for_ever(void)
{
    const struct timespec hour = {.tv_sec = 3600};
    for (;;)
        nanosleep(&hour, NULL);
}

int ncclGetVersion(int *version)
{
    *version = is_fault("old", 0, -1) ? 21003 : 22809;
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    switch (result) {
    case CUDA_ERROR:
        return "unhandled cuda error";
    case SYSTEM_ERROR:
        return "unhandled system error";
    case REMOTE_ERROR:
        return "remote process exited or there was a network error";
    default:
        return "invalid argument or usage";
    }
}

const char *ncclGetLastError(struct fake_comm *comm)
{
    return comm ? "\nthe fake was told to fail\non this rank" : "\nthe fake was told to fail";
}

int ncclGetUniqueId(struct unique_id *id)
{
    const char *folder = getenv("TMPDIR");
    if (is_fault("no_id", 0, -1)) return SYSTEM_ERROR;
    memset(id, 0, sizeof *id);
    int n = snprintf(id->bytes, sizeof id->bytes, "%s/fake-nccl-XXXXXX", folder ? folder : "/tmp");
    int file = n < (int)sizeof id->bytes ? mkstemp(id->bytes) : -1;
    if (file < 0) return SYSTEM_ERROR;
    int rc = ftruncate(file, (off_t)sizeof(struct meeting));
    close(file);
    return rc ? SYSTEM_ERROR : SUCCESS;
}

static struct meeting *meeting_map(const struct unique_id *id)
{
    int file = open(id->bytes, O_RDWR);
    if (file < 0) return NULL;
    void *at = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

int ncclCommInitRankConfig(struct fake_comm **comm, int size, struct unique_id id, int rank,
                           const struct config *config)
{
    n_inits++;
    *comm = NULL;
    if (config->magic != 0xcafebeef || config->blocking != 0 || size > RANKS_MAX || rank >= size) {
        return INVALID_ARGUMENT;
    }
    if (is_fault("init_refused", 0, rank)) return CUDA_ERROR;
    struct meeting *meeting = meeting_map(&id);
    struct fake_comm *c = calloc(1, sizeof *c);
    if (!meeting || !c) {
        free(c);
        return SYSTEM_ERROR;
    }
    *c = (struct fake_comm){.meeting = meeting, .id = id, .rank = rank, .size = size};
    c->state = IN_PROGRESS;
    c->is_joining = true;
    c->is_stuck = is_fault("init_hang", 0, rank);
    if (!c->is_stuck) atomic_fetch_add(&meeting->n_joined, 1);
    *comm = c;
    return IN_PROGRESS;
}

/* Moves one message into its box, or out of it, if that can be done now. */
static void work_try(struct fake_comm *c, struct work *work)
{
    struct box *box = work->from ? &c->meeting->boxes[c->rank][work->peer]
                                 : &c->meeting->boxes[work->peer][c->rank];
    if (work->is_done || atomic_load(&box->is_full) == (work->from ? 1 : 0)) return;
    if (work->from) {
        memcpy(box->data, work->from, work->n * sizeof(float));
        box->n = work->n;
    } else if (box->n != work->n) {
        c->state = INVALID_USAGE;
        return;
    } else {
        memcpy(work->into, box->data, work->n * sizeof(float));
    }
    atomic_store(&box->is_full, work->from ? 1 : 0);
    work->is_done = true;
}

/* Adds in a chain over the ranks, because NCCL does not keep the order of the tree either. */
static void sum_finish(struct fake_comm *c)
{
    for (size_t i = 0; i < c->n_sum; i++) {
        float sum = c->sum_parts[i];
        for (int rank = 1; rank < c->size; rank++)
            sum += c->sum_parts[(size_t)rank * c->n_sum + i];
        c->sum_into[i] = sum;
    }
    free(c->sum_parts);
    c->sum_parts = NULL;
    c->n_sum = 0;
}

/* Continues all operations in progress as far as possible. */
static void advance(struct fake_comm *c)
{
    bool is_done = true;
    if (c->state != IN_PROGRESS || c->is_stuck) return;
    if (c->is_joining) {
        if (atomic_load(&c->meeting->n_joined) < c->size) return;
        unlink(c->id.bytes);
        c->is_joining = false;
        c->state = is_fault("init_error", 0, c->rank) ? SYSTEM_ERROR : SUCCESS;
        return;
    }
    if (c->is_finalizing) {
        if (atomic_load(&c->meeting->n_finalized) == c->size) c->state = SUCCESS;
        return;
    }
    for (int i = 0; i < c->n_work && c->state == IN_PROGRESS; i++) {
        work_try(c, &c->work[i]);
        is_done = is_done && c->work[i].is_done;
    }
    if (!is_done || c->state != IN_PROGRESS) return;
    if (c->n_sum) sum_finish(c);
    c->n_work = 0;
    c->state = SUCCESS;
    c->is_doomed = is_fault("async", c->n_calls, c->rank);
}

int ncclCommGetAsyncError(struct fake_comm *comm, int *state)
{
    advance(comm);
    *state = comm->state;
    if (comm->is_doomed) comm->state = REMOTE_ERROR; /* the call was a success */
    return SUCCESS;
}

/* Starts the calls that have been recorded. */
static int start(struct fake_comm *c)
{
    c->n_calls++;
    if (is_fault("call_refused", c->n_calls, c->rank)) return INVALID_USAGE;
    c->is_stuck = is_fault("call_hang", c->n_calls, c->rank);
    c->state = IN_PROGRESS;
    advance(c);
    int rc = c->state;
    if (c->is_doomed) c->state = REMOTE_ERROR;
    return rc;
}

static int note(struct fake_comm *c, int peer, const float *from, float *into, size_t n, int type)
{
    if (c->state != SUCCESS || type != FLOAT32 || n > BOX_FLOATS || peer < 0 || peer >= c->size ||
        c->n_work == WORK_MAX) {
        return INVALID_ARGUMENT;
    }
    c->work[c->n_work++] = (struct work){.peer = peer, .from = from, .into = into, .n = n};
    return SUCCESS;
}

int ncclGroupStart(void)
{
    group_depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    struct fake_comm *comm = group_comm;
    if (group_depth <= 0) return INVALID_USAGE;
    if (--group_depth > 0 || !comm) return SUCCESS;
    group_comm = NULL;
    return start(comm);
}

int ncclSend(const void *data, size_t n, int type, int peer, struct fake_comm *comm, void *stream)
{
    (void)stream;
    if (!group_depth)
        return INVALID_USAGE; /* two ranks that send first would wait for each other */
    if (is_fault("send_refused", comm->n_calls + 1, comm->rank)) return INVALID_ARGUMENT;
    group_comm = comm;
    return note(comm, peer, data, NULL, n, type);
}

int ncclRecv(void *data, size_t n, int type, int peer, struct fake_comm *comm, void *stream)
{
    (void)stream;
    if (!group_depth) return INVALID_USAGE;
    group_comm = comm;
    return note(comm, peer, NULL, data, n, type);
}

/* Gathers n floats of every rank into all[size][n]. */
static int note_gather(struct fake_comm *c, const float *mine, float *all, size_t n, int type)
{
    int rc = SUCCESS;
    memmove(all + (size_t)c->rank * n, mine, n * sizeof(float));
    for (int peer = 0; peer < c->size && !rc; peer++) {
        if (peer == c->rank) continue;
        rc = note(c, peer, mine, NULL, n, type);
        if (!rc) rc = note(c, peer, NULL, all + (size_t)peer * n, n, type);
    }
    return rc;
}

int ncclAllGather(const void *mine, void *all, size_t n, int type, struct fake_comm *comm,
                  void *stream)
{
    (void)stream;
    int rc = note_gather(comm, mine, all, n, type);
    return rc ? rc : start(comm);
}

int ncclAllReduce(const void *mine, void *out, size_t n, int type, int op, struct fake_comm *comm,
                  void *stream)
{
    (void)stream;
    comm->sum_parts = calloc((size_t)comm->size * n, sizeof(float));
    if (op != SUM || !comm->sum_parts) return INVALID_ARGUMENT;
    comm->sum_into = out;
    comm->n_sum = n;
    int rc = note_gather(comm, mine, comm->sum_parts, n, type);
    return rc ? rc : start(comm);
}

int ncclCommFinalize(struct fake_comm *comm)
{
    n_finalizes++;
    if (comm->state != SUCCESS) return INVALID_ARGUMENT;
    comm->is_finalizing = true;
    comm->is_stuck = is_fault("finalize_hang", 0, comm->rank);
    comm->state = IN_PROGRESS;
    atomic_fetch_add(&comm->meeting->n_finalized, 1);
    return IN_PROGRESS;
}

static void comm_free(struct fake_comm *comm)
{
    unlink(comm->id.bytes);
    munmap(comm->meeting, sizeof *comm->meeting);
    free(comm->sum_parts);
    free(comm);
}

int ncclCommDestroy(struct fake_comm *comm)
{
    n_destroys++;
    if (is_fault("destroy_hang", 0, comm->rank)) hang_for_ever();
    comm_free(comm);
    return SUCCESS;
}

#ifndef FAKE_NCCL_LACKS_ABORT
int ncclCommAbort(struct fake_comm *comm)
{
    n_aborts++;
    if (is_fault("abort_hang", 0, comm->rank)) hang_for_ever();
    comm_free(comm);
    return SUCCESS;
}
#endif
