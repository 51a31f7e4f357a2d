/* Helpers that the programs which time kernels share. */
#pragma once

#include <vector>

#include "tests/gpu/rig.h"

/* Milliseconds that the device takes for what `launch` gives its stream. */
template <typename LAUNCH> static inline float device_ms(struct rig *rig, LAUNCH launch)
{
    struct backend_cuda *be = backend_cuda_of(rig->cuda);
    struct error err = {};
    cudaEvent_t begin, end;
    float ms = 0;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin, be->stream);
    launch();
    cudaEventRecord(end, be->stream);
    MUST(cuda_finish(be, &err), err);
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms;
}

/* GB/s of a copy on the device, which counts both the bytes read and the bytes written. */
static inline double copy_rate(struct rig *rig)
{
    enum { TIMES = 20 };
    const size_t bytes = static_cast<size_t>(512) << 20;
    void *from = device_open(rig, NULL, bytes), *to = device_open(rig, NULL, bytes);
    cudaStream_t stream = backend_cuda_of(rig->cuda)->stream;
    auto copies = [&] {
        for (int i = 0; i < TIMES; i++)
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    };
    device_ms(rig, copies);
    double ms = static_cast<double>(device_ms(rig, copies));
    device_close(rig, from), device_close(rig, to);
    return 2.0 * TIMES * static_cast<double>(bytes) / ms * 1e-6;
}

/* The numbers 1 to most of a list with commas between; others are left out. */
static inline std::vector<int> counts_of(const char *text, int most)
{
    std::vector<int> counts;
    for (const char *at = text; *at; at += strcspn(at, ",")) {
        at += *at == ',';
        int n = atoi(at);
        if (n > 0 && n <= most) counts.push_back(n);
    }
    return counts;
}
