/* Inside of the CUDA backend: what its files share on the host. C-like C++.
 *
 * A step: begin() writes the plan (backend_cuda_plan.h) into pinned memory and copies it over in one
 * piece; the operations then only launch kernels on one stream; what varies from step to step they
 * read from the plan on the device, so that a step of the same buckets can be recorded once as a CUDA
 * graph and replayed. The first step of a key runs as it is (scratch may grow), the second is
 * recorded, later ones are replayed. No operation waits for the device; `answer` and `read` do. */
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/error.h"
#include "base/memory.h"
#include "model/backend/backend.h"
#include "model/backend/cuda/cuda.h"
#include "model/backend/cuda/step_plan.h"
}

/* The plan on the device, one pointer for each of its parts. Valid for kernels launched by the step
 * underway; fixed as long as the layout is. */
struct device_plan {
    const int32_t *counts; /* n, n_wanted, n_lanes, n_tiles */
    const struct plan_lane *lanes;
    const int32_t *row_lane, *row_pos, *tokens, *wanted;
    const struct plan_tile *tiles;
    const int32_t *blocks;
    const float *cos, *sin, *embedding;
};

enum { PLAN_N, PLAN_N_WANTED, PLAN_N_LANES, PLAN_N_TILES };

/* Where plans are written: pinned, and the copy on the device. */
struct plan_memory {
    void *host, *device;
    size_t bytes; /* room in both */
};

struct cuda_recording; /* one key and its graph */

struct backend_cuda {
    struct backend base;
    struct backend_ops ops;
    char arithmetic[32], kernels[16];
    struct backend_cuda_options options;
    int sm;    /* 80, 90, ... */
    int n_sms; /* multiprocessors */
    cudaStream_t stream;

    /* Recordings hold addresses of the first; the second is that of steps too large to record, so that
     * a long prompt's growth costs no recording. */
    struct plan_memory recorded_memory, large_memory;
    struct plan_memory *memory; /* of the step underway */
    cudaEvent_t plan_is_over;   /* the last copy has been made */
    struct device_plan plan;
    struct plan_key key;
    int n_tiles; /* exact */

    struct comm *comm; /* whose ranks a step on the stream waits for; NULL: nobody's */
    bool is_recording;
    bool never_records; /* an operation needs the host in mid-step, or the device cannot record */
    struct cuda_recording *current, *recordings;
    int n_recordings;
    int64_t n_recordable; /* steps so far; tells how long ago a recording was used */

    void *scratch; /* device memory that one operation may use; cuda_scratch() */
    size_t scratch_bytes;
    void *host_scratch; /* pinned; `answer` and `read` */
    size_t host_scratch_bytes;

    cudaError_t status;      /* first failure since `begin` */
    const char *failed_what; /* what was being done then */
};

static inline struct backend_cuda *backend_cuda_of(struct backend *be)
{
    return (struct backend_cuda *)be;
}

/* Keeps the first failure; the step's end reports it. */
static inline void cuda_note(struct backend_cuda *be, cudaError_t status, const char *what)
{
    if (status != cudaSuccess && be->status == cudaSuccess) {
        be->status = status;
        be->failed_what = what;
    }
}

/* The thread's device becomes the backend's: at the head of every entry, since a thread may own several
 * backends. */
static inline void cuda_use_device(struct backend_cuda *be)
{
    cuda_note(be, cudaSetDevice(be->options.device), "choosing the device");
}

/* Device memory of at least `bytes` for the operation being launched, NULL (and noted) when there is
 * none. What an earlier operation of the same stream left there is overwritten. */
void *cuda_scratch(struct backend_cuda *be, size_t bytes);
/* The same, pinned host memory; waits for the stream when it has to grow. */
void *cuda_host_scratch(struct backend_cuda *be, size_t bytes);
/* Waits for the stream. Errors: ERR_UNAVAILABLE with what failed. */
int cuda_finish(struct backend_cuda *be, struct error *err);

