/* The functions of base/rng.c, model/numerics/numerics.c and model/logits/select.h as device
 * functions with the same bits (the files are compiled with --fmad=false), and the reductions over
 * a block that the answer kernel needs. */
#pragma once

#include "model/backend/cuda/answer.cuh"
#include "model/backend/cuda/device.cuh"
#include "model/numerics/log_coefficients.h"

enum { ANSWER_THREADS = 512, ANSWER_WARPS = ANSWER_THREADS / WARP };

/* A column and how it ranks by logit, in one number without ties: the logit as an ordered integer,
 * then the column, the lowest first. 0 is below every column. -0 ranks as +0, because equal logits
 * are ordered by column. */
static __device__ __forceinline__ uint64_t rank_of(float logit, int column)
{
    uint32_t bits = __float_as_uint(logit + 0.0f);
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(key) << 32 | ~static_cast<uint32_t>(column);
}

static __device__ __forceinline__ int rank_column(uint64_t rank)
{
    return static_cast<int>(~static_cast<uint32_t>(rank));
}

/* select_order_key and its inverse. Unlike rank_of these keep -0 and +0 apart. */
static __device__ __forceinline__ int32_t order_key(float x)
{
    int32_t bits = __float_as_int(x);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

static __device__ __forceinline__ float order_float(int32_t key)
{
    return __int_as_float(key ^ (key >> 31 & 0x7fffffff));
}

/* rng_coupled_four: 32 random bits for tokens 4 * group .. 4 * group + 3. */
static __device__ __forceinline__ void coupled_four(uint64_t seed, uint32_t position,
                                                    uint32_t group, uint32_t out[4])
{
    out[0] = position;
    out[1] = 0;
    out[2] = RNG_COUPLED;
    out[3] = group;
    device_philox(out, seed);
}

/* rng_uniform of the coin that draws outside of a slice's list. */
static __device__ __forceinline__ double outside_coin(const struct answer_job *job)
{
    uint32_t out[4] = {job->position, job->round, RNG_OUTSIDE, job->slice};
    device_philox(out, job->seed);
    uint64_t bits = (static_cast<uint64_t>(out[0]) << 32 | out[1]) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
}

/* num_log for normal x > 0. */
static __device__ __forceinline__ double device_log(double x)
{
    uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
    int k = static_cast<int>(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | static_cast<uint64_t>(1023) << 52;
    double m = __longlong_as_double(static_cast<long long>(bits));
    if (m > LOG_SQRT_2) {
        m *= 0.5;
        k++;
    }
    double f = m - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double w = z * z;
    double r = LOG_R_EVEN(w) + LOG_R_ODD(z, w);
    double half_square = 0.5 * f * f;
    return k * LOG_LN2 - ((half_square - (s * (half_square + r) + k * LOG_LN2_LOW)) - f);
}

/* num_gumbel. */
static __device__ __forceinline__ float device_gumbel(uint32_t bits)
{
    double u = (static_cast<double>(bits) + 0.5) * 0x1p-32;
    return static_cast<float>(-device_log(-device_log(u)));
}

/* An upper bound of device_gumbel(bits). With k leading ones 1 - u >= 2^-(k + 1), and -log u >= 1 -
 * u, hence -log(-log u) <= (k + 1) ln 2; the rest covers the rounding to float. */
static __device__ __forceinline__ double noise_bound(uint32_t bits)
{
    return (__clz(static_cast<int>(~bits)) + 1) * 0.69314718055994531 + 1e-5;
}

/* --- Reductions: every thread of the block calls them, and every thread gets the result --- */

/* Room for one value of each warp. It can be used again at once, because a reduction ends with a
 * barrier. */
struct block_room {
    uint64_t bits[ANSWER_WARPS];
    int32_t column[ANSWER_WARPS];
};

static __device__ __forceinline__ uint64_t block_max(uint64_t value, struct block_room *room)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        uint64_t other = __shfl_xor_sync(ALL_LANES, value, step);
        value = other > value ? other : value;
    }
    if (threadIdx.x % WARP == 0) room->bits[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int i = 0; i < ANSWER_WARPS; i++) {
        value = room->bits[i] > value ? room->bits[i] : value;
    }
    __syncthreads();
    return value;
}

static __device__ __forceinline__ int block_sum(int value, struct block_room *room)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, step);
    }
    if (threadIdx.x % WARP == 0) room->column[threadIdx.x / WARP] = value;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < ANSWER_WARPS; i++) {
        sum += room->column[i];
    }
    __syncthreads();
    return sum;
}
