/* Looking up the tensors of a checkpoint by name. */
#pragma once

#include "base/error.h"
#include "model/checkpoint/read.h"

struct checkpoint;

/* Looks up a tensor and checks its shape; n_rows = 1 for vectors. Where layers were chosen, layer i
 * in the name is the i-th of these. Errors: ERR_FORMAT the tensor
 * is missing (the text names it) or of another shape (the text names both); ERR_UNSUPPORTED its
 * dtype. */
int checkpoint_find(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
                    struct weight *weight, struct error *err);
