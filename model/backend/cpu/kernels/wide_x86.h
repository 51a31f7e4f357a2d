/* Functions that the x86 variants of wide_pair.h share. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>

#include "model/backend/cpu/kernels/tile_vector.h"

typedef const vec_f __attribute__((may_alias, aligned(1))) wide_bits;
typedef const float __attribute__((may_alias, aligned(1))) wide_word;

/* MXCSR's modes flush as vdpbf16ps does. */
INLINE_ALWAYS bool tile_fits(int n_rows, int n_vectors, tile_acc acc)
{
    (void)n_rows;
    (void)n_vectors;
    (void)acc;
    return true;
}

INLINE_ALWAYS vec_f wide_step(vec_f acc, vec_f w, vec_f x)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}

/* One fused step of a row. It is assembly because gcc hoists the broadcasts, overwrites them with
 * sums, and then keeps accumulators on the stack. */
INLINE_ALWAYS void wide_row_step(int n, vec_f *acc, const vec_f *w, const uint16_t *x)
{
    wide_word *word = (wide_word *)(const void *)x;
    vec_f all;
    switch (n) {
    case 1:
        __asm__("vbroadcastss %3, %1\n\t"
                "vfmadd231ps %1, %2, %0"
                : "+v"(acc[0]), "=&v"(all)
                : "v"(w[0]), "m"(*word));
        break;
    case 2:
        __asm__("vbroadcastss %5, %2\n\t"
                "vfmadd231ps %2, %3, %0\n\t"
                "vfmadd231ps %2, %4, %1"
                : "+&v"(acc[0]), "+v"(acc[1]), "=&v"(all)
                : "v"(w[0]), "v"(w[1]), "m"(*word));
        break;
    case 3:
        __asm__("vbroadcastss %7, %3\n\t"
                "vfmadd231ps %3, %4, %0\n\t"
                "vfmadd231ps %3, %5, %1\n\t"
                "vfmadd231ps %3, %6, %2"
                : "+&v"(acc[0]), "+&v"(acc[1]), "+v"(acc[2]), "=&v"(all)
                : "v"(w[0]), "v"(w[1]), "v"(w[2]), "m"(*word));
        break;
    default:
        __asm__("vbroadcastss %9, %4\n\t"
                "vfmadd231ps %4, %5, %0\n\t"
                "vfmadd231ps %4, %6, %1\n\t"
                "vfmadd231ps %4, %7, %2\n\t"
                "vfmadd231ps %4, %8, %3"
                : "+&v"(acc[0]), "+&v"(acc[1]), "+&v"(acc[2]), "+v"(acc[3]), "=&v"(all)
                : "v"(w[0]), "v"(w[1]), "v"(w[2]), "v"(w[3]), "m"(*word));
    }
}

/* The chains run with denormals flushed in and out (MXCSR FTZ and DAZ). All their input and output
 * is in memory, which these two clobber, so the compiler cannot move a floating-point step out. */
static unsigned dots_begin(void)
{
    unsigned mode = _mm_getcsr();
    unsigned flushed = mode | _MM_FLUSH_ZERO_ON | 0x0040u; /* denormals are zeros */
    __asm__ volatile("ldmxcsr %0" : : "m"(flushed) : "memory");
    return mode;
}

static void dots_end(unsigned mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}
