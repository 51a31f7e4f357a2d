/* Names of the forms of weights. */
#include "model/numerics/weight_form.h"

#include <string.h>

static const char *const names[WEIGHT_FORMS] = {
    [WEIGHTS_BF16] = "bf16",       [WEIGHTS_INT8] = "int8",     [WEIGHTS_INT4] = "int4",
    [WEIGHTS_FP8] = "fp8",         [WEIGHTS_BLOCKS] = "blocks", [WEIGHTS_Q4_0] = "q4_0",
    [WEIGHTS_Q4_1] = "q4_1",       [WEIGHTS_Q5_0] = "q5_0",     [WEIGHTS_Q5_1] = "q5_1",
    [WEIGHTS_Q8_0] = "q8_0",       [WEIGHTS_Q2_K] = "q2_k",     [WEIGHTS_Q3_K] = "q3_k",
    [WEIGHTS_Q4_K] = "q4_k",       [WEIGHTS_Q5_K] = "q5_k",     [WEIGHTS_Q6_K] = "q6_k",
    [WEIGHTS_IQ4_NL] = "iq4_nl",   [WEIGHTS_IQ4_XS] = "iq4_xs", [WEIGHTS_U4_F16] = "u4-f16",
    [WEIGHTS_U4_BF16] = "u4-bf16", [WEIGHTS_U4_F32] = "u4-f32", [WEIGHTS_U8_F32] = "u8-f32"};

const char *weight_form_name(enum weight_form form)
{
    return names[form];
}

int weight_form_find(enum weight_form *form, const char *name, struct error *err)
{
    for (int i = WEIGHTS_BF16; i <= WEIGHTS_INT4; i++) {
        *form = (enum weight_form)i;
        if (strcmp(names[i], name) == 0) return 0;
    }
    return error_set(err, ERR_ARGUMENT, "--weights %s: expected bf16, int8 or int4", name);
}
