/* Opens the backend that an option names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/numerics/weight_form.h"

struct backend; /* model/backend/backend.h */

struct backend_options {
    const char *device;      /* "cpu"; "cuda": the GPU of number rank % GPUs; "cuda:N" */
    const char *weights;     /* "bf16"; "int8", "int4" on the CPU; "fp8" on GPUs; NULL: as stored */
    enum weight_form stored; /* of the model; to be set when it is known */
    const char *kernels;     /* of the CPU: "auto" or a variant's name */
    int n_threads;           /* of the CPU, >= 1 */
    /* No number was given, so a program may choose one (base/system/placement.h). */
    bool auto_threads;
    const int *cpus; /* [n_threads] of the CPU, lent: where threads 1.. run; NULL: anywhere */
    const char *pack_cache; /* of the CPU: "off" or NULL, "auto" or a folder for packed weights */
    int rank;
    bool no_graphs;  /* of a GPU: every step is launched kernel by kernel */
    bool all_reduce; /* of GPUs: NCCL's own sum; the arithmetic's name says so */
};

/* Errors: ERR_ARGUMENT a name that is none, ERR_UNSUPPORTED this build or machine lacks it,
 * ERR_NO_MEMORY. */
int backend_open(struct backend **be, const struct backend_options *options, struct error *err);

/* True for "cpu", "cuda" and "cuda:N": for option parsers. */
bool backend_device_is_known(const char *device);
bool backend_kernels_is_known(const char *kernels);
/* Writes the names that `kernels` may have, for the help of --kernels: "auto, avx512, ... or
 * plain". */
void backend_kernels_names(char *text, size_t size);
/* True for "bf16", "int8", "int4" and "fp8". */
bool backend_weights_is_known(const char *weights);
