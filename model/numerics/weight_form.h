/* The forms that weights are kept in, by the names that options and files give them. */
#pragma once

#include "base/error.h"

/* WEIGHTS_FP8 is a form of matrices: on a GPU that of --weights fp8, on the CPU that of stored fp8.
 * WEIGHTS_BLOCKS is a form of models only: each of its matrices has the form of its own stored
 * kind, which is bf16, fp8 or one of the forms after it (model/numerics/group.h says what they
 * are). */
enum weight_form {
    WEIGHTS_BF16,
    WEIGHTS_INT8,
    WEIGHTS_INT4,
    WEIGHTS_FP8,
    WEIGHTS_BLOCKS,
    WEIGHTS_Q4_0,
    WEIGHTS_Q4_1,
    WEIGHTS_Q5_0,
    WEIGHTS_Q5_1,
    WEIGHTS_Q8_0,
    WEIGHTS_Q2_K,
    WEIGHTS_Q3_K,
    WEIGHTS_Q4_K,
    WEIGHTS_Q5_K,
    WEIGHTS_Q6_K,
    WEIGHTS_IQ4_NL,
    WEIGHTS_IQ4_XS,
    WEIGHTS_U4_F16, /* scale * (q - zero) with a scale and an integer zero for each group */
    WEIGHTS_U4_BF16,
    WEIGHTS_U4_F32,
    WEIGHTS_U8_F32,
    WEIGHT_FORMS
};

/* "bf16", "int8", "int4", "fp8", "blocks", "q4_0", ... */
const char *weight_form_name(enum weight_form form);
/* Finds "bf16", "int8" and "int4". Errors: ERR_ARGUMENT --weights NAME is none of these. */
int weight_form_find(enum weight_form *form, const char *name, struct error *err);
