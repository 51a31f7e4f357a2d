/* Checks launches against the device's limits when they are given to a stream, as CUDA does: a
 * refused launch fails at the call and never runs. */
#include <map>

#include "internal.h"
#include "kernel.h"

namespace
{

std::map<const void *, size_t> shared_limits; /* of kernels with the attribute */

cudaError_t check_launch(const cudaLaunchConfig_t *config, const emulate_launch &launch)
{
    dim3 g = launch.grid, b = launch.block;
    if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0 || g.x > 0x7fffffffu ||
        g.y > 65535 || g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64 ||
        b.x * b.y * b.z > EMULATE_BLOCK_MAX) {
        return emulate_error(cudaErrorInvalidConfiguration, launch.text);
    }
    auto limit = shared_limits.find(launch.function);
    if (launch.shared_bytes >
        (limit == shared_limits.end() ? EMULATE_SHARED_DEFAULT : limit->second)) {
        return emulate_error(cudaErrorInvalidValue, launch.text);
    }
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute &a = config->attrs[i];
        bool has_cluster = a.id == cudaLaunchAttributeClusterDimension &&
                           a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z != 1;
        if (has_cluster || (a.id == cudaLaunchAttributeCooperative && a.val.cooperative)) {
            return emulate_error(cudaErrorNotSupported, launch.text);
        }
    }
    return cudaSuccess;
}

} // namespace

cudaError_t emulate_submit(const cudaLaunchConfig_t *config, emulate_launch launch)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    cudaError_t error = check_launch(config, launch);
    if (error != cudaSuccess) return error;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute &a = config->attrs[i];
        launch.may_start_early |= a.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                                  a.val.programmaticStreamSerializationAllowed;
    }
    return emulate_give(config->stream, [launch] { emulate_run(launch); });
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) { /* no caches here */
        return value < -1 || value > 100 ? emulate_error(cudaErrorInvalidValue) : cudaSuccess;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return emulate_error(cudaErrorInvalidValue);
    }
    if (value < 0 || size_t(value) > EMULATE_SHARED_MAX)
        return emulate_error(cudaErrorInvalidValue);
    shared_limits[function] = size_t(value);
    return cudaSuccess;
}
