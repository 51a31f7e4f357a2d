/* The host part of the CUDA backend: device and memory, the step's plan, begin and end. */
#include "model/backend/cuda/internal.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/clock.h"
}

enum { SM_LEAST = 80, ASK_RANKS_MS = 10, SCRATCH_LEAST = 32 << 20, PLAN_LEAST = 1 << 20 };

static int refuse(struct error *err, int code, const char *what, cudaError_t status)
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
        refuse(err, ERR_UNAVAILABLE, "clearing a buffer on the GPU", status);
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

static void cuda_upload(struct backend *base, void *buffer, const void *host, size_t bytes)
{
    struct backend_cuda *be = backend_cuda_of(base);
    cuda_use_device(be);
    cuda_note(be, cudaMemcpyAsync(buffer, host, bytes, cudaMemcpyHostToDevice, be->stream),
              "upload");
    cuda_note(be, cudaStreamSynchronize(be->stream), "upload");
}

/* Asks for the ranks that steps wait for. Recordings of a communicator that has failed are never
 * replayed, and NCCL's abort, which waits on a thread of its own, ends only when they are gone. They
 * may be destroyed while one runs: the device frees it behind its end. */
static int check_ranks(struct backend_cuda *be, struct error *err)
{
    int rc = be->comm ? comm_device_failed(be->comm, err) : 0;
    if (rc) cuda_forget_recordings(be);
    return rc;
}

/* Waits for the stream; a lost rank would keep it waiting, so NCCL is asked from time to time. Errors:
 * those of comm_device_failed. */
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

/* The power of two that holds `bytes`, at least `least`, which is one. */
static size_t round_up(size_t bytes, size_t least)
{
    while (least < bytes) {
        least *= 2;
    }
    return least;
}

/* Recordings hold the old address, so growing forgets them: it grows seldom, in leaps. */
void *cuda_scratch(struct backend_cuda *be, size_t bytes)
{
    size_t room = round_up(bytes, SCRATCH_LEAST);
    if (bytes <= be->scratch_bytes) return be->scratch;
    if (be->is_recording) {
        cuda_note(be, cudaErrorMemoryAllocation, "scratch memory of a recorded step");
        return NULL;
    }
    cuda_note(be, cudaStreamSynchronize(be->stream), "scratch memory");
    cuda_forget_recordings(be);
    cudaFree(be->scratch);
    be->scratch = NULL;
    be->scratch_bytes = 0;
    cudaError_t status = cudaMalloc(&be->scratch, room);
    if (status == cudaErrorMemoryAllocation) { /* a leap too far */
        cudaGetLastError();
        room = bytes;
        status = cudaMalloc(&be->scratch, room);
    }
    cuda_note(be, status, "scratch memory");
    if (status != cudaSuccess) return NULL;
    be->scratch_bytes = room;
    return be->scratch;
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
    return plan_bucket(n);
}

static void close_plan(struct plan_memory *memory)
{
    cudaFreeHost(memory->host);
    cudaFree(memory->device);
    *memory = {};
}

/* Room for the step underway in the plan's memory of its size. */
static int grow_plan(struct backend_cuda *be, size_t bytes, struct error *err)
{
    struct plan_memory *memory = be->memory;
    cudaError_t status = cudaSuccess;
    if (bytes <= memory->bytes) return 0;
    cudaStreamSynchronize(be->stream);
    if (memory == &be->recorded_memory) cuda_forget_recordings(be);
    close_plan(memory);
    bytes = round_up(bytes, PLAN_LEAST);
    status = cudaMallocHost(&memory->host, bytes);
    if (status == cudaSuccess) status = cudaMalloc(&memory->device, bytes);
    if (status != cudaSuccess) {
        return error_set(err, ERR_NO_MEMORY, "no room for a step's plan of %zu bytes: %s", bytes,
                         cudaGetErrorString(status));
    }
    memory->bytes = bytes;
    return 0;
}

template <typename T> static const T *part(const struct backend_cuda *be, size_t offset)
{
    return reinterpret_cast<const T *>(static_cast<const uint8_t *>(be->memory->device) + offset);
}

