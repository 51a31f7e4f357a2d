/* The multiply peak of one thread: a loop over registers alone that multiplies with the
 * instructions that a variant of the kernels has for a form of weights. It reads no memory, and its
 * chains are enough to hide the latency of an instruction, so no kernel of the variant can multiply
 * faster. */
#pragma once

#include "base/error.h"
#include "model/numerics/weight_form.h"

struct bench_peak {
    const char *kernels;   /* the variant, as struct kernels names it */
    enum weight_form form; /* bf16, int8 or int4: others have the instructions of one of these */
    const char *loop;      /* its instructions, for people */
    int step_operations;   /* of all chains; a multiply-add counts as two */
    void (*run)(int n_steps);
};

/* The caller runs it only if this CPU can run the variant. Errors: ERR_UNSUPPORTED no loop is
 * written for the variant and the form. */
int bench_peak_find(const struct bench_peak **peak, const char *kernels, enum weight_form form,
                    struct error *err);
