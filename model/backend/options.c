/* The options of the command line that choose a backend. */
#include "model/backend/options.h"

#include <stdio.h>
#include <string.h>

#include "base/text/options.h"

#define VARIANTS "VARIANTS" /* in the help; becomes the names of the CPU's kernels */

enum { NAMES_BYTES = 200, HELP_BYTES = 300 };
enum { OPT_DEVICE = 1024, OPT_WEIGHTS, OPT_KERNELS, OPT_NO_GRAPHS, OPT_ALL_REDUCE, OPT_PACK_CACHE };

static const struct argp_option entries[] = {
    {"device", OPT_DEVICE, "NAME", 0,
     "cpu, cuda:N, or cuda: a worker takes the GPU of its rank's number, others take GPU 0; "
     "default "
     "cpu",
     0},
    {"weights", OPT_WEIGHTS, "FORM", 0,
     "bf16; on the CPU also int8, int4; on GPUs also fp8; default: as the model is stored", 0},
    {"kernels", OPT_KERNELS, "NAME", 0, "of the CPU: " VARIANTS ": same bits; default auto", 0},
    {"no-graphs", OPT_NO_GRAPHS, NULL, 0, "GPU steps are launched kernel by kernel, not replayed",
     0},
    {"all-reduce", OPT_ALL_REDUCE, NULL, 0,
     "workers on GPUs sum in NCCL's own order, so their bits depend on the number of ranks", 0},
    {"threads", 't', "N", 0,
     "compute threads on the CPU, or auto: a worker's share of the cores, a draft's by its size, "
     "one for benchmarks; default auto",
     0},
    {"pack-cache", OPT_PACK_CACHE, "FOLDER", 0,
     "keeps the CPU's packed weights on disk for the next start: in FOLDER, auto (MODEL/packed; "
     "for synthetic models ~/.cache/outrider) or off; default off",
     0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct backend_options *options = state->input;
    struct error err;
    switch (key) {
    case OPT_DEVICE:
        if (!backend_device_is_known(arg)) {
            argp_failure(state, 2, 0, "--device %s: expected cpu, cuda or cuda:N", arg);
        }
        options->device = arg;
        return 0;
    case OPT_WEIGHTS:
        if (!backend_weights_is_known(arg)) {
            argp_failure(state, 2, 0, "--weights %s: expected bf16, int8, int4 or fp8", arg);
        }
        options->weights = arg;
        return 0;
    case OPT_KERNELS:
        if (!backend_kernels_is_known(arg)) {
            char names[NAMES_BYTES];
            backend_kernels_names(names, sizeof names);
            argp_failure(state, 2, 0, "--kernels %s: expected %s", arg, names);
        }
        options->kernels = arg;
        return 0;
    case OPT_ALL_REDUCE:
        options->all_reduce = true;
        return 0;
    case OPT_NO_GRAPHS:
        options->no_graphs = true;
        return 0;
    case OPT_PACK_CACHE:
        if (!*arg) argp_failure(state, 2, 0, "--pack-cache: expected a folder, auto or off");
        options->pack_cache = arg;
        return 0;
    case 't':
        options->auto_threads = strcmp(arg, "auto") == 0;
        options->n_threads = 1;
        if (!options->auto_threads &&
            options_int(&options->n_threads, "--threads", arg, 1, 256, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Help as argp prints it, with the names of the kernels in place of VARIANTS. argp frees what it
 * gets. */
static char *fill_help(int key, const char *text, void *input)
{
    char names[NAMES_BYTES], filled[HELP_BYTES];
    (void)key;
    (void)input;
    const char *at = text ? strstr(text, VARIANTS) : NULL;
    if (!at) return text ? strdup(text) : NULL;
    backend_kernels_names(names, sizeof names);
    snprintf(filled, sizeof filled, "%.*s%s%s", (int)(at - text), text, names,
             at + strlen(VARIANTS));
    return strdup(filled);
}

const struct argp backend_argp = {
    .options = entries, .parser = parse_option, .help_filter = fill_help};

void backend_options_init(struct backend_options *options)
{
    *options = (struct backend_options){
        .device = "cpu", .kernels = "auto", .n_threads = 1, .auto_threads = true};
}