/* Writes the plan and copies it over. */
static int send_plan(struct backend_cuda *be, const struct backend_step *step, struct error *err)
{
    struct plan_layout layout;
    int rc = 0;
    plan_layout_init(&layout, step);
    be->memory = layout.key.n > PLAN_RECORD_ROWS ? &be->large_memory : &be->recorded_memory;
    TRY(grow_plan(be, layout.bytes, err));
    cuda_note(be, cudaEventSynchronize(be->plan_is_over), "the last step's plan");
    be->key = layout.key;
    be->n_tiles = plan_write(&layout, step, be->memory->host);
    be->plan.counts = part<int32_t>(be, layout.counts);
    be->plan.lanes = part<struct plan_lane>(be, layout.lanes);
    be->plan.row_lane = part<int32_t>(be, layout.row_lane);
    be->plan.row_pos = part<int32_t>(be, layout.row_pos);
    be->plan.tokens = part<int32_t>(be, layout.tokens);
    be->plan.wanted = part<int32_t>(be, layout.wanted);
    be->plan.tiles = part<struct plan_tile>(be, layout.tiles);
    be->plan.cos = part<float>(be, layout.cos);
    be->plan.sin = part<float>(be, layout.sin);
    be->plan.embedding = part<float>(be, layout.embedding);
    be->plan.blocks = part<int32_t>(be, layout.blocks);
    cuda_note(be,
              cudaMemcpyAsync(be->memory->device, be->memory->host, layout.bytes,
                              cudaMemcpyHostToDevice, be->stream),
              "the step's plan");
    cuda_note(be, cudaEventRecord(be->plan_is_over, be->stream), "the step's plan");
out:
    return rc;
}

static int cuda_begin(struct backend *base, const struct backend_step *step, bool *replayed,
                      struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    int rc = 0;
    *replayed = false;
    cuda_drop_recording(be);
    be->status = cudaSuccess;
    cuda_use_device(be);
    TRY(check_ranks(be, err));
    TRY(send_plan(be, step, err));
    if (be->options.no_graphs || be->never_records || be->key.n > PLAN_RECORD_ROWS) goto out;
    TRY(cuda_begin_recording(be, replayed, err));
out:
    return rc;
}

static int cuda_end(struct backend *base, bool *again, struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    *again = false;
    if (be->is_recording) cuda_end_recording(be, again);
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
    cudaFreeHost(be->host_scratch);
    close_plan(&be->recorded_memory);
    close_plan(&be->large_memory);
    if (be->plan_is_over) cudaEventDestroy(be->plan_is_over);
    if (be->stream) cudaStreamDestroy(be->stream);
    free(be);
}

static void fill_ops(struct backend_cuda *be)
{
    struct backend_ops *ops = &be->ops;
    ops->name = "cuda";
    ops->arithmetic = be->arithmetic;
    ops->kernels = cuda_kernels;
    ops->capacity = cuda_capacity;
    ops->buffer_open = cuda_buffer_open;
    ops->buffer_close = cuda_buffer_close;
    ops->upload = cuda_upload;
    ops->read = cuda_read;
    ops->matrix_open = cuda_matrix_open;
    ops->matrix_close = cuda_matrix_close;
    ops->begin = cuda_begin;
    ops->end = cuda_end;
    ops->embed = cuda_embed;
    ops->rmsnorm = cuda_rmsnorm;
    ops->rmsnorm_rows = cuda_rmsnorm_rows;
    ops->matmul = cuda_matmul;
    ops->matmul_slices = cuda_matmul_slices;
    ops->matmul_swiglu = cuda_matmul_swiglu;
    ops->attention_store = cuda_attention_store;
    ops->attention = cuda_attention;
    ops->tree_sum = cuda_tree_sum;
    ops->residual_norm = cuda_residual_norm;
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
        cudaGetLastError();
        return refuse(err, ERR_UNSUPPORTED, "no GPU can be used here; --device cpu runs without",
                      status);
    }
    if (device == -1) device = be->options.device = be->options.rank % n_devices;
    if (device < 0 || device >= n_devices) {
        return error_set(err, ERR_UNSUPPORTED, "there is no GPU %d: this machine has %d, from 0 on",
                         device, n_devices);
    }
    status = cudaSetDevice(device);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
    if (status != cudaSuccess) return refuse(err, ERR_UNAVAILABLE, "opening the GPU", status);
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
    cuda_synthetic_prepare(be);
    cuda_attention_prepare(be);
    cuda_attention_store_prepare(be);
    cuda_answer_prepare(be);
    return report(be, err);
}

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
             options->weights == CUDA_WEIGHTS_FP8 ? "fp8" : "bf16",
             options->all_reduce ? "-allreduce" : "");
    snprintf(be->kernels, sizeof be->kernels, "sm%d", be->sm);
    fill_ops(be);
    status = cudaStreamCreateWithFlags(&be->stream, cudaStreamNonBlocking);
    if (status == cudaSuccess) {
        status = cudaEventCreateWithFlags(&be->plan_is_over, cudaEventDisableTiming);
    }
    if (status != cudaSuccess) {
        rc = refuse(err, ERR_UNAVAILABLE, "opening the GPU", status);
        goto out;
    }
    *out = &be->base;
    be = NULL;
out:
    if (be) cuda_close(&be->base);
    return rc;
}