/* backend_cuda_record.cu. Errors: ERR_NO_MEMORY. */
int cuda_open_recordings(struct backend_cuda *be, struct error *err);
/* Does not wait: what may still run is waited for by the caller, or frees itself. */
void cuda_forget_recordings(struct backend_cuda *be);
/* A step that broke off leaves the stream recording. */
void cuda_drop_recording(struct backend_cuda *be);
/* Replays the step of be->key, or begins to record it, or neither. Errors: those of cuda_finish. */
int cuda_begin_recording(struct backend_cuda *be, bool *replayed, struct error *err);
/* Sets the recorded step going. *again: it could not be recorded, and has not run. */
void cuda_end_recording(struct backend_cuda *be, bool *again);

/* Rows of a launch for n rows of the step. Buffers have as many. */
static inline int cuda_rows(const struct backend_cuda *be, int n)
{
    (void)be;
    return plan_bucket(n);
}

/* Launches kernel<<<grid, block, shared>>>(args) on the backend's stream, allowed to begin before the
 * one before it has ended: every kernel calls grid_dependency_wait() before it reads what an earlier
 * kernel wrote. `what` is a literal. */
template <typename... P, typename... A>
static inline void cuda_launch(struct backend_cuda *be, const char *what, void (*kernel)(P...),
                               dim3 grid, dim3 block, size_t shared, A... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = be->stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = be->sm >= 90 ? 1 : 0;
    cuda_note(be, cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), what);
}

/* Once for every kernel of a step, before the first: room for `shared` bytes of dynamic shared memory, and
 * as much shared memory as a multiprocessor has. That is the same for all, since a multiprocessor must
 * run empty to divide its memory anew, which would part kernels that are to overlap. */
template <typename... P>
static inline void cuda_prepare(struct backend_cuda *be, void (*kernel)(P...), size_t shared)
{
    const void *function = reinterpret_cast<const void *>(kernel);
    cuda_note(be,
              cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared),
              "preparing a kernel");
    if (shared == 0) return;
    cuda_note(be,
              cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared)),
              "preparing a kernel");
}

/* The kernels of each file; failures are noted. */
void cuda_matmul_prepare(struct backend_cuda *be);
void cuda_sum_prepare(struct backend_cuda *be);
void cuda_rows_prepare(struct backend_cuda *be);
void cuda_synthetic_prepare(struct backend_cuda *be);
void cuda_attention_prepare(struct backend_cuda *be);
void cuda_attention_store_prepare(struct backend_cuda *be);
void cuda_answer_prepare(struct backend_cuda *be);

/* backend_cuda_matrix.cu */
int cuda_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                     struct error *err);
void cuda_matrix_close(struct backend *be, struct matrix *m);

/* backend_cuda_matmul.cu */
void cuda_matmul(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                 float *out, size_t out_stride, int n);
void cuda_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                        const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums);
void cuda_matmul_swiglu(struct backend *be, const struct matrix *m, const float *bias,
                        const uint16_t *in, int n, float *gate_up, uint16_t *h);

/* backend_cuda_sum.cu */
int cuda_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                  struct error *err);

/* backend_cuda_synthetic.cu: x[cuda_rows(n)][D] = rows of a synthetic table for the plan's tokens. */
void cuda_embed_synthetic(struct backend_cuda *be, const struct weight *table, int n, float *x);

/* backend_cuda_rows.cu */
void cuda_embed(struct backend *be, const struct backend_step *step, float *x);
void cuda_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n,
                  int dim, uint16_t *h);
void cuda_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                       const float *weight, float eps, int dim, uint16_t *h);
void cuda_residual_norm(struct backend *be, const struct residual_norm *args);

/* backend_cuda_attention.cu */
void cuda_attention_store(struct backend *be, const struct attention_shape *shape,
                          const struct attention_input *input, const struct backend_step *step,
                          float *qkv, uint16_t *q, uint16_t *kv);
void cuda_attention(struct backend *be, const struct attention_shape *shape,
                    const struct backend_step *step, const uint16_t *q, const uint16_t *kv,
                    uint16_t *out);

/* backend_cuda_answer.cu */
int cuda_answer(struct backend *be, const struct answer_item *items, int n_items,
                struct arena *arena, struct slice_row *out, int *bad, struct error *err);
