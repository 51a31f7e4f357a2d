/* The CPU backend: threads of one team over kernels for the instruction set that is there. */
#pragma once

#include "model/backend/backend.h"

struct backend_cpu_options {
    const char *kernels; /* "auto", "avx512", "avx2", "plain" */
    int n_threads;       /* >= 1 */
    enum weight_form form;
};

int backend_cpu_open(struct backend **be, const struct backend_cpu_options *options,
                     struct error *err);

/* Keeps compute threads 1.. on cpus[n_threads]; thread 0 is the caller's own (base/placement.h).
 * Errors: ERR_IO. */
int backend_cpu_pin(struct backend *be, const int *cpus, struct error *err);
