/* What the emulator's own files share. */
#pragma once

#include <mutex>

#include "cuda_runtime.h"

constexpr int EMULATE_WARP = 32;
constexpr unsigned EMULATE_BLOCK_MAX = 1024;
constexpr size_t EMULATE_SHARED_DEFAULT = 48 * 1024; /* of a launch without the attribute */
constexpr size_t EMULATE_SHARED_MAX = 227 * 1024;    /* of sm_90 with it */

/* One lock for all: a launch, a copy, an allocation. */
std::recursive_mutex &emulate_mutex();

/* Keeps the error for cudaGetLastError; the text, if any, goes to stderr. */
cudaError_t emulate_error(cudaError_t error, const char *text = nullptr);

/* While one lives, device memory may be touched. The lock is held. */
struct emulate_memory_access {
    emulate_memory_access();
    ~emulate_memory_access();
    emulate_memory_access(const emulate_memory_access &) = delete;
    emulate_memory_access &operator=(const emulate_memory_access &) = delete;
};

/* Aborts if a kernel has written beside a device allocation. */
void emulate_check_guards(const char *after);
/* Whether both ends are what the kind says and long enough. */
cudaError_t emulate_check_copy(const void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
/* Whether the host memory is page-locked, so that asynchronous copies are. */
bool emulate_is_pinned(const void *pointer);
bool emulate_is_device(const void *pointer);

/* The bytes before and after memory must be as written. */
void emulate_guard_write(unsigned char *at, size_t bytes);
bool emulate_guard_is_intact(const unsigned char *at, size_t bytes);

typedef std::function<void()> emulate_work;

/* The stream runs the work when somebody waits for it; a capture keeps it instead. Errors: those of
 * captures, cudaErrorInvalidResourceHandle. */
cudaError_t emulate_give(cudaStream_t stream, emulate_work work);
/* Runs what has been given to all streams (cudaDeviceSynchronize). */
void emulate_drain_all();
/* cudaSuccess, or the error of a call that a capture of this thread forbids; the capture is then lost. */
cudaError_t emulate_check_capture();
/* Runs what the legacy stream waits for: the blocking streams and itself. */
cudaError_t emulate_drain_legacy();
