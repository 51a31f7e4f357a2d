/* Kernels for aarch64, in vectors of 4 lanes and 32 registers. The chains run with denormals
 * flushed in and out (FPCR.FZ). But FZ flushes what is below the least normal number before the
 * rounding, and vdpbf16ps what is below it after the rounding. Every result that FZ flushes sets
 * FPSR.UFC, and a tile that finds it set is repeated by definition (exact.h). */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_AARCH64

#include <arm_neon.h>
#include <stdbool.h>

#define VEC_BYTES 16
#define TILE_ROWS 6
#define LINE_ROWS 6
#define WIDE_ROWS 1
#define WHOLE_K   0 /* because a repetition should be short */
#define TILES   \
    TILE(1, 64) \
    TILE(2, 32) \
    TILE(3, 32) \
    TILE(4, 16) \
    TILE(5, 16) \
    TILE(6, 16)
#define ATTENTION_ROWS 6
#define SCORE_LANES    4
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 8, 64) \
    ATTENTION_TILE(2, 8, 32) \
    ATTENTION_TILE(3, 8, 32) \
    ATTENTION_TILE(4, 4, 16) \
    ATTENTION_TILE(5, 4, 16) \
    ATTENTION_TILE(6, 4, 16)

typedef float32x4_t wide_f;
typedef const wide_f __attribute__((may_alias, aligned(1))) wide_bits;
typedef const float __attribute__((may_alias, aligned(1))) wide_word;
enum { WIDE_LANES = 4, WIDE_ROWS_MAX = 6, WIDE_VECTORS_MAX = 16 };

INLINE_ALWAYS float32x4_t wide_load(const float *from)
{
    return vld1q_f32(from);
}

INLINE_ALWAYS void wide_store(float *to, float32x4_t x)
{
    vst1q_f32(to, x);
}

INLINE_ALWAYS float32x4_t wide_zero(void)
{
    return vdupq_n_f32(0);
}

INLINE_ALWAYS float32x4_t wide_all(const uint16_t *x)
{
    return vreinterpretq_f32_u32(vdupq_n_u32(dots_word(x)));
}

INLINE_ALWAYS float32x4_t wide_step(float32x4_t acc, float32x4_t w, float32x4_t x)
{
    return vfmaq_f32(acc, w, x);
}

/* A tile has 1 vector, 2, or a multiple of 4. */
INLINE_ALWAYS int wide_group(int n_vectors)
{
    return n_vectors < 4 ? n_vectors : 4;
}

INLINE_ALWAYS void wide_split(const uint16_t *w, float32x4_t *odd, float32x4_t *even)
{
    uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(w));
    *odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
    *even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
}

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already. Both are assembly,
 * or gcc keeps the pairs from one to the other and has no registers left for sums. */
INLINE_ALWAYS float32x4_t wide_odd(const uint16_t *w)
{
    float32x4_t odd;
    __asm__("ldr %q0, %1\n\tand %0.16b, %0.16b, %2.16b"
            : "=&w"(odd)
            : "m"(*(wide_bits *)(const void *)w), "w"(vdupq_n_u32(0xffff0000u)));
    return odd;
}

INLINE_ALWAYS float32x4_t wide_even(const uint16_t *w)
{
    float32x4_t even;
    __asm__("ldr %q0, %1\n\tshl %0.4s, %0.4s, #16"
            : "=w"(even)
            : "m"(*(wide_bits *)(const void *)w));
    return even;
}

/* Four vectors are assembly because gcc hoists the loads, and then keeps sums on the stack. */
INLINE_ALWAYS void wide_row_step(int n, float32x4_t *acc, const float32x4_t *w, const uint16_t *x)
{
    float32x4_t all;
    if (n < 4) {
        acc[0] = vfmaq_f32(acc[0], w[0], wide_all(x));
        if (n > 1) acc[1] = vfmaq_f32(acc[1], w[1], wide_all(x));
        return;
    }
    __asm__("ldr %s4, %9\n\t"
            "fmla %0.4s, %5.4s, %4.s[0]\n\t"
            "fmla %1.4s, %6.4s, %4.s[0]\n\t"
            "fmla %2.4s, %7.4s, %4.s[0]\n\t"
            "fmla %3.4s, %8.4s, %4.s[0]"
            : "+&w"(acc[0]), "+&w"(acc[1]), "+&w"(acc[2]), "+w"(acc[3]), "=&w"(all)
            : "w"(w[0]), "w"(w[1]), "w"(w[2]), "w"(w[3]), "m"(*(wide_word *)(const void *)x));
}

enum { FPCR_FZ = 1 << 24, FPSR_UFC = 1 << 3 };

/* The empty assembly makes every sum's last step come before the flag is read. */
INLINE_ALWAYS bool wide_fits(int n_rows, int n_vectors, float32x4_t (*acc)[WIDE_VECTORS_MAX])
{
    uint64_t status;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < n_vectors; j++) {
            __asm__ volatile("" : "+w"(acc[i][j]));
        }
    }
    __asm__ volatile("mrs %0, fpsr" : "=r"(status));
    if (!(status & FPSR_UFC)) return true;
    __asm__ volatile("msr fpsr, xzr" : : : "memory");
    return false;
}

/* The chains are in functions that are called between these two with all their input and output in
 * memory, so that the compiler cannot move a floating-point step out. */
static unsigned dots_begin(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, xzr" : : "r"(mode | FPCR_FZ) : "memory");
    return (unsigned)mode;
}

static void dots_end(unsigned mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
}

#include "model/backend/cpu/kernels/wide_tile.h"

#include "model/backend/cpu/kernels/impl.h"

const struct kernels kernels_neon = KERNELS_TABLE("neon", &kernels_quant_plain);

#endif
