/* Functions that the emulator's own files share. */
#pragma once

#include <functional>
#include <mutex>

#include "runtime_api.h"

constexpr int EMULATE_WARP = 32;
constexpr unsigned EMULATE_BLOCK_MAX = 1024;
/* Dynamic shared memory of a launch whose kernel lacks, or has, the attribute (sm_90). */
constexpr size_t EMULATE_SHARED_DEFAULT = 48 * 1024;
constexpr size_t EMULATE_SHARED_MAX = 227 * 1024;

struct emulate_site;

/* The one lock, for launches, copies and allocations. */
std::recursive_mutex &emulate_mutex();

/* Keeps the error for cudaGetLastError; the text, if any, goes to stderr. */
cudaError_t emulate_error(cudaError_t error, const char *text = nullptr);

/* While an object of this type exists, device memory may be touched. The lock is held. */
struct emulate_memory_access {
    emulate_memory_access();
    ~emulate_memory_access();
    emulate_memory_access(const emulate_memory_access &) = delete;
    emulate_memory_access &operator=(const emulate_memory_access &) = delete;
};

/* False, with a line on stderr: something has written outside of a device allocation. */
bool emulate_check_guards();
/* Checks that both addresses are of the kinds that the copy names, and that they have enough
 * memory. */
cudaError_t emulate_check_copy(const void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
/* True if the host memory is page-locked, so that asynchronous copies are. */
bool emulate_is_pinned(const void *pointer);
bool emulate_is_device(const void *pointer);

/* Fills the bytes before or after memory with a pattern, and tells whether it is still there. */
void emulate_guard_write(unsigned char *at, size_t bytes);
bool emulate_guard_is_intact(const unsigned char *at, size_t bytes);

typedef std::function<void()> emulate_work;

/* Queues the work in the stream, which runs it when somebody waits for it. A capture keeps it
 * instead. Errors: those of captures, cudaErrorInvalidResourceHandle. */
cudaError_t emulate_give(cudaStream_t stream, emulate_work work);
/* Runs all work that was given to streams (cudaDeviceSynchronize). */
void emulate_drain_all();
/* cudaSuccess, or the error of a call that a capture of this thread forbids; the capture is then
 * lost. */
cudaError_t emulate_check_capture();
/* Runs what the legacy stream waits for: the blocking streams and itself. */
cudaError_t emulate_drain_legacy();

/* bulk.cpp: lets one bulk copy arrive whose barrier is waited for; false: there is none. */
bool emulate_land_bulk();
/* False: a copy was under way when the block ended. It is forgotten. */
bool emulate_is_bulk_over();
/* kernel.cpp: waits until emulate_wake() is called with the same barrier. */
void emulate_sleep(const uint64_t *bar, emulate_site site);
void emulate_wake(const uint64_t *bar);
bool emulate_is_waited_for(const uint64_t *bar);
