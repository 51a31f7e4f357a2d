/* The loops of bench/peaks.h. Each step of a loop takes every chain one multiply-add further. What
 * a chain multiplies goes through an empty asm statement before each multiplication, so that the
 * compiler must keep it in a register, and can neither move a product out of the loop nor use it
 * for two chains; the chains begin and end in the same way. */
#include "bench/peaks.h"

#include <stdint.h>
#include <string.h>

#include "model/numerics/group.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define REGISTER "v"
#elif defined(__aarch64__)
#include <arm_neon.h>
#define REGISTER "w"
#else
#define REGISTER "m"
#endif

#define OPAQUE(x) __asm__ volatile("" : "+" REGISTER(x))
#define UNROLL    _Pragma("GCC unroll 32")

/* As fp32 and as bf16 about one; bytes of 63 and -128. */
static const uint32_t start_bits[16] = {
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

/* Defines the function `name`. `step` is one multiply-add of a chain `sum` with the vectors w and
 * x. TARGET is what the instructions need. */
#define LOOP(name, target, sum_type, n_chains, factor_type, step) \
    target static void name(int n_steps)                          \
    {                                                             \
        sum_type sums[n_chains];                                  \
        factor_type w, x;                                         \
        memcpy(&w, start_bits, sizeof w);                         \
        memcpy(&x, start_bits, sizeof x);                         \
        UNROLL for (int i = 0; i < (n_chains); i++)               \
        {                                                         \
            memcpy(&sums[i], start_bits, sizeof sums[i]);         \
            OPAQUE(sums[i]);                                      \
        }                                                         \
        for (int k = 0; k < n_steps; k++) {                       \
            UNROLL for (int i = 0; i < (n_chains); i++)           \
            {                                                     \
                sum_type sum = sums[i];                           \
                OPAQUE(w);                                        \
                OPAQUE(x);                                        \
                sums[i] = step;                                   \
            }                                                     \
        }                                                         \
        UNROLL for (int i = 0; i < (n_chains); i++)               \
        {                                                         \
            OPAQUE(sums[i]);                                      \
        }                                                         \
    }

/* ---- the compiler's vectors of 128 bits, without fused instructions, as the plain kernels ---- */

typedef float quad_float __attribute__((vector_size(16)));
typedef int32_t quad_int __attribute__((vector_size(16)));
/* Sums may wrap around: they are not looked at. */
typedef uint32_t quad_unsigned __attribute__((vector_size(16)));
typedef uint16_t eight_unsigned __attribute__((vector_size(16)));

/* The products of int8 need registers too, and few chains hide an addition of integers. */
enum { PLAIN_CHAINS = 12, PLAIN_INT8_CHAINS = 6 };

LOOP(plain_bf16, , quad_float, PLAIN_CHAINS, quad_float, sum + w * x)
/* The product of two 8-bit numbers fits into 16 bits, and is widened to be summed. */
#define ODD(products)  (quad_unsigned)((quad_int)(products) >> 16)
#define EVEN(products) (quad_unsigned)((quad_int)((quad_unsigned)(products) << 16) >> 16)
LOOP(plain_int8, , quad_unsigned, PLAIN_INT8_CHAINS, eight_unsigned, sum + ODD(w * x) + EVEN(w * x))
/* The sum of a group's products fits into 16 bits. */
LOOP(plain_int4, , eight_unsigned, PLAIN_CHAINS, eight_unsigned, sum + w * x)

#ifdef __x86_64__

/* ---- 512 bits ---- */

#define AVX512(features) __attribute__((target("avx512f,avx512bw," features)))
enum { AVX512_CHAINS = 20 };

LOOP(avx512_bf16, AVX512("avx512bf16"), __m512, AVX512_CHAINS, __m512bh,
     _mm512_dpbf16_ps(sum, w, x))
LOOP(avx512_fma, AVX512("avx512dq"), __m512, AVX512_CHAINS, __m512, _mm512_fmadd_ps(w, x, sum))
LOOP(avx512_bytes, AVX512("avx512vnni"), __m512i, AVX512_CHAINS, __m512i,
     _mm512_dpbusd_epi32(sum, w, x))

/* ---- 256 bits ---- */

#define AVX2(features) __attribute__((target("avx2," features)))
enum { AVX2_CHAINS = 12 };

LOOP(avx2_bf16, AVX2("fma"), __m256, AVX2_CHAINS, __m256, _mm256_fmadd_ps(w, x, sum))
LOOP(avx2_int8, AVX2("fma"), __m256i, AVX2_CHAINS, __m256i,
     _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)))
