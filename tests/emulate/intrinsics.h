/* Device functions that concern one thread alone. Atomics are plain operations, because the threads
 * of a kernel take turns only at exchanges, and blocks run one after the other. */
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

/* --- Bits --- */

template <class To, class From> To emulate_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float x)
{
    return emulate_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return emulate_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return emulate_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return emulate_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return emulate_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return emulate_bits<double>(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x)
{
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return unsigned(uint64_t(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return static_cast<unsigned long long>(wide(a) * b >> 64);
}

/* --- Arithmetic, rounded to nearest even, never contracted (-ffp-contract=off) --- */

inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dsub_rn(double a, double b)
{
    return a - b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}

/* Conversions saturate and turn NaN into 0, as the device's do. */
template <class To> To emulate_to_integer(float rounded)
{
    if (rounded != rounded) return 0;
    if (rounded <= float(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (rounded >= float(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return To(rounded);
}
inline int __float2int_rn(float x)
{
    return emulate_to_integer<int>(rintf(x));
}
inline int __float2int_rz(float x)
{
    return emulate_to_integer<int>(truncf(x));
}
inline int __float2int_rd(float x)
{
    return emulate_to_integer<int>(floorf(x));
}
inline int __float2int_ru(float x)
{
    return emulate_to_integer<int>(ceilf(x));
}
inline unsigned __float2uint_rn(float x)
{
    return emulate_to_integer<unsigned>(rintf(x));
}
inline unsigned __float2uint_rz(float x)
{
    return emulate_to_integer<unsigned>(truncf(x));
}
inline float __int2float_rn(int x)
{
    return float(x);
}
inline float __uint2float_rn(unsigned x)
{
    return float(x);
}
inline float __ull2float_rn(unsigned long long x)
{
    return float(x);
}
inline float __double2float_rn(double x)
{
    return float(x);
}

/* min and max of two numbers of one kind, as CUDA overloads them. */
#define EMULATE_MIN_MAX(type)       \
    inline type min(type a, type b) \
    {                               \
        return b < a ? b : a;       \
    }                               \
    inline type max(type a, type b) \
    {                               \
        return a < b ? b : a;       \
    }
EMULATE_MIN_MAX(int)
EMULATE_MIN_MAX(unsigned)
EMULATE_MIN_MAX(long)
EMULATE_MIN_MAX(unsigned long)
EMULATE_MIN_MAX(long long)
EMULATE_MIN_MAX(unsigned long long)
#undef EMULATE_MIN_MAX
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}

/* --- Memory --- */

inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
inline void __threadfence_system()
{
}
inline size_t __cvta_generic_to_shared(const void *pointer)
{
    return reinterpret_cast<size_t>(pointer);
}

#define EMULATE_LOAD(name)                      \
    template <class T> T name(const T *pointer) \
    {                                           \
        return *pointer;                        \
    }
EMULATE_LOAD(__ldg)
EMULATE_LOAD(__ldcg)
EMULATE_LOAD(__ldca)
EMULATE_LOAD(__ldcs)
EMULATE_LOAD(__ldlu)
EMULATE_LOAD(__ldcv)
#undef EMULATE_LOAD

#define EMULATE_STORE(name)                           \
    template <class T> void name(T *pointer, T value) \
    {                                                 \
        *pointer = value;                             \
    }
EMULATE_STORE(__stcg)
EMULATE_STORE(__stcs)
EMULATE_STORE(__stwb)
EMULATE_STORE(__stwt)
#undef EMULATE_STORE

/* Each returns the old value. The second argument may be of another type, as with CUDA's
 * overloads. */
#define EMULATE_ATOMIC(name, expression)                       \
    template <class T, class U> T name(T *pointer, U argument) \
    {                                                          \
        T old = *pointer, value = T(argument);                 \
        *pointer = T(expression);                              \
        return old;                                            \
    }
EMULATE_ATOMIC(atomicAdd, old + value)
EMULATE_ATOMIC(atomicSub, old - value)
EMULATE_ATOMIC(atomicMax, old < value ? value : old)
EMULATE_ATOMIC(atomicMin, value < old ? value : old)
EMULATE_ATOMIC(atomicOr, old | value)
EMULATE_ATOMIC(atomicAnd, old &value)
EMULATE_ATOMIC(atomicXor, old ^ value)
EMULATE_ATOMIC(atomicExch, value)
#undef EMULATE_ATOMIC

inline unsigned atomicInc(unsigned *pointer, unsigned limit)
{
    unsigned old = *pointer;
    *pointer = old >= limit ? 0 : old + 1;
    return old;
}

template <class T, class U, class V> T atomicCAS(T *pointer, U compare, V value)
{
    T old = *pointer;
    if (old == T(compare)) *pointer = T(value);
    return old;
}
