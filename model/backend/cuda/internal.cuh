/* Types and functions that the files of the CUDA backend share on the host. C-like C++.
 *
 * A step: begin() writes the step's inputs (step_plan.h) into pinned memory and copies them over in
 * one piece. The operations then only launch kernels on one stream. Whatever varies from step to
 * step the kernels read from the inputs on the device, so a step of the same padded size can be
 * recorded once as a CUDA graph and replayed. The first step of a size runs as it is (scratch
 * memory may grow), the second is recorded, later ones are replayed. No operation waits for the
 * device; `answer` and `read` do. */
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/error.h"
#include "base/memory.h"
#include "model/backend/backend.h"
#include "model/backend/cuda/cuda.h"
#include "model/backend/cuda/readers.h"
#include "model/backend/cuda/step_plan.h"
}

/* The inputs of the step under way on the device, one pointer for each. The addresses stay the same
 * for all steps of one size. */
struct step_inputs {
    const int32_t *counts; /* by enum step_count */
    const struct step_lane *lanes;
    const int32_t *row_lane, *row_pos, *row_end, *tokens, *wanted;
    const struct step_tile *tiles;
    const struct step_copy *copies;
    const int32_t *blocks;
    const float *cos, *sin, *embedding;
    const uint16_t *features;
    const int32_t *recycled;
    const float *query_scale; /* NULL: none */
    int n_ropes;
};

/* Where inputs are written: pinned memory, and its copy on the device. */
struct inputs_memory {
    void *host, *device;
    size_t bytes; /* room in each of the two */
};

struct cuda_recording; /* one step size and its graph */

struct backend_cuda {
    struct backend base;
    struct backend_ops ops;
    char arithmetic[32], kernels[16];
    struct backend_cuda_options options;
    int sm;    /* 80, 90, ... */
    int n_sms; /* multiprocessors */
    cudaStream_t stream;

    /* Recordings hold addresses of the first. The second is for steps that are too large to record,
     * so that a long prompt can make it grow without losing recordings. */
    struct inputs_memory recorded_memory, large_memory;
    struct inputs_memory *memory; /* of the step under way */
    cudaEvent_t inputs_copied;    /* the last copy has been made */
    struct step_inputs inputs;
    struct step_size size;
    int n_wanted; /* exact; -1 between steps */

    struct comm *comm; /* whose ranks a step on the stream waits for; NULL: no ranks */
    bool is_recording;
    bool never_records; /* a step needs the host in between, or the device cannot record */
    struct cuda_recording *current, *recordings;
    int n_recordings;
    int64_t n_recordable; /* counts steps: how long ago a recording was used */

    void *scratch; /* device memory that one operation may use; cuda_scratch() */
    size_t scratch_bytes;
    void *host_scratch; /* pinned; `answer` and `read` */
    size_t host_scratch_bytes;

    bool has_wgmma; /* sm_90a, and its sums are those of mma.sync */
    void *packed;   /* rows as wgmma takes them; cuda_packed() */
    size_t packed_bytes;
    struct readers *readers; /* of files; NULL until a file is read */
    uint16_t *ordered;       /* rows in the order of a matrix; NULL: no matrix has one */

    cudaError_t status;        /* first failure since `begin` */
    cudaError_t upload_status; /* first failure of an upload */
    const char *failed_what;   /* what was being done when it happened */
};

static inline struct backend_cuda *backend_cuda_of(struct backend *be)
{
    return (struct backend_cuda *)be;
}

/* Keeps the first failure; the end of the step reports it. */
static inline void cuda_note(struct backend_cuda *be, cudaError_t status, const char *what)
{
    if (status != cudaSuccess && be->status == cudaSuccess) {
        be->status = status;
        be->failed_what = what;
    }
}

/* Makes the backend's device the device of this thread. Every entry point calls it first, because
 * one thread may own several backends. */
static inline void cuda_use_device(struct backend_cuda *be)
{
    cuda_note(be, cudaSetDevice(be->options.device), "choosing the device");
}

/* Device memory of at least `bytes` for the operation that is being launched; NULL, with the
 * failure noted, if there is none. It overwrites what an earlier operation of the same stream left
 * there. */
void *cuda_scratch(struct backend_cuda *be, size_t bytes);
/* As cuda_scratch, for the rows that wgmma is about to multiply; it keeps what is in
 * cuda_scratch. */
void *cuda_packed(struct backend_cuda *be, size_t bytes);
/* As cuda_scratch, for pinned host memory; waits for the stream if the memory has to grow. */
void *cuda_host_scratch(struct backend_cuda *be, size_t bytes);
/* Makes room for ORDERED_ELEMENTS of be->ordered, once. Errors: ERR_NO_MEMORY. */
enum { ORDERED_ELEMENTS = 8 << 20 };
int cuda_open_ordered(struct backend_cuda *be, struct error *err);
/* Opens be->readers, once. Errors: those of readers_open. */
int cuda_open_readers(struct backend_cuda *be, struct error *err);
/* Waits for the stream. Errors: ERR_UNAVAILABLE with what failed. */
int cuda_finish(struct backend_cuda *be, struct error *err);

