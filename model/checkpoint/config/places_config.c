/* The config.json of heads of places, and how their files name tensors. */
#include "model/checkpoint/config/places_config.h"

#include <stdio.h>
#include <string.h>

/* A head of places reads no positions, so that no text is too long for it. */
enum { CLAIMS_MOST = 1024, POSITIONS_ALL = 1 << 30 };

enum places_format places_config_find(const json_t *root)
{
    const char *type = json_string_value(json_member(root, "model_type"));
    const char *first = json_string_value(json_array_get(json_member(root, "architectures"), 0));
    if (type && strcmp(type, "blockwise") == 0) return PLACES_BLOCKWISE;
    if (json_member(root, "medusa_num_heads")) return PLACES_MEDUSA;
    if (type && strcmp(type, "medusa") == 0) return PLACES_MEDUSA;
    return first && strstr(first, "Medusa") ? PLACES_MEDUSA : PLACES_NONE;
}

/* The numbers of attention only say into how many slices the vocabulary is cut. */
static void fill(struct model_config *cfg, const char *architecture)
{
    *cfg = (struct model_config){.n_heads = SLICES_MAX,
                                 .n_kv_heads = SLICES_MAX,
                                 .head_dim = 2 * SLICES_MAX,
                                 .ffn_dim = 2 * SLICES_MAX,
                                 .max_positions = POSITIONS_ALL,
                                 .norm_eps = 1e-5f,
                                 .ropes = {{.theta = 10000}},
                                 .bos_id = -1};
    snprintf(cfg->architecture, sizeof cfg->architecture, "%s", architecture);
}

static int read_medusa(struct places_claims *claims, const json_t *root, const char *origin,
                       struct error *err)
{
    static const struct {
        const char *key;
        bool is_blocks;
    } keys[] = {{"num_heads", false},
                {"medusa_num_heads", false},
                {"num_hidden_layers", true},
                {"medusa_num_layers", true}};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int *out = keys[i].is_blocks ? &claims->n_blocks : &claims->n;
        TRY(json_read_int(root, keys[i].key, 1, CLAIMS_MOST, out, origin, err));
    }
out:
    return rc;
}

static int read_blockwise(struct places_claims *claims, const json_t *root, const char *origin,
                          struct error *err)
{
    int k = 0, rc = 0;
    TRY(json_read_int(root, "block_size", 2, CLAIMS_MOST, &k, origin, err));
    if (k == 0) {
        return error_set(err, ERR_FORMAT,
                         "%s lacks \"block_size\", the number of tokens that the model and its "
                         "heads predict together",
                         origin);
    }
    claims->n = k - 1;
out:
    return rc;
}

int places_config_parse(enum places_format format, struct places_claims *claims,
                        struct model_config *cfg, const json_t *root, const char *origin,
                        struct error *err)
{
    double scale = 0;
    int rc = 0;
    bool is_medusa = format == PLACES_MEDUSA;
    fill(cfg, is_medusa ? "MedusaModel" : "Blockwise");
    if (is_medusa) {
        TRY(read_medusa(claims, root, origin, err));
    } else {
        TRY(read_blockwise(claims, root, origin, err));
    }
    TRY(json_read_double(root, "logit_scale", &scale, origin, err));
    if (!(scale >= 0 && scale <= 1e6)) {
        rc = error_set(err, ERR_FORMAT, "%s: \"logit_scale\" = %g is outside of 0..1e6", origin,
                       scale);
        goto out;
    }
    if (scale != 0 && scale != 1) cfg->logit_scale = (float)scale;
out:
    return rc;
}

const char *places_name(const struct head_places *p, enum place_tensor which, int place, int block,
                        char text[PLACE_NAME_BYTES])
{
    static const char *const shared[] = {[PLACE_HIDDEN] = "hidden.weight",
                                         [PLACE_HIDDEN_BIAS] = "hidden.bias",
                                         [PLACE_OUTPUT] = "output.weight",
                                         [PLACE_OUTPUT_BIAS] = "output.bias"};
    const char *tail = which == PLACE_BIAS ? "bias" : "weight";
    if (which >= PLACE_HIDDEN) {
        snprintf(text, PLACE_NAME_BYTES, "%s", shared[which]);
    } else if (which == PLACE_LOGITS && p->is_listed) {
        snprintf(text, PLACE_NAME_BYTES, "%slm_heads.%d.weight", p->root, place);
    } else if (which == PLACE_LOGITS) {
        snprintf(text, PLACE_NAME_BYTES, "%s%d.%d.weight", p->root, place, p->n_blocks);
    } else if (p->is_listed) {
        snprintf(text, PLACE_NAME_BYTES, "%sblocks.%d.layers.%d.%s", p->root, place, block, tail);
    } else {
        snprintf(text, PLACE_NAME_BYTES, "%s%d.%d.linear.%s", p->root, place, block, tail);
    }
    return text;
}
