/* The CUDA backend, with the arithmetics `cuda-sm80-bf16`, `cuda-sm90-bf16`, their fp8 forms, and
 * `cuda-sm80-blocks` and so on for models that are stored in integers with scales. It exists in
 * builds with OUTRIDER_CUDA; backend_open (model/backend/open.c) chooses it. Owned by the engine
 * thread that opened it. */
#pragma once

#include "model/backend/backend.h"

enum cuda_weights {
    CUDA_WEIGHTS_BF16,
    CUDA_WEIGHTS_FP8,   /* e4m3 with one scale per output column and slice, rounded at load */
    CUDA_WEIGHTS_BLOCKS /* as they are stored; plain numbers among them in bf16 */
};

struct backend_cuda_options {
    int device; /* ordinal; -1: rank modulo the number of GPUs */
    int rank;
    enum cuda_weights weights;
    enum weight_form stored; /* of the model, for CUDA_WEIGHTS_BLOCKS */
    bool no_graphs;          /* every step is launched kernel by kernel */
    bool all_reduce;         /* NCCL's own sum in place of the fixed tree: the bits depend on T */
};

/* Errors: ERR_UNSUPPORTED no driver, no such device, or one older than sm_80 (the text says which);
 * ERR_NO_MEMORY. */
int backend_cuda_open(struct backend **be, const struct backend_cuda_options *options,
                      struct error *err);
