/* A check of a variant's dot step on the CPU that it is about to run on. All arithmetic of the CPU
 * rests on the order of vdpbf16ps: first the odd k, then the even k, with a rounding after each,
 * and denormals flushed. That was measured, but on other CPUs than this one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* struct kernels has one. */
typedef void dot_step_fn(float acc[16], const uint16_t w[32], uint32_t x_pair);

/* Compares some steps with the definition (step_exact.h), bit for bit: the two orders, fused
 * rounding, ties, denormals that enter and that come out, products beyond the range of fp32. Takes
 * a few microseconds. */
bool step_check_passes(dot_step_fn *dot_step);
