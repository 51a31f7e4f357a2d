#include "model/backend_open.h"

#include <string.h>

#include "base/options.h"
#ifdef OUTRIDER_CUDA
#include "model/backend_cuda.h"
#endif

/* *ordinal: -1 where none is named. */
static bool parse_cuda(const char *device, int *ordinal)
{
    struct error err;
    *ordinal = -1;
    if (strcmp(device, "cuda") == 0) return true;
    return strncmp(device, "cuda:", 5) == 0 &&
           options_int(ordinal, "--device cuda:", device + 5, 0, 255, &err) == 0;
}

bool backend_device_is_known(const char *device)
{
    int ordinal;
    return strcmp(device, "cpu") == 0 || parse_cuda(device, &ordinal);
}

/* NULL: packed weights are not kept. */
static const char *pack_folder(const struct backend_options *options)
{
    bool is_off = !options->pack_cache || strcmp(options->pack_cache, "off") == 0;
    return is_off ? NULL : options->pack_cache;
}

static int open_cpu(struct backend **be, const struct backend_options *options, struct error *err)
{
    const struct backend_cpu_options cpu = {options->kernels, options->n_threads};
    if (strcmp(options->weights, "bf16") != 0) {
        return error_set(err, ERR_UNSUPPORTED, "--weights %s: the CPU has bf16 alone",
                         options->weights);
    }
    return backend_cpu_open(be, &cpu, err);
}

/* The CPU backend, and where its weights are kept and its threads run. */
static int place_cpu(struct backend **be, const struct backend_options *options, struct error *err)
{
    int rc = 0;
    TRY(open_cpu(be, options, err));
    (*be)->pack_folder = pack_folder(options);
    if (options->cpus) TRY(backend_cpu_pin(*be, options->cpus, err));
out:
    if (rc && *be) {
        (*be)->ops->close(*be);
        *be = NULL;
    }
    return rc;
}

#ifdef OUTRIDER_CUDA

static int open_cuda(struct backend **be, const struct backend_options *options, int ordinal,
                     struct error *err)
{
    struct backend_cuda_options cuda = {.device = ordinal,
                                        .rank = options->rank,
                                        .no_graphs = options->no_graphs,
                                        .all_reduce = options->all_reduce};
    if (strcmp(options->weights, "fp8") == 0) {
        cuda.weights = CUDA_WEIGHTS_FP8;
    } else if (strcmp(options->weights, "bf16") != 0) {
        return error_set(err, ERR_ARGUMENT, "--weights %s: expected bf16 or fp8", options->weights);
    }
    return backend_cuda_open(be, &cuda, err);
}

#else

static int open_cuda(struct backend **be, const struct backend_options *options, int ordinal,
                     struct error *err)
{
    (void)be;
    (void)ordinal;
    return error_set(err, ERR_UNSUPPORTED,
                     "--device %s: this build has no CUDA backend (cmake --preset cuda makes one)",
                     options->device);
}

#endif

int backend_open(struct backend **be, const struct backend_options *options, struct error *err)
{
    int ordinal;
    *be = NULL;
    if (strcmp(options->device, "cpu") == 0) return place_cpu(be, options, err);
    if (parse_cuda(options->device, &ordinal)) {
        if (!pack_folder(options)) return open_cuda(be, options, ordinal, err);
        return error_set(err, ERR_ARGUMENT,
                         "--pack-cache %s: packed weights are kept for --device cpu alone, not %s",
                         options->pack_cache, options->device);
    }
    return error_set(err, ERR_ARGUMENT, "--device %s: expected cpu, cuda or cuda:N",
                     options->device);
}
