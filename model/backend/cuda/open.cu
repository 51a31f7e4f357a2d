/* The host's part of the CUDA backend: device and memory, the inputs of a step, begin and end. */
#include "model/backend/cuda/internal.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/clock.h"
#include "base/log.h"
}

enum { SM_LEAST = 80, ASK_RANKS_MS = 10, SCRATCH_LEAST = 32 << 20, INPUTS_LEAST = 4 << 20 };

static int device_error(struct error *err, int code, const char *what, cudaError_t status)
{
    return error_set(err, code, "%s: %s", what, cudaGetErrorString(status));
}

/* ---- memory ---- */

static void *cuda_buffer_open(struct backend *base, size_t bytes, struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    void *data = NULL;
    cudaError_t status = cudaSetDevice(be->options.device);
    if (status == cudaSuccess) status = cudaMalloc(&data, bytes ? bytes : 1);
    if (status != cudaSuccess) {
        cudaGetLastError();
        error_set(err, ERR_NO_MEMORY, "the GPU has no room for a buffer of %zu bytes: %s", bytes,
                  cudaGetErrorString(status));
        return NULL;
    }
    status = cudaMemsetAsync(data, 0, bytes, be->stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(be->stream);
    if (status != cudaSuccess) {
        cudaFree(data);
        device_error(err, ERR_UNAVAILABLE, "clearing a buffer on the GPU", status);
        return NULL;
    }
    return data;
}

static void cuda_buffer_close(struct backend *base, void *buffer, size_t bytes)
{
    (void)base;
    (void)bytes;
    cudaFree(buffer);
}

static int cuda_memory(struct backend *base, size_t *free_bytes, size_t *all_bytes,
                       struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    cudaError_t status = cudaSetDevice(be->options.device);
    if (status == cudaSuccess) status = cudaMemGetInfo(free_bytes, all_bytes);
    if (status == cudaSuccess) return 0;
    return device_error(err, ERR_UNAVAILABLE, "asking the GPU for its free memory", status);
}

static void cuda_upload(struct backend *base, void *buffer, const void *host, size_t bytes)
{
    struct backend_cuda *be = backend_cuda_of(base);
    cuda_use_device(be);
    cudaError_t status = cudaMemcpyAsync(buffer, host, bytes, cudaMemcpyHostToDevice, be->stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(be->stream);
    cuda_note(be, status, "upload");
    if (be->upload_status == cudaSuccess) be->upload_status = status;
}

/* Asks whether the ranks that steps wait for are still there. Recordings of a communicator that has
 * failed are destroyed, because NCCL's abort, which waits on a thread of its own, ends only when
 * they are gone. A recording may be destroyed while it runs: the device frees it when it ends. */
static int check_ranks(struct backend_cuda *be, struct error *err)
{
    int rc = be->comm ? comm_device_failed(be->comm, err) : 0;
    if (rc) cuda_forget_recordings(be);
    return rc;
}

/* Waits for the stream. A lost rank would keep it waiting for ever, so NCCL is asked from time to
 * time. Errors: those of comm_device_failed. */
static int wait_with_ranks(struct backend_cuda *be, struct error *err)
{
    int64_t asked_ms = clock_now_ms();
    cudaError_t status;
    while ((status = cudaStreamQuery(be->stream)) == cudaErrorNotReady) {
        if (clock_now_ms() - asked_ms < ASK_RANKS_MS) continue;
        int rc = check_ranks(be, err);
        if (rc) return rc;
        asked_ms = clock_now_ms();
    }
    cuda_note(be, status, "waiting for the step");
    return check_ranks(be, err);
}

static int report(const struct backend_cuda *be, struct error *err)
{
    if (be->status == cudaSuccess) return 0;
    return error_set(err, ERR_UNAVAILABLE, "the GPU failed at %s: %s", be->failed_what,
                     cudaGetErrorString(be->status));
}

int cuda_finish(struct backend_cuda *be, struct error *err)
{
    if (be->comm) {
        int rc = wait_with_ranks(be, err);
        if (rc) return rc;
    } else {
        cuda_note(be, cudaStreamSynchronize(be->stream), "waiting for the step");
    }
    return report(be, err);
}

/* The least power of two that is not below `bytes` or `least`; `least` is one itself. */
static size_t round_up(size_t bytes, size_t least)
{
    while (least < bytes) {
        least *= 2;
    }
    return least;
}

/* Recordings hold the old address, so growing forgets them. It grows rarely because it at least
 * doubles. */
static void *grow(struct backend_cuda *be, void **memory, size_t *room, size_t bytes)
{
    size_t wanted = round_up(bytes, SCRATCH_LEAST);
    if (bytes <= *room) return *memory;
    if (be->is_recording) {
        cuda_note(be, cudaErrorMemoryAllocation, "scratch memory of a recorded step");
        return NULL;
    }
    cuda_note(be, cudaStreamSynchronize(be->stream), "scratch memory");
    cuda_forget_recordings(be);
    cudaFree(*memory);
    *memory = NULL;
    *room = 0;
    cudaError_t status = cudaMalloc(memory, wanted);
    if (status == cudaErrorMemoryAllocation) { /* no room for a power of two */
        cudaGetLastError();
        wanted = bytes;
        status = cudaMalloc(memory, wanted);
    }
    cuda_note(be, status, "scratch memory");
    if (status != cudaSuccess) return NULL;
    *room = wanted;
    return *memory;
}

void *cuda_scratch(struct backend_cuda *be, size_t bytes)
{
    return grow(be, &be->scratch, &be->scratch_bytes, bytes);
}

void *cuda_packed(struct backend_cuda *be, size_t bytes)
{
    return grow(be, &be->packed, &be->packed_bytes, bytes);
}

void *cuda_host_scratch(struct backend_cuda *be, size_t bytes)
{
    if (bytes <= be->host_scratch_bytes) return be->host_scratch;
    cuda_note(be, cudaStreamSynchronize(be->stream), "pinned memory");
    cudaFreeHost(be->host_scratch);
    be->host_scratch = NULL;
    be->host_scratch_bytes = 0;
    cudaError_t status = cudaMallocHost(&be->host_scratch, bytes);
    cuda_note(be, status, "pinned memory");
    if (status != cudaSuccess) return NULL;
    be->host_scratch_bytes = bytes;
    return be->host_scratch;
}

int cuda_open_ordered(struct backend_cuda *be, struct error *err)
{
    size_t bytes = ORDERED_ELEMENTS * sizeof *be->ordered;
    if (be->ordered) return 0;
    cudaError_t status = cudaMalloc(reinterpret_cast<void **>(&be->ordered), bytes);
    if (status == cudaSuccess) return 0;
    cudaGetLastError();
    be->ordered = NULL;
    return device_error(err, ERR_NO_MEMORY, "room for rows in the order of a matrix", status);
}

int cuda_open_readers(struct backend_cuda *be, struct error *err)
{
    return be->readers ? 0 : readers_open(&be->readers, err);
}

static const float *cuda_read(struct backend *base, const float *data, size_t n)
{
    struct backend_cuda *be = backend_cuda_of(base);
    struct error err;
    cuda_use_device(be);
    float *host = static_cast<float *>(cuda_host_scratch(be, n * sizeof *host));
    if (!host) return NULL;
    cuda_note(be, cudaMemcpyAsync(host, data, n * sizeof *host, cudaMemcpyDeviceToHost, be->stream),
              "reading logits");
    return cuda_finish(be, &err) ? NULL : host;
}

/* ---- a step ---- */

static const char *cuda_kernels(const struct backend *base)
{
    return reinterpret_cast<const struct backend_cuda *>(base)->kernels;
}

static int cuda_capacity(const struct backend *base, int n)
{
    (void)base;
    return step_plan_pad(n);
}

static int cuda_wanted_capacity(const struct backend *base, int n)
{
    (void)base;
    return step_plan_wanted_capacity(n);
}

static void close_inputs(struct inputs_memory *memory)
{
    cudaFreeHost(memory->host);
    cudaFree(memory->device);
    *memory = {};
}

/* Makes room for the inputs of the step under way in the memory for steps of its size. */
static int grow_inputs(struct backend_cuda *be, size_t bytes, struct error *err)
{
    struct inputs_memory *memory = be->memory;
    cudaError_t status = cudaSuccess;
    if (bytes <= memory->bytes) return 0;
    cudaStreamSynchronize(be->stream);
    if (memory == &be->recorded_memory) cuda_forget_recordings(be);
    close_inputs(memory);
    bytes = round_up(bytes, INPUTS_LEAST);
    status = cudaMallocHost(&memory->host, bytes);
    if (status == cudaSuccess) status = cudaMalloc(&memory->device, bytes);
    if (status != cudaSuccess) {
        return error_set(err, ERR_NO_MEMORY, "no room for a step's inputs of %zu bytes: %s", bytes,
                         cudaGetErrorString(status));
    }
    memory->bytes = bytes;
    return 0;
}

template <typename T> static const T *input_at(const struct backend_cuda *be, size_t offset)
{
    return reinterpret_cast<const T *>(static_cast<const uint8_t *>(be->memory->device) + offset);
}

/* Writes the step's inputs and copies them over. */
static int send_inputs(struct backend_cuda *be, const struct backend_step *step, struct error *err)
{
    struct step_plan plan;
    int rc = 0;
    step_plan_init(&plan, step);
    be->memory = plan.size.n_rows > STEP_RECORDED_ROWS ? &be->large_memory : &be->recorded_memory;
    TRY(grow_inputs(be, plan.bytes, err));
    cuda_note(be, cudaEventSynchronize(be->inputs_copied), "the last step's inputs");
    be->size = plan.size;
    be->n_wanted = step->n_rows;
    step_plan_write(&plan, step, be->memory->host);
    be->inputs.counts = input_at<int32_t>(be, plan.counts);
    be->inputs.lanes = input_at<struct step_lane>(be, plan.lanes);
    be->inputs.row_lane = input_at<int32_t>(be, plan.row_lane);
    be->inputs.row_pos = input_at<int32_t>(be, plan.row_pos);
    be->inputs.row_end = input_at<int32_t>(be, plan.row_end);
    be->inputs.tokens = input_at<int32_t>(be, plan.tokens);
    be->inputs.wanted = input_at<int32_t>(be, plan.wanted);
    be->inputs.tiles = input_at<struct step_tile>(be, plan.tiles);
    be->inputs.copies = input_at<struct step_copy>(be, plan.copies);
    be->inputs.cos = input_at<float>(be, plan.cos);
    be->inputs.sin = input_at<float>(be, plan.sin);
    be->inputs.query_scale = step->query_scale ? input_at<float>(be, plan.query_scale) : NULL;
    be->inputs.n_ropes = step->n_ropes;
    be->inputs.embedding = input_at<float>(be, plan.embedding);
    be->inputs.features = input_at<uint16_t>(be, plan.features);
    be->inputs.recycled = input_at<int32_t>(be, plan.recycled);
    be->inputs.blocks = input_at<int32_t>(be, plan.blocks);
    cuda_note(be,
              cudaMemcpyAsync(be->memory->device, be->memory->host, plan.bytes,
                              cudaMemcpyHostToDevice, be->stream),
              "the step's inputs");
    cuda_note(be, cudaEventRecord(be->inputs_copied, be->stream), "the step's inputs");
out:
    return rc;
}

static bool can_record(const struct backend_cuda *be)
{
    return !be->options.no_graphs && !be->never_records && be->size.n_rows <= STEP_RECORDED_ROWS;
}

static int cuda_begin(struct backend *base, const struct backend_step *step, bool *replayed,
                      struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    int rc = 0;
    *replayed = false;
    cuda_drop_recording(be);
    if (be->upload_status != cudaSuccess) { /* what steps read may not be there */
        return device_error(err, ERR_UNAVAILABLE, "the GPU failed at an upload", be->upload_status);
    }
    be->status = cudaSuccess;
    cuda_use_device(be);
    TRY(check_ranks(be, err));
    TRY(send_inputs(be, step, err));
    if (can_record(be)) TRY(cuda_begin_recording(be, replayed, err));
out:
    return rc;
}

static int cuda_end(struct backend *base, bool *again, struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    *again = false;
    if (be->is_recording) cuda_end_recording(be, again);
    if (!*again) be->n_wanted = -1;
    return report(be, err);
}

/* ---- open and close ---- */

static void cuda_close(struct backend *base)
{
    if (!base) return;
    struct backend_cuda *be = backend_cuda_of(base);
    cuda_drop_recording(be);
    if (be->stream) cudaStreamSynchronize(be->stream);
    cuda_forget_recordings(be);
    free(be->recordings);
    cudaFree(be->scratch);
    cudaFree(be->packed);
    cudaFree(be->ordered);
    readers_close(be->readers);
    cudaFreeHost(be->host_scratch);
    close_inputs(&be->recorded_memory);
    close_inputs(&be->large_memory);
    if (be->inputs_copied) cudaEventDestroy(be->inputs_copied);
    if (be->stream) cudaStreamDestroy(be->stream);
    free(be);
}

static void fill_ops(struct backend_cuda *be)
{
    struct backend_ops *ops = &be->ops;
    ops->name = "cuda";
    ops->arithmetic = be->arithmetic;
    ops->form = be->options.weights == CUDA_WEIGHTS_BLOCKS ? be->options.stored : WEIGHTS_BF16;
    ops->kernels = cuda_kernels;
    ops->capacity = cuda_capacity;
    ops->wanted_capacity = cuda_wanted_capacity;
    ops->memory = cuda_memory;
    ops->buffer_open = cuda_buffer_open;
    ops->buffer_close = cuda_buffer_close;
    ops->upload = cuda_upload;
    ops->read = cuda_read;
    ops->matrix_open = cuda_matrix_open;
    ops->matrix_close = cuda_matrix_close;
    ops->matrix_digest = cuda_matrix_digest;
    ops->begin = cuda_begin;
    ops->end = cuda_end;
    ops->embed = cuda_embed;
    ops->rmsnorm = cuda_rmsnorm;
    ops->rmsnorm_rows = cuda_rmsnorm_rows;
    ops->feature_rows = cuda_feature_rows;
    ops->step_features = cuda_step_features;
    ops->widen = cuda_widen;
    ops->norm_part = cuda_norm_part;
    ops->matmul = cuda_matmul;
    ops->matmul_slices = cuda_matmul_slices;
    ops->matmul_gated = cuda_matmul_gated;
    ops->attention_store = cuda_attention_store;
    ops->attention = cuda_attention;
    ops->tree_sum = cuda_tree_sum;
    ops->residual_norm = cuda_residual_norm;
    ops->qk_squares = cuda_qk_squares;
    ops->adjust_logits = cuda_adjust_logits;
    ops->add_logits = cuda_add_logits;
    ops->answer = cuda_answer;
    ops->close = cuda_close;
    be->base.ops = ops;
}

static int find_device(struct backend_cuda *be, struct error *err)
{
    int n_devices = 0, device = be->options.device;
    struct cudaDeviceProp properties;
    cudaError_t status = cudaGetDeviceCount(&n_devices);
    if (status != cudaSuccess) {
        bool has_none = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver;
        cudaGetLastError();
        /* A driver that still starts can be asked again. */
        return device_error(err, has_none ? ERR_UNSUPPORTED : ERR_UNAVAILABLE,
                            "no GPU can be used here; --device cpu runs without", status);
    }
    if (device == -1) device = be->options.device = be->options.rank % n_devices;
    if (device < 0 || device >= n_devices) {
        return error_set(err, ERR_UNSUPPORTED, "there is no GPU %d: this machine has %d, from 0 on",
                         device, n_devices);
    }
    status = cudaSetDevice(device);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
    if (status != cudaSuccess) return device_error(err, ERR_UNAVAILABLE, "opening the GPU", status);
    be->sm = 10 * properties.major + properties.minor;
    be->n_sms = properties.multiProcessorCount;
    if (be->sm < SM_LEAST) {
        return error_set(err, ERR_UNSUPPORTED,
                         "GPU %d (%s) has compute capability %d.%d; 8.0 is "
                         "the least",
                         device, properties.name, properties.major, properties.minor);
    }
    return 0;
}

static int prepare_kernels(struct backend_cuda *be, struct error *err)
{
    cuda_matmul_prepare(be);
    cuda_sum_prepare(be);
    cuda_rows_prepare(be);
    cuda_embed_prepare(be);
    cuda_synthetic_prepare(be);
    cuda_attention_prepare(be);
    cuda_attention_store_prepare(be);
    cuda_squares_prepare(be);
    cuda_answer_prepare(be);
    return report(be, err);
}

/* The large matmuls use wgmma where it has the bits of mma.sync. */
static int open_wgmma(struct backend_cuda *be, struct error *err)
{
    int rc = 0;
    if (be->sm != 90) return 0;
    TRY(cuda_compare_wgmma(be, &be->has_wgmma, err));
    if (!be->has_wgmma) {
        log_line(LOG_LEVEL_WARN, "wgmma_off",
                 "reason=\"this GPU's wgmma gives other sums than its mma.sync\"");
    }
out:
    return rc;
}

static const char *const weights_names[] = {"bf16", "fp8", "blocks"}; /* by enum cuda_weights */

int backend_cuda_open(struct backend **out, const struct backend_cuda_options *options,
                      struct error *err)
{
    int rc = 0;
    struct backend_cuda *be = NULL;
    cudaError_t status = cudaSuccess;
    *out = NULL;
    TRY(mem_array(&be, 1, sizeof *be, err));
    be->options = *options;
    TRY(find_device(be, err));
    TRY(cuda_open_recordings(be, err));
    TRY(prepare_kernels(be, err));
    snprintf(be->arithmetic, sizeof be->arithmetic, "cuda-sm%d-%s%s", be->sm,
             weights_names[options->weights], options->all_reduce ? "-allreduce" : "");
    snprintf(be->kernels, sizeof be->kernels, "sm%d", be->sm);
    be->base.kernels_reason = "compiled for this GPU";
    fill_ops(be);
    status = cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking);
    if (status == cudaSuccess) {
        status = cudaEventCreateWithFlags(&be->inputs_copied, cudaEventDisableTiming);
    }
    if (status != cudaSuccess) {
        rc = device_error(err, ERR_UNAVAILABLE, "opening the GPU", status);
        goto out;
    }
    TRY(open_wgmma(be, err));
    *out = &be->base;
    be = NULL;
out:
    if (be) cuda_close(&be->base);
    return rc;
}
