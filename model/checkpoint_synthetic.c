/* Synthetic models: a shape, a seed, and elements that are computed when they are read. Element e of a
 * tensor is a 16-bit piece of Philox4x32-10 with key = the hash of (tensor name, seed) and counter =
 * e / 8, made uniform with the wanted mean and standard deviation and rounded to bf16. Whoever reads
 * a part of a tensor, in whatever order, sees the same elements.
 *
 * Scales, with D the width, L the layers of the shape, V the vocabulary:
 *   q k v gate up   1 / sqrt(D): a normed input gives outputs of about 1
 *   o, down         what they add has twice the size of the embedding times 1 / sqrt(2 L), so that
 *                   all layers together outweigh it; with less a tied head is nearly a symmetric
 *                   matrix, and text runs to and fro between two tokens. * tail from layer `core` on
 *   norms           mean 1, deviation 0.1
 *   head            sigma / sqrt(D), so that logits are normal with deviation sigma. The entropy of the
 *                   softmax of V normal numbers is 2 nats at sigma = 1.2 + 0.465 ln V (fitted by
 *                   simulation, V from 256 to 152064, within 0.2 nats)
 *   embedding       1; tied to the head: the head's. The final norm then has mean 0 and deviation 1:
 *                   with weights near 1 a token's own logit would be sqrt(D) deviations above all
 *                   others, and the model would repeat its last token for ever.
 * L is that of the shape, not of layers=L: a draft of the first layers has the target's elements. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/rng.h"
#include "model/checkpoint_internal.h"
#include "model/numerics.h"

enum { SHAPE_BYTES = 1024, CONFIG_MOST_BYTES = 4 << 20, RESIDUAL_GAIN = 2 };

static int read_shape(struct synthetic_model *model, const char *shape, struct error *err)
{
    char names[256];
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    if (checkpoint_named_shape(shape, &model->cfg)) return 0;
    if (!strchr(shape, '/') && !strstr(shape, ".json")) {
        checkpoint_shape_names(names, sizeof names);
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: no shape \"%.100s\"; there are %s, and the path of any "
                         "config.json",
                         shape, names);
    }
    TRY(file_read_text(&text, &len, shape, CONFIG_MOST_BYTES, err));
    TRY(config_parse(&model->cfg, text, len, NULL, 0, shape, err));
out:
    free(text);
    return rc;
}

static int option_error(const char *option, const char *wanted, struct error *err)
{
    return error_set(err, ERR_ARGUMENT, "synthetic model: \"%.100s\" is not %s", option, wanted);
}

/* Digits only: no sign, no space, no rest. */
static int read_number(const char *option, const char *value, uint64_t least, uint64_t most,
                       uint64_t *out, struct error *err)
{
    char wanted[80], *end = NULL;
    snprintf(wanted, sizeof wanted, "a number in %" PRIu64 "..%" PRIu64, least, most);
    if (*value < '0' || *value > '9') return option_error(option, wanted, err);
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno || *end || number < least || number > most) return option_error(option, wanted, err);
    *out = number;
    return 0;
}

static int read_tail(const char *option, const char *value, double *out, struct error *err)
{
    char *end = NULL;
    double tail = strtod(value, &end);
    if (end == value || *end || !(tail >= 0 && tail <= 1)) {
        return option_error(option, "a number in 0..1", err);
    }
    *out = tail;
    return 0;
}

enum { SEEN_SEED = 1, SEEN_LAYERS = 2, SEEN_VOCAB = 4, SEEN_CORE = 8, SEEN_TAIL = 16 };

static int apply_option(struct synthetic_model *model, const char *option, unsigned *seen,
                        struct error *err)
{
    static const char *const keys[] = {"seed=", "layers=", "vocab=", "core=", "tail="};
    uint64_t number = 0;
    int rc = 0;
    size_t i = 0;
    while (i < 5 && strncmp(option, keys[i], strlen(keys[i])) != 0)
        i++;
    if (i == 5) return option_error(option, "one of seed=, layers=, vocab=, core=, tail=", err);
    if (*seen >> i & 1) return option_error(option, "wanted twice", err);
    *seen |= 1u << i;
    const char *value = option + strlen(keys[i]);
    switch (1u << i) {
    case SEEN_SEED:
        return read_number(option, value, 0, UINT64_MAX, &model->seed, err);
    case SEEN_LAYERS:
        TRY(read_number(option, value, 1, 4096, &number, err));
        model->cfg.n_layers = (int)number;
        break;
    case SEEN_VOCAB:
        TRY(read_number(option, value, 2, 1 << 24, &number, err));
        model->cfg.vocab_size = (int)number;
        break;
    case SEEN_CORE:
        TRY(read_number(option, value, 0, 4096, &number, err));
        model->core_layers = (int)number;
        break;
    default:
        return read_tail(option, value, &model->tail, err);
    }
out:
    return rc;
}

/* A smaller vocabulary may have lost the special ids. */
static void drop_lost_ids(struct model_config *cfg)
{
    if (cfg->bos_id >= cfg->vocab_size) cfg->bos_id = -1;
    while (cfg->n_eos > 0 && cfg->eos_ids[cfg->n_eos - 1] >= cfg->vocab_size)
        cfg->n_eos--;
}

