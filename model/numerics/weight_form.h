/* The forms that weights are kept in, by the names that options and files give them. */
#pragma once

#include "base/error.h"

/* WEIGHTS_FP8 is a form of matrices on a GPU only: no model is stored in it. */
enum weight_form { WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4, WEIGHTS_FP8 };

/* "bf16", "int8", "int4", "fp8". */
const char *weight_form_name(enum weight_form form);
/* Finds "bf16", "int8" and "int4". Errors: ERR_ARGUMENT --weights NAME is none of these. */
int weight_form_find(enum weight_form *form, const char *name, struct error *err);
