/* Finds and opens the backend that an option names. */
#include "model/backend/open.h"

#include <string.h>

#include "base/text/options.h"
#include "model/backend/cpu/cpu.h"
#ifdef OUTRIDER_CUDA
#include "model/backend/cuda/cuda.h"
#endif

/* *ordinal is -1 where no GPU is named. */
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

bool backend_weights_is_known(const char *weights)
{
    struct error err;
    enum weight_form form;
    return strcmp(weights, "fp8") == 0 || weight_form_find(&form, weights, &err) == 0;
}

bool backend_kernels_is_known(const char *kernels)
{
    return backend_cpu_kernels_is_known(kernels);
}

void backend_kernels_names(char *text, size_t size)
{
    backend_cpu_kernels_names(text, size);
}

/* NULL where packed weights are not kept. */
static const char *pack_folder(const struct backend_options *options)
{
    bool is_off = !options->pack_cache || strcmp(options->pack_cache, "off") == 0;
    return is_off ? NULL : options->pack_cache;
}

static int open_cpu(struct backend **be, const struct backend_options *options, struct error *err)
{
    struct backend_cpu_options cpu = {.kernels = options->kernels, .n_threads = options->n_threads};
    if (strcmp(options->weights, "fp8") == 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "--weights fp8: the CPU has bf16, int8 and int4; fp8 needs --device cuda");
    }
    if (options->stored == WEIGHTS_BLOCKS) {
        cpu.form = WEIGHTS_BLOCKS; /* resolve_weights has refused others */
        return backend_cpu_open(be, &cpu, err);
    }
    int rc = weight_form_find(&cpu.form, options->weights, err);
    return rc ? rc : backend_cpu_open(be, &cpu, err);
}

/* Opens the CPU backend and sets where its packed weights are kept and its threads run. */
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
                                        .all_reduce = options->all_reduce,
                                        .stored = options->stored};
    if (strcmp(options->weights, "fp8") == 0) {
        cuda.weights = CUDA_WEIGHTS_FP8;
    } else if (options->stored != WEIGHTS_BF16) {
        cuda.weights = CUDA_WEIGHTS_BLOCKS;
    } else if (strcmp(options->weights, "bf16") != 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--weights %s: a GPU has bf16 and fp8 for a model that is stored in bf16",
                         options->weights);
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

/* A model that is stored in int8, int4 or blocks has no other weights. Blocks are not converted to
 * bf16 either, because that would round them. */
static int resolve_weights(struct backend_options *options, struct error *err)
{
    const char *stored = weight_form_name(options->stored);
    if (!options->weights) options->weights = stored;
    if (options->stored == WEIGHTS_BF16 || strcmp(options->weights, stored) == 0) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--weights %s: the model is stored in %s and has no other weights; leave the "
                     "option out, or take the model it was made from",
                     options->weights, stored);
}

int backend_open(struct backend **be, const struct backend_options *options, struct error *err)
{
    int ordinal;
    struct backend_options resolved = *options;
    *be = NULL;
    int rc = resolve_weights(&resolved, err);
    if (rc) return rc;
    if (strcmp(options->device, "cpu") == 0) return place_cpu(be, &resolved, err);
    if (parse_cuda(options->device, &ordinal)) {
        if (!pack_folder(options)) return open_cuda(be, &resolved, ordinal, err);
        return error_set(err, ERR_ARGUMENT,
                         "--pack-cache %s: packed weights are kept for --device cpu alone, not %s",
                         options->pack_cache, options->device);
    }
    return error_set(err, ERR_ARGUMENT, "--device %s: expected cpu, cuda or cuda:N",
                     options->device);
}
