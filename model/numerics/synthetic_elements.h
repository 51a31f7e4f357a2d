/* The elements of synthetic tensors: element e of a tensor is a 16-bit piece of Philox4x32-10 with
 * key = the tensor's seed and counter = e / 8, made uniform with the wanted mean and standard
 * deviation and rounded to bf16. A part of a tensor has the same elements however and in whatever
 * order it is read. model/backend/cuda/matmul/synthetic.cu makes the same bits on the device. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Elements first .. first + n of the tensor whose stream is `seed`; scale is the deviation. */
void synthetic_elements_bf16(uint64_t seed, float mean, float scale, uint64_t first, size_t n,
                             uint16_t *out);
