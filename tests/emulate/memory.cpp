/* Memory of the emulated device, and copies. Device memory is the process's own, but as on a device
 * it is not zeroed at first (0xff: NaN in every float format), ends at a page that is unmapped by
 * cudaFree, and has guards that are checked after every launch. With EMULATED_MEMORY=protected the
 * host cannot touch it at all: outside of launches and copies its pages are closed, which costs
 * time. A copy is refused unless both ends are of the kind that it names. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

#include "internal.h"

namespace
{

constexpr size_t page = 4096, guard = 256;

struct allocation {
    size_t bytes;
    unsigned char *base;
    size_t mapped;
};

typedef std::map<uintptr_t, allocation> allocations;
allocations device_memory, host_memory; /* by first address; host: pinned or registered */
size_t device_bytes;
int n_accesses;
thread_local cudaError_t last_error = cudaSuccess;

bool is_protected()
{
    static const bool is = [] {
        const char *text = getenv("EMULATED_MEMORY");
        return text && strcmp(text, "protected") == 0;
    }();
    return is;
}

void protect(const allocation &a, bool is_open)
{
    if (is_protected()) mprotect(a.base, a.mapped, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

size_t total_bytes()
{
    const char *text = getenv("EMULATED_MEMORY_MIB");
    return (text ? strtoull(text, nullptr, 10) : 8192) << 20;
}

/* The allocation that contains the first byte, or NULL. */
const allocation *find(const allocations &all, const void *pointer, size_t bytes, bool *is_inside)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
    auto next = all.upper_bound(at);
    if (next == all.begin()) return nullptr;
    auto found = std::prev(next);
    size_t offset = at - found->first;
    if (offset >= found->second.bytes) return nullptr;
    *is_inside = bytes <= found->second.bytes - offset;
    return &found->second;
}

bool is_right_end(const void *pointer, size_t bytes, bool must_be_device, bool is_any)
{
    bool is_inside = true;
    bool is_device = find(device_memory, pointer, bytes, &is_inside) != nullptr;
    return is_inside && (is_any || is_device == must_be_device);
}

} // namespace

std::recursive_mutex &emulate_mutex()
{
    static std::recursive_mutex mutex;
    return mutex;
}

cudaError_t emulate_error(cudaError_t error, const char *text)
{
    if (error != cudaSuccess) last_error = error;
    if (text) fprintf(stderr, "emulate: %s: %s\n", cudaGetErrorName(error), text);
    return error;
}

cudaError_t cudaGetLastError()
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

emulate_memory_access::emulate_memory_access()
{
    if (n_accesses++) return;
    for (const auto &entry : device_memory)
        protect(entry.second, true);
}

emulate_memory_access::~emulate_memory_access()
{
    if (--n_accesses) return;
    for (const auto &entry : device_memory)
        protect(entry.second, false);
}

void emulate_guard_write(unsigned char *at, size_t bytes)
{
    memset(at, 0xa5, bytes);
}

bool emulate_guard_is_intact(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0xa5) return false;
    }
    return true;
}

bool emulate_check_guards()
{
    for (const auto &entry : device_memory) {
        const unsigned char *first = entry.second.base + guard;
        bool is_before = !emulate_guard_is_intact(first - guard, guard);
        if (!is_before && emulate_guard_is_intact(first + entry.second.bytes, guard)) continue;
        fprintf(stderr, "emulate: written %s the %zu bytes of device memory at %p\n",
                is_before ? "before" : "past", entry.second.bytes,
                static_cast<const void *>(first));
        return false;
    }
    return true;
}

bool emulate_is_pinned(const void *pointer)
{
    bool is_inside;
    return find(host_memory, pointer, 1, &is_inside) != nullptr;
}