/* record.cu. Errors: ERR_NO_MEMORY. */
int cuda_open_recordings(struct backend_cuda *be, struct error *err);
/* Does not wait. The caller has waited for what may still run, or the device frees a running graph
 * after its end. */
void cuda_forget_recordings(struct backend_cuda *be);
/* Ends the recording that a step left open when it broke off. */
void cuda_drop_recording(struct backend_cuda *be);
/* Replays the step of be->size, or begins to record it, or does neither. Errors: those of
 * cuda_finish. */
int cuda_begin_recording(struct backend_cuda *be, bool *replayed, struct error *err);
/* Ends the recording and launches it. *again: the step could not be recorded and has not run. */
void cuda_end_recording(struct backend_cuda *be, bool *again);

/* The rows of a launch for n rows of the step, or for its wanted rows, which are n_wanted. Buffers
 * have as many. Where all rows are wanted both paddings are the same. */
static inline int cuda_rows(const struct backend_cuda *be, int n)
{
    return n == be->n_wanted ? be->size.n_wanted : step_plan_pad(n);
}

/* Launches kernel<<<grid, block, shared>>>(args) on the backend's stream. It may begin before the
 * kernel before it has ended, so every kernel calls grid_dependency_wait() before it reads what an
 * earlier one wrote. `what` is a literal. */
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

/* Called once for every kernel of a step before its first launch. It makes room for `shared` bytes
 * of dynamic shared memory and gives shared memory as much of the multiprocessor's memory as it can
 * have. That division is the same for all kernels because a multiprocessor must run empty before it
 * can change it, and kernels that should overlap would then run one after the other. */
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

/* Prepares the kernels of each file; failures are noted. */
void cuda_matmul_prepare(struct backend_cuda *be);
void cuda_sum_prepare(struct backend_cuda *be);
void cuda_rows_prepare(struct backend_cuda *be);
void cuda_embed_prepare(struct backend_cuda *be);
void cuda_synthetic_prepare(struct backend_cuda *be);
void cuda_attention_prepare(struct backend_cuda *be);
void cuda_attention_store_prepare(struct backend_cuda *be);
void cuda_squares_prepare(struct backend_cuda *be);
void cuda_answer_prepare(struct backend_cuda *be);

/* matrix.cu */
int cuda_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                     struct error *err);
void cuda_matrix_close(struct backend *be, struct matrix *m);
int cuda_matrix_digest(struct backend *be, const struct matrix_source *source, struct error *err);

/* matmul.cu */
void cuda_matmul(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                 float *out, size_t out_stride, int n);
void cuda_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                        const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums);
void cuda_matmul_gated(struct backend *be, const struct gated_mlp *args);

/* matmul_wgmma.cu: whether wgmma gives the bits of mma.sync on this device. Errors: those of
 * cuda_finish. */
int cuda_compare_wgmma(struct backend_cuda *be, bool *is_equal, struct error *err);

/* sum.cu */
int cuda_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                  struct error *err);

/* synthetic.cu: x[cuda_rows(n)][D] = rows of a synthetic table for the step's tokens, times the
 * scale. */
void cuda_embed_synthetic(struct backend_cuda *be, const struct weight *table, int n, float scale,
                          float *x);

/* embed.cu */
void cuda_embed(struct backend *be, const struct backend_step *step, float *x);

/* rows.cu */
void cuda_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n,
                  int dim, uint16_t *h);
void cuda_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                       const float *weight, float eps, int dim, uint16_t *h);
void cuda_feature_rows(struct backend *be, const struct backend_step *step, float *x, int dim,
                       bool only_recycled);
const uint16_t *cuda_step_features(struct backend *be, const struct backend_step *step);
void cuda_widen(struct backend *be, const uint16_t *h, int n, int dim, float *x, size_t x_stride);
void cuda_norm_part(struct backend *be, const struct norm_part *args);
void cuda_residual_norm(struct backend *be, const struct residual_norm *args);
void cuda_adjust_logits(struct backend *be, float *logits, size_t stride, int n, float scale,
                        float softcap);
void cuda_add_logits(struct backend *be, const struct backend_step *step, float *logits,
                     size_t stride, const float *bias);

/* attention/ */
void cuda_attention_store(struct backend *be, const struct attention_shape *shape,
                          const struct attention_input *input, const struct backend_step *step,
                          float *qkv, uint16_t *q, uint16_t *kv);
void cuda_attention(struct backend *be, const struct attention_shape *shape,
                    const struct backend_step *step, const struct attention_rule *rule,
                    const uint16_t *q, const uint16_t *kv, uint16_t *out);

/* squares.cu */
void cuda_qk_squares(struct backend *be, const struct attention_shape *shape,
                     const struct qk_squares *args, struct slice_sums *sums);

/* answer.cu */
int cuda_answer(struct backend *be, const struct answer_item *items, int n_items,
                struct arena *arena, struct slice_row *out, struct error *err);
