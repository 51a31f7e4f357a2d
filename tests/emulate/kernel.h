/* Definitions for kernels beside the intrinsics of intrinsics.h, which concern one thread alone:
 * qualifiers, the thread's indices, exchanges between threads, tensor cores, launches. kernel.cpp
 * says how blocks run. */
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* One block runs at a time, so a block's memory can be a static. It holds what the last block left
 * there. */
#define __shared__ static

/* The real build defines it with `extern __shared__`. Aligned to 128 bytes. */
#define CUDA_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emulate_shared())

/* The indices of the running thread. They are plain globals because one lock, which all host
 * threads share, is held while kernels run. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* The place of an exchange in the source, for reports and to tell barriers apart. */
struct emulate_site {
    const char *file;
    int line;
    static constexpr emulate_site here(const char *file = __builtin_FILE(),
                                       int line = __builtin_LINE())
    {
        return {file, line};
    }
};

enum emulate_exchange {
    EMULATE_NOTHING,
    EMULATE_SYNCWARP,
    EMULATE_SHUFFLE,
    EMULATE_BALLOT,
    EMULATE_ANY,
    EMULATE_ALL,
    EMULATE_MMA,
    EMULATE_BARRIER,
    EMULATE_BARRIER_OR,
    EMULATE_BARRIER_AND,
    EMULATE_BARRIER_COUNT
};

void *emulate_shared();
/* Waits until all lanes of mask have reached the same kind of exchange; `source` is the lane to
 * read from. */
uint64_t emulate_warp(emulate_exchange kind, unsigned mask, uint64_t value, int source,
                      emulate_site site);
int emulate_block(emulate_exchange kind, int predicate, emulate_site site);
unsigned emulate_active();
int emulate_lane();
void emulate_yield();
/* Prints what went wrong and where in one line, then aborts, because a kernel's fault cannot be
 * returned to anybody. */
void emulate_fault(const char *what, emulate_site site);

/* --- Barriers and votes --- */

inline void __syncthreads(emulate_site site = emulate_site::here())
{
    emulate_block(EMULATE_BARRIER, 0, site);
}

inline int __syncthreads_or(int predicate, emulate_site site = emulate_site::here())
{
    return emulate_block(EMULATE_BARRIER_OR, predicate, site);
}

inline int __syncthreads_and(int predicate, emulate_site site = emulate_site::here())
{
    return emulate_block(EMULATE_BARRIER_AND, predicate, site);
}

