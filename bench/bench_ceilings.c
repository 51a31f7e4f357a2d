/* What a GPU can do at best: copy and read bandwidth of its memory, and bf16 tensor cores by
 * cuBLASLt. tests/gpu/run measures these in the same call as the CUDA backend's figures and
 * compares them.
 *
 *   bench_ceilings [DEVICE] */
#include <stdio.h>
#include <stdlib.h>

#include "bench/cuda_ceilings.h"

int main(int argc, char **argv)
{
    struct cuda_ceilings ceilings;
    struct error err;
    if (cuda_ceilings_measure(&ceilings, argc > 1 ? atoi(argv[1]) : 0, &err)) {
        fprintf(stderr, "bench_ceilings: %s\n", err.text);
        return 1;
    }
    printf("%s: copy %.0f GB/s, read %.0f GB/s, bf16 %.0f TFLOP/s\n", ceilings.device,
           ceilings.copy_gb_s, ceilings.read_gb_s, ceilings.tflop_s);
    return 0;
}
