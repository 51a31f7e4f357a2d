/* The CPU backend: a team of threads, and kernels for the instruction set of this CPU. */
#pragma once

#include "model/backend/backend.h"

struct backend_cpu_options {
    const char *kernels; /* "auto" or a variant's name */
    int n_threads;       /* >= 1 */
    enum weight_form form;
};

int backend_cpu_open(struct backend **be, const struct backend_cpu_options *options,
                     struct error *err);

bool backend_cpu_kernels_is_known(const char *name);
/* The values that `kernels` may have: "auto, avx512, ... or plain". */
void backend_cpu_kernels_names(char *text, size_t size);

/* Keeps compute threads 1.. on cpus[n_threads]. Thread 0 is the caller's own
 * (base/system/placement.h). Errors: ERR_IO. */
int backend_cpu_pin(struct backend *be, const int *cpus, struct error *err);
