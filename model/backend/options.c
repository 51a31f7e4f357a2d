/* The options of the command line that choose a backend. */
#include "model/backend/options.h"

#include <string.h>

#include "base/text/options.h"

enum { THREADS_MAX = 256 };

#define FIELD(member) OPTION_FIELD(struct backend_options, member)

static int read_threads(void *fields, const char *option, const char *text, struct error *err)
{
    struct backend_options *backend = fields;
    backend->auto_threads = strcmp(text, "auto") == 0;
    backend->n_threads = 1;
    if (backend->auto_threads) return 0;
    return options_int(&backend->n_threads, option, text, 1, THREADS_MAX, err);
}

static int read_pack_cache(void *field, const char *option, const char *text, struct error *err)
{
    if (!*text) return error_set(err, ERR_ARGUMENT, "%s: expected a folder, auto or off", option);
    *(const char **)field = text;
    return 0;
}

const struct option_row backend_rows[] = {
    OPTION_GROUP("Where the model runs", "--device=cuda:0 --weights=fp8"),
    {"device", 0, "NAME", FIELD(device), .is_known = backend_device_is_known, .standard = "cpu",
     .expected = "cpu, cuda or cuda:N",
     .help = "cpu, cuda:N, or cuda: a worker takes the GPU of its rank's number, others take "
             "GPU 0"},
    {"weights", 0, "FORM", FIELD(weights), .is_known = backend_weights_is_known,
     .expected = "bf16, int8, int4 or fp8",
     .help = "bf16; on the CPU also int8, int4; on GPUs also fp8; default: as the model is "
             "stored"},
    {"kernels", 0, "NAME", FIELD(kernels), .is_known = backend_kernels_is_known,
     .names = backend_kernels_names, .expected = "NAMES", .standard = "auto",
     .help = "of the CPU: NAMES: same bits"},
    {"no-graphs", 0, NULL, FIELD(no_graphs),
     .help = "GPU steps are launched kernel by kernel, not replayed"},
    {"all-reduce", 0, NULL, FIELD(all_reduce),
     .help = "workers on GPUs sum in NCCL's own order, so their bits depend on the number of "
             "ranks"},
    {"threads", 't', "N", .read = read_threads, .standard = "auto",
     .help = "compute threads on the CPU, or auto: a worker's share of the cores, a draft's by "
             "its size, one for benchmarks"},
    {"pack-cache", 0, "FOLDER", OPTION_READ(struct backend_options, pack_cache, read_pack_cache),
     .help = "keeps the CPU's packed weights on disk for the next start: in FOLDER, auto "
             "(MODEL/packed; for synthetic models ~/.cache/outrider) or off; default off"},
    {0},
};