bool emulate_is_device(const void *pointer)
{
    bool is_inside;
    return find(device_memory, pointer, 1, &is_inside) != nullptr;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    *pointer = nullptr;
    cudaError_t error = emulate_check_capture();
    if (error != cudaSuccess || bytes == 0) return error;
    if (bytes > total_bytes() - device_bytes) return emulate_error(cudaErrorMemoryAllocation);
    size_t mapped = (guard + bytes + guard + page - 1) / page * page;
    void *base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return emulate_error(cudaErrorMemoryAllocation);
    allocation made = {bytes, static_cast<unsigned char *>(base), mapped};
    emulate_guard_write(made.base, guard);
    memset(made.base + guard, 0xff, bytes);
    emulate_guard_write(made.base + guard + bytes, guard);
    protect(made, n_accesses > 0);
    *pointer = made.base + guard;
    device_memory[reinterpret_cast<uintptr_t>(*pointer)] = made;
    device_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    cudaError_t error = emulate_check_capture();
    if (error != cudaSuccess || !pointer) return error;
    emulate_drain_all();
    auto found = device_memory.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == device_memory.end()) {
        return emulate_error(cudaErrorInvalidValue, "cudaFree of what is not device memory");
    }
    {
        emulate_memory_access access;
        if (!emulate_check_guards()) abort();
    }
    munmap(found->second.base, found->second.mapped);
    device_bytes -= found->second.bytes;
    device_memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    *total = total_bytes();
    *free_bytes = *total - device_bytes;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    *pointer = nullptr;
    cudaError_t error = emulate_check_capture();
    if (error != cudaSuccess || bytes == 0) return error;
    *pointer = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!*pointer) return emulate_error(cudaErrorMemoryAllocation);
    memset(*pointer, 0xff, bytes);
    host_memory[reinterpret_cast<uintptr_t>(*pointer)] = {
        bytes, static_cast<unsigned char *>(*pointer), bytes};
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes, unsigned flags)
{
    return cudaHostAlloc(pointer, bytes, flags);
}

cudaError_t cudaFreeHost(void *pointer)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    cudaError_t error = emulate_check_capture();
    if (error != cudaSuccess || !pointer) return error;
    auto found = host_memory.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == host_memory.end() || !found->second.base) {
        return emulate_error(cudaErrorInvalidValue,
                             "cudaFreeHost of what cudaHostAlloc did not give");
    }
    emulate_drain_all();
    host_memory.erase(found);
    free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    if (!pointer || bytes == 0) return emulate_error(cudaErrorInvalidValue);
    if (emulate_is_pinned(pointer)) return emulate_error(cudaErrorHostMemoryAlreadyRegistered);
    host_memory[reinterpret_cast<uintptr_t>(pointer)] = {bytes, nullptr, 0};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    auto found = host_memory.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == host_memory.end() || found->second.base) {
        return emulate_error(cudaErrorHostMemoryNotRegistered);
    }
    emulate_drain_all();
    host_memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    if (!emulate_is_pinned(host)) return emulate_error(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t emulate_check_copy(const void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    bool is_any = kind == cudaMemcpyDefault;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes == 0) return cudaSuccess;
    if (!is_right_end(dst, bytes, to_device, is_any)) {
        return emulate_error(cudaErrorInvalidValue,
                             "a copy's target is not of its kind or too short");
    }
    if (!is_right_end(src, bytes, from_device, is_any)) {
        return emulate_error(cudaErrorInvalidValue,
                             "a copy's source is not of its kind or too short");
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    cudaError_t error = emulate_check_capture();
    if (error == cudaSuccess) error = emulate_drain_legacy();
    if (error == cudaSuccess) error = emulate_check_copy(dst, src, bytes, kind);
    if (error != cudaSuccess || bytes == 0) return error;
    emulate_memory_access access;
    memmove(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    cudaError_t error = emulate_check_capture();
    if (error == cudaSuccess) error = emulate_drain_legacy();
    if (error == cudaSuccess) error = emulate_check_copy(dst, dst, bytes, cudaMemcpyDeviceToDevice);
    if (error != cudaSuccess || bytes == 0) return error;
    emulate_memory_access access;
    memset(dst, value, bytes);
    return cudaSuccess;
}
