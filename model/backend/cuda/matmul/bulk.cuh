/* Bulk copies to shared memory and the barriers that they complete (PTX ISA, cp.async.bulk and
 * mbarrier). One thread asks for kilobytes; the copy engine fetches them and tells a barrier. Only
 * kernels that are launched on sm_90 and later call these; elsewhere they compile to nothing.
 *
 * A barrier's phase ends when as many threads as it was made for have arrived and all bytes that
 * were announced have been copied. Phases are numbered 0, 1, 2, ... and waited for by parity: a
 * ring waits for n / stages & 1 at its n-th use. A barrier that is new counts as one whose phase
 * with parity 1 is over. Bytes that a copy has brought may be read by every thread that has waited
 * for its barrier. Where threads have read a stage, arrived at a barrier and another has waited for
 * it, that one may have the stage filled again; where they have written it by stores of their own,
 * each of them calls bulk_sees_stores() first.
 *
 * tests/emulate/bulk.cpp is the same on the emulated device. */
#pragma once

#include "model/backend/cuda/device.cuh"

#ifndef CUDA_EMULATED

#if __CUDA_ARCH__ >= 900
#define BULK_ASM(...) asm volatile(__VA_ARGS__)
#else
#define BULK_ASM(...)
#endif

static __device__ __forceinline__ uint32_t bulk_address(const void *shared)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/* By one thread; barriers_are_ready() and a __syncthreads() follow before any other use. */
static __device__ __forceinline__ void barrier_init(uint64_t *bar, int n_arrivals)
{
    BULK_ASM("mbarrier.init.shared::cta.b64 [%0], %1;"
             :
             : "r"(bulk_address(bar)), "r"(n_arrivals)
             : "memory");
}

/* Makes barriers known to the copy engine. */
static __device__ __forceinline__ void barriers_are_ready()
{
    BULK_ASM("fence.mbarrier_init.release.cluster;" : : : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
    BULK_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(bulk_address(bar)) : "memory");
}

/* Announces bytes of copies, then arrives. */
static __device__ __forceinline__ void barrier_expect(uint64_t *bar, uint32_t bytes)
{
    BULK_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
             :
             : "r"(bulk_address(bar)), "r"(bytes)
             : "memory");
}

/* Waits until the phase with this parity is over. */
static __device__ __forceinline__ void barrier_wait(uint64_t *bar, int phase)
{
    BULK_ASM("{\n"
             ".reg .pred is_over;\n"
             "again:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n"
             "@!is_over bra again;\n"
             "}"
             :
             : "r"(bulk_address(bar)), "r"(phase)
             : "memory");
}

/* Copies bytes, whose number and addresses are multiples of 16, and tells the barrier. */
static __device__ __forceinline__ void bulk_copy(void *shared, const void *global, uint32_t bytes,
                                                 uint64_t *bar)
{
    BULK_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%0], [%1], %2, [%3];"
             :
             : "r"(bulk_address(shared)), "l"(global), "r"(bytes), "r"(bulk_address(bar))
             : "memory");
}

/* Asks for bytes to be brought into the second-level cache; multiples of 16 as above. */
static __device__ __forceinline__ void bulk_prefetch(const void *global, uint32_t bytes)
{
    BULK_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(global), "r"(bytes) : "memory");
}

/* Lets later bulk copies and wgmma see what this thread has stored in shared memory. */
static __device__ __forceinline__ void bulk_sees_stores()
{
    BULK_ASM("fence.proxy.async.shared::cta;" : : : "memory");
}

#undef BULK_ASM

#endif
