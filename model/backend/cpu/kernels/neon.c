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
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 8, 64) \
    ATTENTION_TILE(2, 8, 32) \
    ATTENTION_TILE(3, 8, 32) \
    ATTENTION_TILE(4, 4, 16) \
    ATTENTION_TILE(5, 4, 16) \
    ATTENTION_TILE(6, 4, 16)

#include "model/backend/cpu/kernels/tile_vector.h"

typedef const vec_f __attribute__((may_alias, aligned(1))) wide_bits;
typedef const float __attribute__((may_alias, aligned(1))) wide_word;

INLINE_ALWAYS vec_f wide_step(vec_f acc, vec_f w, vec_f x)
{
    return (vec_f)vfmaq_f32((float32x4_t)acc, (float32x4_t)w, (float32x4_t)x);
}

/* A tile has 1 vector, 2, or a multiple of 4. */
INLINE_ALWAYS int wide_group(int n_vectors)
{
    return n_vectors < 4 ? n_vectors : 4;
}

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already. Both are assembly,
 * or gcc keeps the pairs from one to the other and has no registers left for sums. */
INLINE_ALWAYS vec_f wide_odd(const uint16_t *w)
{
    vec_f odd;
    __asm__("ldr %q0, %1\n\tand %0.16b, %0.16b, %2.16b"
            : "=&w"(odd)
            : "m"(*(wide_bits *)(const void *)w), "w"(vdupq_n_u32(0xffff0000u)));
    return odd;
}

INLINE_ALWAYS vec_f wide_even(const uint16_t *w)
{
    vec_f even;
    __asm__("ldr %q0, %1\n\tshl %0.4s, %0.4s, #16"
            : "=w"(even)
            : "m"(*(wide_bits *)(const void *)w));
    return even;
}

/* Four vectors are assembly because gcc hoists the loads, and then keeps sums on the stack. */
INLINE_ALWAYS void wide_row_step(int n, vec_f *acc, const vec_f *w, const uint16_t *x)
{
    vec_f all;
    if (n < 4) {
        vec_f every = vec_all(*(wide_word *)(const void *)x);
        acc[0] = wide_step(acc[0], w[0], every);
        if (n > 1) acc[1] = wide_step(acc[1], w[1], every);
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
INLINE_ALWAYS bool tile_fits(int n_rows, int n_vectors, tile_acc acc)
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

#include "model/backend/cpu/kernels/wide_pair.h"

#include "model/backend/cpu/kernels/tile_frame.h"

#include "model/backend/cpu/kernels/variant.h"

const struct kernels kernels_neon = KERNELS_TABLE("neon", &kernels_quant_plain);

#endif
