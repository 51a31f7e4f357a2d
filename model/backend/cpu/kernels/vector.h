/* Vectors of the width that a variant defines as VEC_BYTES, in the compiler's own terms. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "model/backend/cpu/kernels/kernels.h"

enum {
    VEC_LANES = VEC_BYTES / 4,
    VECS = KERNEL_LANES / VEC_LANES /* vectors of 16 lanes */
};

typedef float vec_f __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vec_i __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vec_u __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vec_h __attribute__((vector_size(VEC_BYTES / 2)));

static inline vec_f vec_load(const float *x)
{
    vec_f v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void vec_store(float *x, vec_f v)
{
    memcpy(x, &v, sizeof v);
}

static inline vec_f vec_all(float x)
{
    return x - (vec_f){0};
}
