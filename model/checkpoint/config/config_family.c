/* The keys in which the families differ. Defaults are those of the configuration classes of
 * transformers; a factor of 1 and a limit of null are read as zero, which means none. */
#include "model/checkpoint/config/config_family.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"

struct reading {
    const json_t *root;
    const struct model_family *family;
    const char *origin;
};

void config_family_apply(struct model_config *cfg, const struct model_family *family)
{
    cfg->qk_norm = family->qk_norm;
    cfg->qk_norm_whole = family->qk_norm_whole;
    cfg->norms = family->norms;
    cfg->norm_offset = family->norm_offset;
    cfg->activation = family->activation;
    if (family->scales_embedding) cfg->embedding_scale = sqrtf((float)cfg->dim);
}

static int unsupported(const struct reading *in, const char *key, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s is not supported for a %s model",
                     in->origin, key, config_keys_show(json_object_get(in->root, key), shown),
                     in->family->model_type);
}

/* A positive factor or limit; *out stays where the key is missing, and is 0 where it is null. */
static int read_factor(const struct reading *in, const char *key, double *out, struct error *err)
{
    double value = 0;
    const json_t *there = json_object_get(in->root, key);
    if (!there || !family_has_key(in->family, key)) return 0;
    int rc = json_read_double(in->root, key, &value, in->origin, err);
    if (rc) return rc;
    if (!json_is_null(there) && !(value >= 1e-6 && value <= 1e6)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" = %g is outside of [1e-6, 1e6]", in->origin,
                         key, value);
    }
    *out = value;
    return 0;
}

static float factor_of(double value)
{
    return value == 1 ? 0 : (float)value;
}

static int read_scales(struct model_config *cfg, struct layer_kind *kind, const struct reading *in,
                       struct error *err)
{
    const struct model_family *family = in->family;
    double scalar = family->query_scalar, scale = family->attention_scale;
    double attention_cap = family->attention_softcap, logit_cap = family->logit_softcap;
    double embedding = 1, residual = 1, logits = 1;
    int rc = 0;
    TRY(read_factor(in, "query_pre_attn_scalar", &scalar, err));
    TRY(read_factor(in, "attention_multiplier", &scale, err));
    TRY(read_factor(in, "attn_logit_softcapping", &attention_cap, err));
    TRY(read_factor(in, "final_logit_softcapping", &logit_cap, err));
    TRY(read_factor(in, "embedding_multiplier", &embedding, err));
    TRY(read_factor(in, "residual_multiplier", &residual, err));
    TRY(read_factor(in, "logits_scaling", &logits, err));
    if (scalar > 0) scale = 1 / sqrt(scalar);
    kind->attention_scale = (float)scale;
    kind->attention_softcap = (float)attention_cap;
    kind->residual_scale = factor_of(residual);
    cfg->logit_softcap = (float)logit_cap;
    cfg->logit_scale = logits > 0 ? factor_of(1 / logits) : 0;
    if (!family->scales_embedding) cfg->embedding_scale = factor_of(embedding);
out:
    return rc;
}

/* Families whose gate is gelu have no other, and a name under either key that says so. */
static int check_activation(const struct reading *in, struct error *err)
{
    static const char *const keys[] = {"hidden_activation", "hidden_act"};
    for (size_t i = 0; i < 2 && in->family->activation == ACTIVATION_GELU_TANH; i++) {
        const json_t *value = json_member(in->root, keys[i]);
        const char *name = json_string_value(value);
        if (value && (!name || strcmp(name, "gelu_pytorch_tanh") != 0)) {
            return unsupported(in, keys[i], err);
        }
    }
    return 0;
}

static bool is_attention(const json_t *name)
{
    const char *text = json_string_value(name);
    return text && (strcmp(text, "attention") == 0 || strcmp(text, "full_attention") == 0);
}

static int check_layer_types(const struct reading *in, const char *key, struct error *err)
{
    const json_t *list = json_member(in->root, key), *name;
    size_t i;
    json_array_foreach(list, i, name)
    {
        if (is_attention(name)) continue;
        char shown[CONFIG_VALUE_BYTES];
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"%s\" has %s for layer %zu, but of a %s model only layers of "
                         "attention are supported",
                         in->origin, key, config_keys_show(name, shown), i, in->family->model_type);
    }
    return 0;
}

/* A model that could have experts and Mamba layers beside what is computed here: it must say that
 * it has none. */
static int read_hybrid(struct layer_kind *kind, const struct reading *in, struct error *err)
{
    const char *positions = NULL;
    int n_experts = -1, rc = 0;
    TRY(json_read_int(in->root, "num_local_experts", 0, 1 << 20, &n_experts, in->origin, err));
    if (n_experts != 0) return unsupported(in, "num_local_experts", err);
    if (!json_member(in->root, "layer_types") && !json_member(in->root, "layers_block_type")) {
        return error_set(err, ERR_FORMAT, "%s lacks \"layer_types\"", in->origin);
    }
    TRY(check_layer_types(in, "layer_types", err));
    TRY(check_layer_types(in, "layers_block_type", err));
    TRY(json_read_string(in->root, "position_embedding_type", &positions, in->origin, err));
    if (!positions || strcmp(positions, "nope") == 0) {
        kind->rope = ROPE_NONE;
    } else if (strcmp(positions, "rope") != 0) {
        return unsupported(in, "position_embedding_type", err);
    }
out:
    return rc;
}

int config_family_read(struct model_config *cfg, struct layer_kind *kind, const json_t *root,
                       const struct model_family *family, const char *origin, struct error *err)
{
    const struct reading in = {.root = root, .family = family, .origin = origin};
    int rc = 0;
    config_family_apply(cfg, family);
    TRY(check_activation(&in, err));
    TRY(read_scales(cfg, kind, &in, err));
    if (family->tensors == TENSORS_OF_SHARED_MLP) TRY(read_hybrid(kind, &in, err));
out:
    return rc;
}