inline int __syncthreads_count(int predicate, emulate_site site = emulate_site::here())
{
    return emulate_block(EMULATE_BARRIER_COUNT, predicate, site);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, emulate_site site = emulate_site::here())
{
    emulate_warp(EMULATE_SYNCWARP, mask, 0, 0, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulate_site site = emulate_site::here())
{
    return unsigned(emulate_warp(EMULATE_BALLOT, mask, predicate != 0, 0, site));
}

inline int __any_sync(unsigned mask, int predicate, emulate_site site = emulate_site::here())
{
    return int(emulate_warp(EMULATE_ANY, mask, predicate != 0, 0, site));
}

inline int __all_sync(unsigned mask, int predicate, emulate_site site = emulate_site::here())
{
    return int(emulate_warp(EMULATE_ALL, mask, predicate != 0, 0, site));
}

inline void __nanosleep(unsigned)
{
    emulate_yield();
}

inline unsigned __activemask()
{
    return emulate_active();
}

/* --- Shuffles: 4 and 8 byte numbers --- */

template <class T> T emulate_shuffle(unsigned mask, T value, int source, emulate_site site)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles take int, unsigned, float, double and their 64-bit kin");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emulate_warp(EMULATE_SHUFFLE, mask, bits, source, site);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              emulate_site site = emulate_site::here())
{
    int first = emulate_lane() & ~(width - 1);
    return emulate_shuffle(mask, value, first + (lane & (width - 1)), site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  emulate_site site = emulate_site::here())
{
    int lane = emulate_lane(), source = lane ^ bits;
    int past = (lane & ~(width - 1)) + width; /* lower segments may be read, higher ones not */
    return emulate_shuffle(mask, value, source < past ? source : lane, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulate_site site = emulate_site::here())
{
    int lane = emulate_lane(), source = lane + int(delta);
    int past = (lane & ~(width - 1)) + width;
    return emulate_shuffle(mask, value, source < past ? source : lane, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulate_site site = emulate_site::here())
{
    int lane = emulate_lane(), source = lane - int(delta);
    return emulate_shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane, site);
}

/* --- Tensor cores ---
 * D[16][8] += A[16][16] B[16][8], bf16 in, float sums
 * (mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32). Fragments (PTX ISA, "Matrix Fragments for
 * mma.m16n8k16 with floating point type"), with g = lane / 4 and t = lane % 4; of two bf16 in a
 * register the lower half has the lower k:
 *   a[0] A[g][2t, 2t+1]     a[1] A[g+8][2t, 2t+1]  a[2] A[g][2t+8, 2t+9]  a[3] A[g+8][2t+8, 2t+9]
 *   b[0] B[2t, 2t+1][g]     b[1] B[2t+8, 2t+9][g]
 *   d[0], d[1] D[g][2t, 2t+1]                      d[2], d[3] D[g+8][2t, 2t+1]
 * Here products are exact and are added to D in float, k ascending. A tensor core keeps another
 * order and fewer bits, so results agree only within rounding. All 32 lanes take part. */
struct emulate_fragments {
    float *d;
    const uint32_t *a, *b;
};

inline void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2],
                             emulate_site site = emulate_site::here())
{
    emulate_fragments fragments = {d, a, b};
    emulate_warp(EMULATE_MMA, 0xffffffffu, reinterpret_cast<uint64_t>(&fragments), 0, site);
}

/* --- Asynchronous copies (cp.async) ---
 * 16 bytes, both addresses multiples of 16; zeros when not valid. The bytes arrive as late as the
 * promise allows, in copy_async_wait, and are NaN until then. */
void emulate_copy(void *shared, const void *global, bool valid, emulate_site site);
void emulate_copy_commit();
void emulate_copy_wait(int n_left); /* all but this thread's last n_left groups have arrived */

inline void copy_async_16(void *shared, const void *global, bool valid = true,
                          emulate_site site = emulate_site::here())
{
    emulate_copy(shared, global, valid, site);
}

inline void copy_async_commit()
{
    emulate_copy_commit();
}

template <int n_left> void copy_async_wait()
{
    emulate_copy_wait(n_left);
}

/* --- Barriers in shared memory and bulk copies (matmul/bulk.cuh, bulk.cpp) --- */

void barrier_init(uint64_t *bar, int n_arrivals, emulate_site site = emulate_site::here());
void barrier_arrive(uint64_t *bar, emulate_site site = emulate_site::here());
void barrier_expect(uint64_t *bar, uint32_t bytes, emulate_site site = emulate_site::here());
void barrier_wait(uint64_t *bar, int phase, emulate_site site = emulate_site::here());
void bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
               emulate_site site = emulate_site::here());
void bulk_prefetch(const void *global, uint32_t bytes, emulate_site site = emulate_site::here());

inline void barriers_are_ready()
{
}

inline void bulk_sees_stores()
{
}

/* Kernels do not overlap here. But if a kernel may start before its predecessor has ended and no
 * thread of it ever waits for that, it is a fault, because nothing would keep the stream's
 * order. */
void emulate_dependency_wait();

inline void grid_dependency_wait()
{
    emulate_dependency_wait();
}

inline void grid_dependency_launch()
{
}

/* --- Launches --- */

struct emulate_launch {
    dim3 grid, block;
    size_t shared_bytes;
    const void *function;
    const char *text;     /* as the source writes it, for reports */
    bool may_start_early; /* programmatic stream serialization */
    std::function<void()> thread;
};

/* Runs all blocks. The launch has been checked. */
void emulate_run(const emulate_launch &launch);
/* launch.cpp: checks the configuration and gives the launch to the stream. */
cudaError_t emulate_submit(const cudaLaunchConfig_t *config, emulate_launch launch);

template <class... Parameters, class... Arguments>
cudaError_t emulate_launch_kernel(const char *text, const cudaLaunchConfig_t *config,
                                  void (*kernel)(Parameters...), Arguments &&...arguments)
{
    std::tuple<std::decay_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
    emulate_launch launch = {config->gridDim,
                             config->blockDim,
                             config->dynamicSmemBytes,
                             reinterpret_cast<const void *>(kernel),
                             text,
                             false,
                             [kernel, copies] { std::apply(kernel, copies); }};
    return emulate_submit(config, std::move(launch));
}

#define cudaLaunchKernelEx(...) emulate_launch_kernel(#__VA_ARGS__, __VA_ARGS__)
