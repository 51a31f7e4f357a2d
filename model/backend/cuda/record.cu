/* Recording and replay of a step as a CUDA graph. The first step of a size is launched as it is,
 * the second is recorded, later ones are replayed. If the device cannot record (it refuses the
 * capture or has no memory for the graph), every step is launched from then on. Nothing of a step
 * has run while it is being recorded, so the model gives the same step once more (`again` of
 * model/backend/backend.h). */
#include "model/backend/cuda/internal.cuh"

#include <string.h>

enum { RECORDINGS_MAX = 256 };

struct cuda_recording {
    struct step_size size;
    cudaGraphExec_t graph; /* NULL: seen once, not recorded yet */
    int64_t last_used;     /* value of n_recordable at its last use */
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

static bool is_same(const struct step_size *a, const struct step_size *b)
{
    return a->n_rows == b->n_rows && a->n_wanted == b->n_wanted &&
           a->n_partitions == b->n_partitions && a->n_tiles == b->n_tiles &&
           a->has_wide == b->has_wide && a->n_copies == b->n_copies && a->variant == b->variant;
}

/* True if a is the smaller loss of two recordings. */
static bool goes_before(const struct cuda_recording *a, const struct cuda_recording *b)
{
    if (!a->graph != !b->graph) return !a->graph;
    return a->last_used < b->last_used;
}

/* Makes room for one more recording. Errors: those of cuda_finish, because a graph may still
 * run. */
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

/* Finds the recording for the step's size; *is_new: it has just been made. */
static int find_recording(struct backend_cuda *be, bool *is_new, struct error *err)
{
    struct cuda_recording *found = NULL;
    int rc = 0;
    for (int i = 0; !found && i < be->n_recordings; i++) {
        if (is_same(&be->recordings[i].size, &be->size)) found = &be->recordings[i];
    }
    *is_new = !found;
    if (!found) {
        TRY(take_recording(be, &found, err));
        *found = {};
        found->size = be->size;
    }
    found->last_used = ++be->n_recordable;
    be->current = found;
out:
    return rc;
}

/* From here on steps are launched kernel by kernel. */
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

/* If the device itself has failed, launching the step reports it again. */
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
