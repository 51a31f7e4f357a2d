/* The little of a CUDA backend that one operation needs: a stream and scratch. For tests of a file of
 * model/backend_cuda_*.cu by itself; where backend_cuda.cu is linked, it is left out and the whole
 * backend is opened instead. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "model/backend/cuda/internal.cuh"

#ifdef CUDA_TEST_SMALL_BACKEND

/* Ends the test: without a device there is nothing to go on with. */
static void need(cudaError_t status, const char *what)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    abort();
}

void *cuda_scratch(struct backend_cuda *be, size_t bytes)
{
    if (bytes > be->scratch_bytes) {
        cudaFree(be->scratch);
        be->scratch = NULL;
        need(cudaMalloc(&be->scratch, bytes), "device memory");
        be->scratch_bytes = bytes;
    }
    return be->scratch;
}

void *cuda_host_scratch(struct backend_cuda *be, size_t bytes)
{
    if (bytes > be->host_scratch_bytes) {
        cudaFreeHost(be->host_scratch);
        be->host_scratch = NULL;
        need(cudaMallocHost(&be->host_scratch, bytes), "pinned memory");
        be->host_scratch_bytes = bytes;
    }
    return be->host_scratch;
}

int cuda_finish(struct backend_cuda *be, struct error *err)
{
    cuda_note(be, cudaStreamSynchronize(be->stream), "waiting for the device");
    if (be->status == cudaSuccess) return 0;
    return error_set(err, ERR_UNAVAILABLE, "%s: %s", be->failed_what,
                     cudaGetErrorString(be->status));
}

static struct backend *test_backend_open(void)
{
    static struct backend_cuda be;
    int major = 0, minor = 0;
    be = {};
    need(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "device");
    need(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "device");
    be.sm = 10 * major + minor;
    need(cudaStreamCreateWithFlags(&be.stream, cudaStreamNonBlocking), "stream");
    return &be.base;
}

static void test_backend_close(struct backend *base)
{
    struct backend_cuda *be = backend_cuda_of(base);
    cudaFree(be->scratch);
    cudaFreeHost(be->host_scratch);
    cudaStreamDestroy(be->stream);
}

#else

static struct backend *test_backend_open(void)
{
    struct backend_cuda_options options = {};
    struct backend *be = NULL;
    struct error err;
    if (backend_cuda_open(&be, &options, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return be;
}

static void test_backend_close(struct backend *be)
{
    be->ops->close(be);
}

#endif
