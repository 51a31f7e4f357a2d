/* wgmma (sm_90a): one product of 64 outputs x N tokens x 16 k by the four warps of a warpgroup,
 * with the weights of operand A in registers and the tokens of operand B in shared memory.
 *
 * A chain of wgmma gives the bits of the same chain of mma.sync m16n8k16: each warp computes its 16
 * outputs for all N tokens. That is a property of the tensor cores, not of the instruction set, so
 * a backend compares the two when it is opened (matmul_wgmma.cu), and the emulated device, which
 * has mma alone, runs the same kernel over the same operands.
 *
 * Operand B: [N tokens][64 k], 128 bytes a token, in the 128-byte swizzle: the 16-byte piece p of
 * token t lies at piece p ^ (t & 7). N is a multiple of 8; the address is a multiple of 1024. */
#pragma once

#include "model/backend/cuda/device.cuh"

enum {
    WGMMA_K = 16,
    WGMMA_STEPS = 4, /* products over the 64 k of operand B */
    WGMMA_ROW_BYTES = 128
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(CUDA_EMULATED)
#define HAS_WGMMA 1

/* Lets the wgmma that follow see what was written to registers before. */
static __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits until at most LEFT of the committed groups are under way. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LEFT) : "memory");
}

/* The shared memory descriptor of operand B (PTX ISA, "Matrix Descriptor Format"): the address and
 * the 1024 bytes from 8 tokens to the next 8, in units of 16 bytes; a 128-byte swizzle. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(const uint8_t *tokens)
{
    uint64_t at = static_cast<uint64_t>(__cvta_generic_to_shared(tokens));
    return (at & 0x3ffff) >> 4 | static_cast<uint64_t>(1) << 16 |
           static_cast<uint64_t>(1024 >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}

/* True in one thread of a warp that is together; the compiler knows that it is one. */
static __device__ __forceinline__ bool elect_one()
{
    uint32_t is_mine;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_mine));
    return is_mine != 0;
}

/* Tells the compiler that sums change here: between a wgmma and the wait for it they do so without
 * its knowledge. No instruction. */
template <int N> static __device__ __forceinline__ void wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i]) : : "memory");
    }
}

/* By all warps of a warpgroup: a thread has N registers from here on. */
template <int N> static __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}

template <int N> static __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}

template <int N> struct wgmma_shape;

#define WGMMA_D8(i)                                                                     \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define WGMMA_D16(i) WGMMA_D8(i), WGMMA_D8((i) + 8)
#define WGMMA_D32(i) WGMMA_D16(i), WGMMA_D16((i) + 16)
#define WGMMA_D64(i) WGMMA_D32(i), WGMMA_D32((i) + 32)
#define WGMMA_T8     "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_T16    WGMMA_T8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_T32                                                                        \
    WGMMA_T16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
              "%30, %31"
#define WGMMA_T64                                                                        \
    WGMMA_T32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
              "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
              "%60, %61, %62, %63"

/* d = a b, or d += a b. REST: the numbers of the operands after d. */
#define WGMMA_SHAPE(n, text, a0, a1, a2, a3, b, adds_, ...)                                       \
    template <> struct wgmma_shape<n> {                                                           \
        static __device__ __forceinline__ void multiply(float (&d)[(n) / 2], const uint32_t a[4], \
                                                        uint64_t descriptor, bool adds)           \
        {                                                                                         \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #adds_ ", 0;"                          \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" text        \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, 0;}"     \
                         : __VA_ARGS__                                                            \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor),           \
                           "r"(static_cast<int>(adds)));                                          \
        }                                                                                         \
    };
WGMMA_SHAPE(64, WGMMA_T32, 32, 33, 34, 35, 36, 37, WGMMA_D32(0))
WGMMA_SHAPE(128, WGMMA_T64, 64, 65, 66, 67, 68, 69, WGMMA_D64(0))

/* d (+)= a b for the 16 k of `step`; it is under way until wgmma_wait. d[4 j + i] is d[i] of the
 * mma of the 8 tokens j. */
template <int N>
static __device__ __forceinline__ void wgmma_multiply(float (&d)[N / 2], const uint32_t a[4],
                                                      const uint8_t *tokens, int step, bool adds)
{
    wgmma_shape<N>::multiply(d, a, wgmma_descriptor(tokens) + static_cast<uint64_t>(2 * step),
                             adds);
}

#elif defined(CUDA_EMULATED)
#define HAS_WGMMA 1

static inline void wgmma_fence()
{
}

static inline void wgmma_commit()
{
}

template <int LEFT> static inline void wgmma_wait()
{
}

template <int N> static inline void wgmma_hold(float (&d)[N])
{
    (void)d;
}

static inline bool elect_one()
{
    return threadIdx.x % WARP == 0;
}

template <int N> static inline void registers_give()
{
}

template <int N> static inline void registers_take()
{
}

template <int N>
static inline void wgmma_multiply(float (&d)[N / 2], const uint32_t a[4], const uint8_t *tokens,
                                  int step, bool adds)
{
    int lane = static_cast<int>(threadIdx.x) % WARP, token = lane / 4, c = lane % 4;
    for (int j = 0; j < N / 8; j++) {
        const uint8_t *row = tokens + (8 * j + token) * WGMMA_ROW_BYTES;
        uint32_t b[2];
        for (int half = 0; half < 2; half++) {
            int piece = (2 * step + half) ^ token;
            b[half] = *reinterpret_cast<const uint32_t *>(row + piece * 16 + c * 4);
        }
        for (int i = 0; !adds && i < 4; i++) {
            d[4 * j + i] = 0;
        }
        mma_bf16_16x8x16(d + 4 * j, a, b);
    }
}
#endif
