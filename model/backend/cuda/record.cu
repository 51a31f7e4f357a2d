/* Recording and replay of a step as a CUDA graph. A key's first step is launched as it is, its second is
 * recorded, later ones are replayed. A device that cannot record (a capture refused, no memory for the
 * graph) runs every step launched: nothing of a step has run while it is recorded, so that the model
 * gives the same step once more (`again` of backend.h). */
#include "model/backend/cuda/internal.cuh"

#include <string.h>

enum { RECORDINGS_MAX = 256 };

struct cuda_recording {
    struct plan_key key;
    cudaGraphExec_t graph; /* NULL: seen once, not recorded yet */
    int64_t last_used;     /* begin_recording's count */
};

int cuda_open_recordings(struct backend_cuda *be, struct error *err)
{
    return mem_array(&be->recordings, RECORDINGS_MAX, sizeof *be->recordings, err);
}

void cuda_forget_recordings(struct backend_cuda *be)
{
    for (int i = 0; i < be->n_recordings; i++) {
        if (be->recordings[i].graph) cudaGraphExecDestroy(be->recordings[i].graph);
    }
    be->n_recordings = 0;
    be->current = NULL;
}

static bool is_same(const struct plan_key *a, const struct plan_key *b)
{
    return a->n == b->n && a->n_rows == b->n_rows && a->n_partitions == b->n_partitions;
}

/* Which of two recordings is the smaller loss. */
static bool goes_before(const struct cuda_recording *a, const struct cuda_recording *b)
{
    if (!a->graph != !b->graph) return !a->graph;
    return a->last_used < b->last_used;
}

/* Room for one more recording. Errors: those of cuda_finish, since a graph may still run. */
static int take_recording(struct backend_cuda *be, struct cuda_recording **out, struct error *err)
{
    struct cuda_recording *victim = be->recordings;
    int rc = 0;
    if (be->n_recordings < RECORDINGS_MAX) {
        *out = &be->recordings[be->n_recordings++];
        return 0;
    }
    for (int i = 1; i < be->n_recordings; i++) {
        if (goes_before(&be->recordings[i], victim)) victim = &be->recordings[i];
    }
    if (victim->graph) {
        TRY(cuda_finish(be, err));
        cudaGraphExecDestroy(victim->graph);
    }
    *out = victim;
out:
    return rc;
}

/* The recording of the step's key; *is_new: made now. */
static int find_recording(struct backend_cuda *be, bool *is_new, struct error *err)
{
    struct cuda_recording *found = NULL;
    int rc = 0;
    for (int i = 0; !found && i < be->n_recordings; i++) {
        if (is_same(&be->recordings[i].key, &be->key)) found = &be->recordings[i];
    }
    *is_new = !found;
    if (!found) {
        TRY(take_recording(be, &found, err));
        *found = {};
        found->key = be->key;
    }
    found->last_used = ++be->n_recordable;
    be->current = found;
out:
    return rc;
}

/* Steps are launched kernel by kernel from here on. */
static void give_up_recording(struct backend_cuda *be)
{
    cudaGetLastError();
    be->never_records = true;
    be->is_recording = false;
    be->current = NULL;
}

void cuda_drop_recording(struct backend_cuda *be)
{
    cudaGraph_t graph = NULL;
    be->current = NULL;
    if (!be->is_recording) return;
    be->is_recording = false;
    if (cudaStreamEndCapture(be->stream, &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
    cudaGetLastError();
}

int cuda_begin_recording(struct backend_cuda *be, bool *replayed, struct error *err)
{
    bool is_new = false;
    int rc = 0;
    TRY(find_recording(be, &is_new, err));
    if (is_new || be->status != cudaSuccess) goto out;
    if (be->current->graph) {
        *replayed = cudaGraphLaunch(be->current->graph, be->stream) == cudaSuccess;
        if (!*replayed) give_up_recording(be);
        goto out;
    }
    be->is_recording =
        cudaStreamBeginCapture(be->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (!be->is_recording) give_up_recording(be);
out:
    return rc;
}

/* A failure of the device itself comes back when the step is launched. */
void cuda_end_recording(struct backend_cuda *be, bool *again)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t status = cudaStreamEndCapture(be->stream, &graph);
    be->is_recording = false;
    if (status == cudaSuccess) status = be->status;
    if (status == cudaSuccess) status = cudaGraphInstantiate(&exec, graph, 0);
    if (status == cudaSuccess) status = cudaGraphUpload(exec, be->stream);
    if (status == cudaSuccess) status = cudaGraphLaunch(exec, be->stream);
    if (graph) cudaGraphDestroy(graph);
    if (status == cudaSuccess) {
        be->current->graph = exec;
        return;
    }
    if (exec) cudaGraphExecDestroy(exec);
    give_up_recording(be);
    be->status = cudaSuccess;
    *again = true;
}
