/* The command-line options that choose a backend: --device, --weights, --kernels, --threads,
 * --pack-cache, --no-graphs, --all-reduce. */
#pragma once

#include "base/text/option_table.h"
#include "model/backend/open.h"

/* For the parts of a program's options; the fields are a struct backend_options. */
extern const struct option_row backend_rows[];
