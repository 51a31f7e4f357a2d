/* Rounding activations with AVX2, for all integer kernels of x86. */
#pragma once

#include <immintrin.h>

#include "model/backend/cpu/kernels/quant/tile.h"

/* 16 bf16 times `factor`, rounded to 16-bit integers. The unpacking interleaves within 128 bits and
 * the packing undoes that. */
INLINE_ALWAYS __m256i words_round(__m256i bf16, __m256 factor)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256 low = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, bf16));
    __m256 high = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, bf16));
    return _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(low, factor)),
                              _mm256_cvtps_epi32(_mm256_mul_ps(high, factor)));
}

/* The largest of 32 bf16 without their signs. vphminposuw finds the least of 8. */
INLINE_ALWAYS uint32_t words_largest(__m256i a, __m256i b)
{
    const __m256i size = _mm256_set1_epi16(0x7fff);
    __m256i most = _mm256_max_epu16(_mm256_and_si256(a, size), _mm256_and_si256(b, size));
    __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(0x7fff)));
    return (uint32_t)_mm_extract_epi16(least, 0) ^ 0x7fffu;
}

/* Sums of a and of b. */
INLINE_ALWAYS void runs_sum(__m256i a, __m256i b, int32_t sums[QUANT_RUNS])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    __m128i two = _mm_hadd_epi32(four, four);
    sums[0] = _mm_cvtsi128_si32(two);
    sums[1] = _mm_extract_epi32(two, 1);
}

INLINE_ALWAYS void quant_round(const uint16_t *in, struct quant_group *out)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)in);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(in + 16));
    uint32_t largest = words_largest(a, b);
    float most = num_bf16_to_float((uint16_t)largest);
    *out = (struct quant_group){0};
    if (largest >= 0x7f80u) out->scale = NAN;
    if (largest >= 0x7f80u || most < 0x1p-100f) return;
    __m256 factor = _mm256_set1_ps(127.0f / most);
    a = words_round(a, factor);
    b = words_round(b, factor);
    runs_sum(a, b, out->sums);
    _mm256_store_si256((__m256i *)(void *)out->q, a);
    _mm256_store_si256((__m256i *)(void *)(out->q + 16), b);
    out->scale = most / 127.0f;
}

/* Integers of 8 bits. */
INLINE_ALWAYS void quant_store_bytes(const struct quant_group *group, int step_stride, uint8_t *q)
{
    __m256i a = _mm256_load_si256((const __m256i *)(const void *)group->q);
    __m256i b = _mm256_load_si256((const __m256i *)(const void *)(group->q + 16));
    uint32_t steps[QUANT_STEPS];
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)steps, bytes);
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        memcpy(q + step * step_stride, &steps[step], sizeof steps[step]);
    }
}
