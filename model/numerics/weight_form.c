/* Names of the forms of weights. */
#include "model/numerics/weight_form.h"

#include <string.h>

static const char *const names[] = {[WEIGHTS_BF16] = "bf16",
                                    [WEIGHTS_INT8] = "int8",
                                    [WEIGHTS_INT4] = "int4",
                                    [WEIGHTS_FP8] = "fp8"};

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