static int parse_name(struct synthetic_model *model, const char *name, struct error *err)
{
    char text[SHAPE_BYTES], *rest = NULL;
    unsigned seen = 0;
    int rc = 0;
    if (strlen(name) >= sizeof text) return option_error(name, "a name of this length", err);
    memcpy(text, name, strlen(name) + 1);
    char *shape = strchr(text, ':') + 1;
    char *option = strchr(shape, ',');
    if (option) *option++ = '\0';
    TRY(read_shape(model, shape, err));
    model->shape_layers = model->cfg.n_layers;
    model->tail = 1;
    for (; option; option = rest) {
        rest = strchr(option, ',');
        if (rest) *rest++ = '\0';
        TRY(apply_option(model, option, &seen, err));
    }
    if (!(seen & SEEN_SEED)) rc = option_error(name, "complete: seed= is missing", err);
    if (!rc && !(seen & SEEN_CORE) != !(seen & SEEN_TAIL)) {
        rc = option_error(name, "complete: core= and tail= belong together", err);
    }
    drop_lost_ids(&model->cfg);
out:
    return rc;
}

/* The deviation of the logits at which their softmax has about 2 nats. */
static double logit_deviation(int vocab_size)
{
    return 1.2 + 0.465 * num_log(vocab_size);
}

/* What one output adds to the residual stream, for inputs of size `input` and n of them. */
static double residual_scale(const struct synthetic_model *model, const struct tensor_spec *spec,
                             double embedding, double input, int n)
{
    double share = RESIDUAL_GAIN / sqrt(2.0 * model->shape_layers);
    double scale = embedding * share / (input * sqrt(n));
    return spec->layer >= model->core_layers ? scale * model->tail : scale;
}

static void set_scale(const struct synthetic_model *model, const struct tensor_spec *spec,
                      struct weight *weight)
{
    const struct model_config *cfg = &model->cfg;
    double unit = 1 / sqrt(cfg->dim), head = logit_deviation(cfg->vocab_size) * unit;
    double embedding = cfg->tied_embeddings ? head : 1, scale = 0.1, mean = 1;
    switch (spec->role) {
    case ROLE_EMBEDDING:
        scale = embedding, mean = 0;
        break;
    case ROLE_HEAD:
        scale = head, mean = 0;
        break;
    case ROLE_FINAL_NORM:
        if (cfg->tied_embeddings) scale = 1, mean = 0;
        break;
    case ROLE_NORM:
    case ROLE_HEAD_NORM:
        break;
    case ROLE_FROM_DIM:
        scale = unit, mean = 0;
        break;
    case ROLE_FROM_HEADS:
        scale = residual_scale(model, spec, embedding, 1, spec->n_cols), mean = 0;
        break;
    case ROLE_FROM_FFN: /* silu(g) u has deviation 0.6 for normal g and u */
        scale = residual_scale(model, spec, embedding, 0.6, spec->n_cols), mean = 0;
        break;
    case ROLE_BIAS:
        mean = 0;
        break;
    case ROLE_RESIDUAL_BIAS:
        scale = 0.1 * residual_scale(model, spec, embedding, 1, 1), mean = 0;
        break;
    }
    weight->scale = (float)scale;
    weight->mean = (float)mean;
}

int checkpoint_open_synthetic(struct checkpoint *ck, struct error *err)
{
    struct synthetic_model model = {0};
    int rc = 0;
    TRY(parse_name(&model, ck->name, err));
    ck->cfg = model.cfg;
    TRY(checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err));
    TRY(mem_array(&ck->tensors, ck->n_layout, sizeof *ck->tensors, err));
    for (size_t i = 0; i < ck->n_layout; i++) {
        const struct tensor_spec *spec = &ck->layout[i];
        struct tensor *tensor = &ck->tensors[ck->n_tensors++];
        tensor->name = spec->name;
        tensor->weight = (struct weight){
            .dtype = DTYPE_BF16,
            .n_rows = spec->n_rows,
            .n_cols = spec->n_cols,
            .seed = XXH3_64bits_withSeed(spec->name, strlen(spec->name), model.seed),
        };
        set_scale(&model, spec, &tensor->weight);
    }
out:
    return rc;
}

enum { PIECES = 8, RUN_BLOCKS = 32 };

/* Blocks first .. first + n of eight 16-bit pieces. */
static void fill_blocks(uint64_t seed, uint64_t first, size_t n, uint16_t *pieces)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (size_t i = 0; i < n; i++) {
        uint64_t block = first + i;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), RNG_WEIGHT, 0};
        uint32_t words[4];
        philox4x32(counter, key, words);
        for (int k = 0; k < 4; k++) {
            pieces[i * PIECES + 2 * (size_t)k] = (uint16_t)words[k];
            pieces[i * PIECES + 2 * (size_t)k + 1] = (uint16_t)(words[k] >> 16);
        }
    }
}

void synthetic_read_bf16(const struct weight *weight, uint64_t first, size_t n, uint16_t *out)
{
    uint16_t pieces[RUN_BLOCKS * PIECES];
    const float mean = weight->mean;
    const float step =
        weight->scale * (3.46410162f / 65536.0f); /* sqrt(12): uniform to deviation 1 */
    while (n > 0) {
        size_t skip = first % PIECES, n_blocks = (skip + n + PIECES - 1) / PIECES;
        if (n_blocks > RUN_BLOCKS) n_blocks = RUN_BLOCKS;
        size_t n_here = n_blocks * PIECES - skip < n ? n_blocks * PIECES - skip : n;
        fill_blocks(weight->seed, first / PIECES, n_blocks, pieces);
        for (size_t i = 0; i < n_here; i++) {
            out[i] = num_float_to_bf16(mean + ((float)pieces[skip + i] - 32767.5f) * step);
        }
        first += n_here;
        out += n_here;
        n -= n_here;
    }
}
