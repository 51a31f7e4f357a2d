/* The forms that weights are kept in, by the names that options and files give them. */
#pragma once

#include "base/error.h"

enum weight_form { WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4 };

/* "bf16", "int8", "int4". */
const char *weight_form_name(enum weight_form form);
/* Errors: ERR_ARGUMENT --weights NAME is none of these. */
int weight_form_find(enum weight_form *form, const char *name, struct error *err);
