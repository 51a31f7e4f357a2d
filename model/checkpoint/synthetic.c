/* Synthetic models: a shape, a seed, and elements that are computed when they are read
 * (model/numerics/synthetic_elements.h). A tensor's random stream is the hash of its name and the
 * model's seed.
 *
 * Scales, with D the width, L the layers of the shape, V the vocabulary:
 *   q k v gate up   1 / sqrt(D): a normed input gives outputs of about 1
 *   o, down         what they add has twice the size of the embedding times 1 / sqrt(2 L), so that
 *                   all layers together outweigh it; with less, a tied head is nearly a symmetric
 *                   matrix, and text alternates between two tokens. From layer `core` on all of
 *                   this is multiplied by `tail`
 *   norms           mean 1, deviation 0.1
 *   head            sigma / sqrt(D), so that logits are normal with deviation sigma. The entropy of
 *                   the softmax of V normal numbers is 2 nats at sigma = 1.2 + 0.465 ln V (fitted
 *                   by simulation, V from 256 to 152064, within 0.2 nats)
 *   embedding       1, or the head's where the two are tied. Then the final norm has mean 0 and
 *                   deviation 1: with weights near 1 a token's own logit would be sqrt(D)
 *                   deviations above all others, and the model would repeat its last token for ever
 * L is that of the shape, not of layers=L, so that a draft of the first layers has the target's
 * elements. With agree=A it is the core's, so that the core alone outweighs the embedding:
 * otherwise a core of one layer among 24 would leave a tied head symmetric, and its texts would
 * alternate. */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "model/checkpoint/internal.h"
#include "model/checkpoint/synthetic_agree.h"

enum { RESIDUAL_GAIN = 2 };

/* The scale of an output that is added to the residual stream, for inputs of size `input` and n of
 * them. */
static double residual_scale(const struct synthetic_model *model, const struct tensor_spec *spec,
                             double embedding, double input, int n)
{
    double share = RESIDUAL_GAIN / sqrt(2.0 * model->share_layers);
    double scale = embedding * share / (input * sqrt(n));
    return spec->layer >= model->core_layers ? scale * model->tail : scale;
}

static void set_scale(const struct synthetic_model *model, const struct tensor_spec *spec,
                      struct weight *weight)
{
    const struct model_config *cfg = &model->cfg;
    double unit = 1 / sqrt(cfg->dim), head = synthetic_logit_deviation(cfg->vocab_size) * unit;
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
        if (cfg->norm_offset) mean = 0;
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

/* Makes blocks of a matrix that is multiplied, also of an embedding that is the head. */
static int set_block(const struct synthetic_model *model, const struct tensor_spec *spec,
                     struct weight *weight, struct error *err)
{
    bool is_matrix = spec->role == ROLE_FROM_DIM || spec->role == ROLE_FROM_HEADS ||
                     spec->role == ROLE_FROM_FFN || spec->role == ROLE_HEAD ||
                     (spec->role == ROLE_EMBEDDING && model->cfg.tied_embeddings);
    if (!model->block || !is_matrix) return 0;
    const struct block_type *type = block_type_of(model->block);
    if (spec->n_cols % type->n_elements) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: %s has rows of %d, which are no whole blocks of %d of "
                         "%s",
                         spec->name, spec->n_cols, type->n_elements, type->name);
    }
    weight->dtype = DTYPE_BLOCKS;
    weight->block = model->block;
    return 0;
}

int checkpoint_open_synthetic(struct checkpoint *ck, struct config_rest *rest, struct error *err)
{
    struct synthetic_model model = {0};
    int rc = 0;
    TRY(synthetic_parse_name(&model, ck->name, err));
    ck->cfg = model.cfg;
    *rest = model.rest;
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
        TRY(set_block(&model, spec, &tensor->weight, err));
    }
out:
    return rc;
}
