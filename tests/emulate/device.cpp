/* The properties of the emulated device, and the names of errors. */
#include <cstdio>
#include <cstdlib>

#include "internal.h"

namespace
{

struct error_name {
    cudaError_t error;
    const char *name, *text;
};

#define NAME(error, text)   \
    {                       \
        error, #error, text \
    }
const error_name error_names[] = {
    NAME(cudaSuccess, "no error"),
    NAME(cudaErrorInvalidValue, "invalid argument"),
    NAME(cudaErrorMemoryAllocation, "out of memory"),
    NAME(cudaErrorInitializationError, "initialization error"),
    NAME(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAME(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    NAME(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAME(cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"),
    NAME(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAME(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAME(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAME(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAME(cudaErrorNotReady, "device not ready"),
    NAME(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAME(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    NAME(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is already mapped"),
    NAME(cudaErrorHostMemoryNotRegistered,
         "pointer does not correspond to a registered memory region"),
    NAME(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAME(cudaErrorNotPermitted, "operation not permitted"),
    NAME(cudaErrorNotSupported, "operation not supported"),
    NAME(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAME(cudaErrorStreamCaptureInvalidated,
         "operation failed due to a previous error during capture"),
    NAME(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate captures"),
    NAME(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    NAME(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAME(cudaErrorStreamCaptureIsolation, "dependency on uncaptured work in another stream"),
    NAME(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capture"),
    NAME(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capture"),
    NAME(cudaErrorStreamCaptureWrongThread, "attempt to end a capture from another thread"),
    NAME(cudaErrorUnknown, "unknown error")};
#undef NAME

const error_name &find_name(cudaError_t error)
{
    for (const error_name &entry : error_names) {
        if (entry.error == error) return entry;
    }
    return find_name(cudaErrorUnknown);
}

/* Reads EMULATED_CAPABILITY, "9.0" unless set. */
void capability(int *major, int *minor)
{
    const char *text = getenv("EMULATED_CAPABILITY");
    if (!text || sscanf(text, "%d.%d", major, minor) != 2) {
        *major = 9;
        *minor = 0;
    }
}

constexpr int shared_per_multiprocessor = 228 * 1024;
constexpr int l2_bytes = 50 << 20;
constexpr int n_multiprocessors = 132;

} // namespace

const char *cudaGetErrorName(cudaError_t error)
{
    return find_name(error).name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return find_name(error).text;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return emulate_error(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device != 0) return emulate_error(cudaErrorInvalidDevice);
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "emulated");
    size_t free_bytes;
    cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
    capability(&properties->major, &properties->minor);
    properties->sharedMemPerBlock = EMULATE_SHARED_DEFAULT;
    properties->sharedMemPerBlockOptin = EMULATE_SHARED_MAX;
    properties->sharedMemPerMultiprocessor = shared_per_multiprocessor;
    properties->warpSize = EMULATE_WARP;
    properties->maxThreadsPerBlock = int(EMULATE_BLOCK_MAX);
    properties->multiProcessorCount = n_multiprocessors;
    properties->l2CacheSize = l2_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = properties.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = int(properties.sharedMemPerBlock);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = int(properties.sharedMemPerBlockOptin);
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = shared_per_multiprocessor;
        break;
    case cudaDevAttrWarpSize:
        *value = properties.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *value = properties.l2CacheSize;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        break;
    case cudaDevAttrCooperativeLaunch:
        *value = 0;
        break;
    case cudaDevAttrMaxPersistingL2CacheSize:
        *value = 0;
        break;
    default:
        return emulate_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
