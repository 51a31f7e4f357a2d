/* The command-line options that choose a backend: --device, --weights, --kernels, --threads,
 * --pack-cache, --no-graphs, --all-reduce. A program that has them lists backend_argp among its
 * children and, at ARGP_KEY_INIT, sets state->child_inputs to its struct backend_options, which
 * must hold the defaults that backend_options_init sets. */
#pragma once

#include <argp.h>

#include "model/backend/open.h"

extern const struct argp backend_argp;

/* The defaults: cpu, weights as stored, kernels auto, one thread unless the program chooses, packed
 * weights not kept, rank 0. */
void backend_options_init(struct backend_options *options);