LOOP(avx2_int4, AVX2("fma"), __m256i, AVX2_CHAINS, __m256i,
     _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)))
LOOP(avxvnni_bytes, AVX2("avxvnni"), __m256i, AVX2_CHAINS, __m256i,
     _mm256_dpbusd_avx_epi32(sum, w, x))

#endif
#ifdef __aarch64__

enum { NEON_CHAINS = 24 };

LOOP(neon_bf16, , float32x4_t, NEON_CHAINS, float32x4_t, vfmaq_f32(sum, w, x))
LOOP(neon_int8, , int32x4_t, NEON_CHAINS, int8x8_t, vpadalq_s16(sum, vmull_s8(w, x)))
LOOP(neon_int4, , int16x8_t, NEON_CHAINS, int8x8_t, vmlal_s8(sum, w, x))

#endif

/* ---- the table ---- */

static const struct bench_peak peaks[] = {
#ifdef __x86_64__
    {"avx512", WEIGHTS_BF16, "vdpbf16ps of 512 bits", 64 * AVX512_CHAINS, avx512_bf16},
    {"avx512", WEIGHTS_INT8, "vpdpbusd of 512 bits", 128 * AVX512_CHAINS, avx512_bytes},
    {"avx512", WEIGHTS_INT4, "vpdpbusd of 512 bits", 128 * AVX512_CHAINS, avx512_bytes},
    {"avx512fma", WEIGHTS_BF16, "vfmadd of 512 bits", 32 * AVX512_CHAINS, avx512_fma},
    {"avx512fma", WEIGHTS_INT8, "vpdpbusd of 512 bits", 128 * AVX512_CHAINS, avx512_bytes},
    {"avx512fma", WEIGHTS_INT4, "vpdpbusd of 512 bits", 128 * AVX512_CHAINS, avx512_bytes},
    {"avxvnni", WEIGHTS_BF16, "vfmadd of 256 bits", 16 * AVX2_CHAINS, avx2_bf16},
    {"avxvnni", WEIGHTS_INT8, "vpdpbusd of 256 bits", 64 * AVX2_CHAINS, avxvnni_bytes},
    {"avxvnni", WEIGHTS_INT4, "vpdpbusd of 256 bits", 64 * AVX2_CHAINS, avxvnni_bytes},
    {"avx2", WEIGHTS_BF16, "vfmadd of 256 bits", 16 * AVX2_CHAINS, avx2_bf16},
    {"avx2", WEIGHTS_INT8, "vpmaddwd + vpaddd of 256 bits", 32 * AVX2_CHAINS, avx2_int8},
    {"avx2", WEIGHTS_INT4, "vpmaddubsw + vpaddw of 256 bits", 64 * AVX2_CHAINS, avx2_int4},
#endif
#ifdef __aarch64__
    {"neon", WEIGHTS_BF16, "fmla of 128 bits", 8 * NEON_CHAINS, neon_bf16},
    {"neon", WEIGHTS_INT8, "smull + sadalp of 128 bits", 16 * NEON_CHAINS, neon_int8},
    {"neon", WEIGHTS_INT4, "smlal of 128 bits", 16 * NEON_CHAINS, neon_int4},
#endif
    {"plain", WEIGHTS_BF16, "multiply + add of 128 bits", 8 * PLAIN_CHAINS, plain_bf16},
    {"plain", WEIGHTS_INT8, "16-bit multiply + widening add of 128 bits", 16 * PLAIN_INT8_CHAINS,
     plain_int8},
    {"plain", WEIGHTS_INT4, "16-bit multiply + add of 128 bits", 16 * PLAIN_CHAINS, plain_int4},
};

/* The form whose loop has the instructions that `form` is multiplied with. A model of blocks may
 * have any forms, of which those of few bits are the fastest. */
static enum weight_form loop_form(enum weight_form form)
{
    const struct group_form *f = &group_forms[form];
    if (form == WEIGHTS_BLOCKS) return WEIGHTS_INT4;
    if (!f->low_bits) return form;
    return f->low_bits == 8 || f->is_table ? WEIGHTS_INT8 : WEIGHTS_INT4;
}

int bench_peak_find(const struct bench_peak **peak, const char *kernels, enum weight_form form,
                    struct error *err)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        *peak = &peaks[i];
        if (strcmp(peaks[i].kernels, kernels) == 0 && peaks[i].form == loop_form(form)) return 0;
    }
    *peak = NULL;
    return error_set(err, ERR_UNSUPPORTED,
                     "bench/peaks.c has no register loop for kernels %s with %s weights", kernels,
                     weight_form_name(form));
}
