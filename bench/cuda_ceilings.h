/* What a GPU can do at best, measured, as a reference for the speed of the CUDA backend. For
 * benchmarks only; not linked into the programs. */
#pragma once

#include "base/error.h"

struct cuda_ceilings {
    double copy_gb_s; /* bytes read plus written by device-to-device copies of 2 GiB */
    double read_gb_s; /* bytes read by a kernel that only sums them */
    double tflop_s; /* bf16 in, fp32 sums, cuBLASLt's best of 8192 x 8192 x 8192; 0: no cuBLASLt */
    char device[128];
};

/* Medians of 20. Errors: ERR_UNSUPPORTED no GPU, ERR_NO_MEMORY, ERR_UNAVAILABLE. */
int cuda_ceilings_measure(struct cuda_ceilings *ceilings, int device, struct error *err);
