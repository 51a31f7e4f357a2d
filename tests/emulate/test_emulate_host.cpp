/* Streams, graphs, memory and refused launches of the emulator. */
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "test_emulate.h"

namespace
{

__global__ void add_kernel(float *x, float y, int n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < unsigned(n)) x[i] += y;
}

__global__ void shared_kernel(int *out)
{
    CUDA_DYNAMIC_SHARED(int, words);
    grid_dependency_wait();
    words[0] = 7;
    *out = words[0];
}

/* A stream runs its work when some thread waits for it, not before. */
void streams_run_in_order()
{
    cudaStream_t stream, other;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    float *device = device_of<float>(nullptr, 4), *pinned = nullptr;
    CHECK_CUDA(cudaHostAlloc(&pinned, 4 * sizeof(float), cudaHostAllocDefault));
    CHECK_CUDA(cudaMemsetAsync(device, 0, 4 * sizeof(float), stream));
    cudaLaunchConfig_t config = config_of(1, 32, 0, stream);
    CHECK_CUDA(cudaLaunchKernelEx(&config, add_kernel, device, 1.5f, 4));
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(other, event));
    CHECK_CUDA(cudaMemcpyAsync(pinned, device, 4 * sizeof(float), cudaMemcpyDeviceToHost, other));
    CHECK(pinned[3] != pinned[3]); /* still NaN */
    CHECK_CUDA(cudaStreamSynchronize(other));
    CHECK(pinned[0] == 1.5f && pinned[3] == 1.5f);
    CHECK_CUDA(cudaEventSynchronize(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFreeHost(pinned));
}

cudaGraphExec_t capture(cudaStream_t stream, float *device)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    size_t n_nodes;
    float y = 2;
    cudaLaunchConfig_t config = config_of(2, 32, 0, stream);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK_CUDA(cudaMemsetAsync(device, 0, 64 * sizeof(float), stream));
    CHECK_CUDA(cudaLaunchKernelEx(&config, add_kernel, device, y, 64));
    y = 5;
    CHECK_CUDA(cudaLaunchKernelEx(&config, add_kernel, device, y, 64));
    y = 100; /* arguments have been copied */
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &n_nodes));
    CHECK(n_nodes == 3);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

void graphs_replay_what_was_captured()
{
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<float> host(64, 1.0f);
    float *device = device_of(host.data(), 64);
    cudaGraphExec_t exec = capture(stream, device);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpy(host.data(), device, 64 * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(host[0] == 1 && host[63] == 1); /* capturing runs nothing */
    for (int i = 0; i < 2; i++) {
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_CUDA(cudaMemcpy(host.data(), device, 64 * sizeof(float), cudaMemcpyDeviceToHost));
        CHECK(host[0] == 7 && host[63] == 7);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
}

/* Another stream joins a capture by an event, and the capture must be joined back. */
void captures_follow_events()
{
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaGraph_t graph;
    size_t n_nodes;
    float *device = device_of<float>(nullptr, 4);
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaStreamCreate(&other));
    CHECK_CUDA(cudaEventCreate(&event));
    for (int is_joined = 0; is_joined < 2; is_joined++) {
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK_CUDA(cudaEventRecord(event, stream));
        CHECK_CUDA(cudaStreamWaitEvent(other, event));
        CHECK_CUDA(cudaMemsetAsync(device, 0, 16, other));
        CHECK_CUDA(cudaEventRecord(event, other));
        if (is_joined) CHECK_CUDA(cudaStreamWaitEvent(stream, event));
        cudaError_t error = cudaStreamEndCapture(stream, &graph);
        CHECK(error == (is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    }
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &n_nodes));
    CHECK(n_nodes == 1);
    CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFree(device));
}

void captures_refuse_waiting()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    void *memory = nullptr;
    float x = 0, *device = device_of(&x, 1);
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 3; i++) {
        cudaError_t error = cudaErrorUnknown;
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        if (i == 0) error = cudaMalloc(&memory, 16);
        if (i == 1) error = cudaMemcpy(device, &x, sizeof x, cudaMemcpyHostToDevice);
        if (i == 2) error = cudaStreamSynchronize(stream);
        CHECK(error == cudaErrorStreamCaptureUnsupported);
        CHECK(cudaMemsetAsync(device, 0, 4, stream) == cudaErrorStreamCaptureInvalidated);
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    }
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMalloc(&memory, 16));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK_CUDA(cudaFree(memory));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaStreamDestroy(stream));
}

void launches_beyond_the_device_are_refused()
{
    int *out = device_of<int>(nullptr, 1), host;
    cudaLaunchAttribute serial = {};
    serial.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    serial.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = config_of(1, 1025);
    CHECK(cudaLaunchKernelEx(&config, shared_kernel, out) == cudaErrorInvalidConfiguration);
    config = config_of(dim3(1, 1 << 16), 32);
    CHECK(cudaLaunchKernelEx(&config, shared_kernel, out) == cudaErrorInvalidConfiguration);
    config = config_of(1, 1, 48 * 1024 + 1);
    CHECK(cudaLaunchKernelEx(&config, shared_kernel, out) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    CHECK(cudaFuncSetAttribute(shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               227 * 1024 + 1) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaFuncSetAttribute(shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    227 * 1024));
    config = config_of(1, 1, 227 * 1024);
    config.attrs = &serial;
    config.numAttrs = 1;
    CHECK_CUDA(cudaLaunchKernelEx(&config, shared_kernel, out));
    host_of(&host, out, 1);
    CHECK(host == 7);
}

void copies_stay_inside_their_memory()
{
    float host[4] = {1, 2, 3, 4}, *device = device_of(host, 4), out[4];
    size_t before, after, total;
    CHECK(cudaMemcpy(device + 1, host, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(device, host, 16, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(out, host, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemset(device, 0, 17) == cudaErrorInvalidValue);
    CHECK(cudaFree(device + 1) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaMemGetInfo(&before, &total));
    host_of(out, device, 4);
    CHECK(memcmp(host, out, sizeof host) == 0);
    CHECK_CUDA(cudaMemGetInfo(&after, &total));
    CHECK(after == before + 16);
    CHECK(cudaMalloc(&device, total + 1) == cudaErrorMemoryAllocation && !device);
    device = device_of<float>(nullptr, 4);
    host_of(out, device, 4);
    CHECK(out[0] != out[0] && out[3] != out[3]); /* new memory is NaN */
    CHECK_CUDA(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(host, 4, 0) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK_CUDA(cudaHostUnregister(host));
    CHECK(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
}

/* With EMULATED_MEMORY=protected, which one ctest entry sets, a child that reads device memory
 * dies. */
void the_host_cannot_reach_the_device()
{
    const char *mode = getenv("EMULATED_MEMORY");
    if (!mode || strcmp(mode, "protected") != 0) return;
    volatile float *device = device_of<float>(nullptr, 4);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
        _exit(device[1] == 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
          WTERMSIG(status) == SIGSEGV);
    CHECK_CUDA(cudaFree(const_cast<float *>(device)));
}

void the_device_is_described()
{
    int count, major, n_multiprocessors;
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceCount(&count));
    CHECK(count == 1 && cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(properties.major == major && properties.multiProcessorCount == n_multiprocessors);
    CHECK(strcmp(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice") == 0);
    CHECK(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
}

} // namespace

void test_host()
{
    streams_run_in_order();
    graphs_replay_what_was_captured();
    captures_follow_events();
    captures_refuse_waiting();
    launches_beyond_the_device_are_refused();
    copies_stay_inside_their_memory();
    the_host_cannot_reach_the_device();
    the_device_is_described();
}
