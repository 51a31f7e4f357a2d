/* Definitions that the kernels of the CUDA backend share. The files are compiled with --fmad=false:
 * a product and a sum are one fused operation only where the source says __fmaf_rn, so that no
 * compiler decides about the bits. Outside of the tensor cores everything has the order of IEEE
 * operations that is written. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "model/numerics/exp_coefficients.h"
#include "model/numerics/gelu_coefficients.h"

#ifndef CUDA_EMULATED

#define CUDA_DYNAMIC_SHARED(type, name)                               \
    extern __shared__ __align__(128) unsigned char outrider_shared[]; \
    type *name = reinterpret_cast<type *>(outrider_shared)

/* d += a b for a tile of 16 x 8 over 16 k, bf16 in, fp32 sums; one warp. With g = lane / 4 and c =
 * lane % 4: a[0] row g, k 2c and 2c + 1; a[1] row g + 8; a[2], a[3] the same with k + 8; b[0]
 * column g, k 2c and 2c + 1; b[1] k + 8; d[0], d[1] row g, columns 2c and 2c + 1; d[2], d[3] row g
 * + 8 (PTX ISA, mma.m16n8k16). */
static __device__ __forceinline__ void mma_bf16_16x8x16(float d[4], const uint32_t a[4],
                                                        const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Copies 16 bytes from global to shared memory asynchronously; zeros if not valid. Both addresses
 * are aligned to 16. */
static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid)
{
    uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most N of the committed groups are under way. */
template <int N> static __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* After this a kernel may read what earlier kernels of the stream wrote. */
static __device__ __forceinline__ void grid_dependency_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

/* From here on the next kernel of the stream may start and run up to its own wait. */
static __device__ __forceinline__ void grid_dependency_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif

enum { WARP = 32 };
#define ALL_LANES 0xffffffffu

static __device__ __forceinline__ float bf16_to_float(uint16_t h)
{
    return __uint_as_float(static_cast<uint32_t>(h) << 16);
}

/* Rounds to nearest even; a NaN stays one. num_float_to_bf16 of numerics.h, bit for bit. */
static __device__ __forceinline__ uint16_t float_to_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    return static_cast<uint32_t>(float_to_bf16(high)) << 16 | float_to_bf16(low);
}

/* philox4x32 of base/rng.c in place: Philox4x32-10, key = seed. */
static __device__ __forceinline__ void device_philox(uint32_t counter[4], uint64_t seed)
{
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * counter[0];
        uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * counter[2];
        counter[0] = static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0;
        counter[1] = static_cast<uint32_t>(p1);
        counter[2] = static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1;
        counter[3] = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* num_exp of numerics.h, bit for bit (with --fmad=false). */
static __device__ __forceinline__ float device_exp(float x)
{
    if (!(x >= EXP_LEAST)) return x < 0 ? 0.0f : x;
    if (!(x <= EXP_MOST)) return __uint_as_float(0x7f800000u);
    float n = (x * EXP_LOG2_E + EXP_ROUND) - EXP_ROUND;
    float r = x - n * EXP_LN2;
    r = r - n * EXP_LN2_LOW;
    float y;
    EXP_POLYNOMIAL(y, r);
    int whole = static_cast<int>(n), half = whole >> 1;
    return y * __uint_as_float(static_cast<uint32_t>(half + 127) << 23) *
           __uint_as_float(static_cast<uint32_t>(whole - half + 127) << 23);
}

/* num_tanh of numerics.h, bit for bit. */
static __device__ __forceinline__ float device_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + device_exp(2.0f * x));
}

/* num_gelu_tanh of numerics.h, bit for bit. */
static __device__ __forceinline__ float device_gelu_tanh(float x)
{
    return x / (1.0f + device_exp(GELU_SLOPE * (x + GELU_CUBE * (x * x * x))));
}
