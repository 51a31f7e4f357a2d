/* Checks of the emulator's test; a failure ends the program. */
#pragma once

#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)
#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)

inline cudaLaunchConfig_t config_of(dim3 grid, dim3 block, size_t shared_bytes = 0,
                                    cudaStream_t stream = nullptr)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return config;
}

template <class T> T *device_of(const T *host, size_t n)
{
    T *device = nullptr;
    CHECK_CUDA(cudaMalloc(&device, n * sizeof(T)));
    if (host) CHECK_CUDA(cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

/* Copies back and frees. */
template <class T> void host_of(T *host, T *device, size_t n)
{
    CHECK_CUDA(cudaMemcpy(host, device, n * sizeof(T), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(device));
}

void test_host();
