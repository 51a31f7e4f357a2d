/* The numbers in num_gelu_tanh, for the kernels that repeat it. */
#pragma once

#define GELU_CUBE  0.044715f
#define GELU_SLOPE (-1.5957691216f) /* -2 sqrt(2 / pi) */
