/* Keys of block drafters. Sources: z-lab's dflash/model.py, vLLM's qwen3_dflash.py and
 * qwen3_dspark.py, DeepSpec's dspark, speculators' dflash and dspark. */
#include "model/checkpoint/config/block_config.h"

#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"

enum { RANK_MAX = 4096, RANK_UNIT = 16 };

/* Some say how the drafter was trained and are not read. */
static const char *const keys[] = {
    "add_swa_attention_sink_bias",
    "attention_mode",
    "attention_sink_bias",
    "attention_value_scale",
    "aux_hidden_state_layer_ids",
    "block_size",
    "causal",
    "confidence_head_alpha",
    "confidence_head_with_markov",
    "dflash_config",
    "dflash_query_causal",
    "enable_confidence_head",
    "enable_qwen35_gated_q_proj",
    "final_logit_softcapping",
    "input_embedding_scale",
    "is_causal",
    "is_neox_style",
    "log_snr_conditioning",
    "markov_head_type",
    "markov_rank",
    "mask_token_id",
    "num_anchors",
    "num_target_layers",
    "output_multiplier",
    "projector_type",
    "sample_from_anchor",
    "sliding_window_non_causal",
    "swa_window_size",
    "target_layer_ids",
    "use_swa",
};

enum { N_KEYS = sizeof keys / sizeof *keys };

static bool is_known(const char *key)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

bool block_config_strip(json_t *layers, json_t *inner)
{
    const char *key;
    json_t *value;
    bool is_short = false;
    for (size_t i = 0; i < N_KEYS; i++) {
        json_object_del(layers, keys[i]);
    }
    json_object_foreach(inner, key, value)
    {
        if (is_known(key) || json_object_get(layers, key)) continue;
        is_short = json_object_set(layers, key, value) || is_short;
    }
    return !is_short;
}

/* The object that has the key. */
static const json_t *owner(const struct block_source *in, const char *key)
{
    return json_member(in->root, key) ? in->root : in->inner;
}

static int read_flag(const struct block_source *in, const char *key, bool *out, struct error *err)
{
    return json_read_bool(owner(in, key), key, out, in->origin, err);
}

static int refuse(const struct block_source *in, const char *key, const char *meaning,
                  struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s asks for %s, which is not supported",
                     in->origin, key, config_keys_show(json_member(owner(in, key), key), shown),
                     meaning);
}

/* Refuses what would change the guesses and is not computed. */
static int check_kind(const struct block_source *in, struct error *err)
{
    static const struct {
        const char *key, *usual, *meaning;
    } words[] = {
        {"markov_head_type", "vanilla", "a chain that reads more than the guess before"},
        {"attention_mode", "gqa", "another kind of attention"},
    };
    static const struct {
        const char *key;
        bool usual;
        const char *meaning;
    } flags[] = {
        {"is_neox_style", true, "a rotation of neighbouring elements"},
        {"use_swa", false, "a window in every layer"},
        {"attention_sink_bias", false, "sinks of attention"},
        {"add_swa_attention_sink_bias", false, "sinks of attention"},
        {"dflash_query_causal", false, "a mask of its own for the block"},
        {"log_snr_conditioning", false, "a level of noise as input"},
        {"enable_qwen35_gated_q_proj", false, "gates of attention"},
    };
    double value_scale = 1;
    int rc = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = words[i].usual;
        TRY(json_read_string(owner(in, words[i].key), words[i].key, &word, in->origin, err));
        if (strcmp(word, words[i].usual) != 0)
            return refuse(in, words[i].key, words[i].meaning, err);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool is_on = flags[i].usual;
        TRY(read_flag(in, flags[i].key, &is_on, err));
        if (is_on != flags[i].usual) return refuse(in, flags[i].key, flags[i].meaning, err);
    }
    TRY(json_read_double(owner(in, "attention_value_scale"), "attention_value_scale", &value_scale,
                         in->origin, err));
    if (value_scale != 1) rc = refuse(in, "attention_value_scale", "scaled values", err);
out:
    return rc;
}

/* The features side by side have the order of the list, and a target gives them by its layers. */
static int read_layers(struct block_layers *layers, const struct block_source *in,
                       struct error *err)
{
    static const char of_outputs[] = "target_layer_ids", at_top[] = "aux_hidden_state_layer_ids";
    bool is_at_top = json_member(in->root, at_top) != NULL;
    const char *key = is_at_top ? at_top : of_outputs;
    const json_t *list = json_member(owner(in, key), key);
    int rc = 0;
    if (!list) {
        return error_set(err, ERR_FORMAT,
                         "%s lacks \"%s\", the layers of the target whose outputs it reads",
                         in->origin, in->is_speculators ? at_top : of_outputs);
    }
    TRY(head_ids_read(layers->ids, &layers->n, list, key, in->origin, err));
    layers->are_outputs = !is_at_top;
    for (int i = 0; i < layers->n; i++) {
        if (json_integer_value(json_array_get(list, (size_t)i)) == layers->ids[i]) continue;
        return error_set(err, ERR_FORMAT, "%s: the layers of \"%s\" must ascend", in->origin, key);
    }
out:
    return rc;
}

/* Reads if rows see those of the block after them: one answer for all layers, or one for layers
 * with a window and another one for the others. */
static int read_causality(struct head_block *block, const struct block_source *in,
                          struct error *err)
{
    bool is_causal = false, is_open = false;
    const char *key = json_member(in->root, "is_causal") ? "is_causal" : "causal";
    const json_t *object = *key == 'i' ? in->root : in->inner;
    int rc = 0;
    block->window_is_causal = true;
    TRY(json_read_bool(object, key, &is_causal, in->origin, err));
    if (json_member(object, key)) block->is_causal = block->window_is_causal = is_causal;
    if (!in->is_speculators) goto out;
    TRY(read_flag(in, "sliding_window_non_causal", &is_open, err));
    block->window_is_causal = !is_open;
out:
    return rc;
}

static int read_chain(struct head_block *block, const struct block_source *in, struct error *err)
{
    static const char key[] = "markov_rank";
    int rc = 0;
    if (!in->is_dspark) return 0;
    if (!json_member(owner(in, key), key)) {
        return error_set(err, ERR_FORMAT,
                         "%s lacks \"%s\", the width of the chain of guesses; 0 is none",
                         in->origin, key);
    }
    TRY(json_read_int(owner(in, key), key, 0, RANK_MAX, &block->rank, in->origin, err));
    if (block->rank % RANK_UNIT) {
        rc = error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %d is no multiple of %d", in->origin,
                       key, block->rank, RANK_UNIT);
    }
out:
    return rc;
}

/* Scales that some drafters have and the config of their layers does not know. */
static int read_scales(struct model_config *cfg, const struct block_source *in, struct error *err)
{
    const struct {
        const char *key;
        float *out;
    } scales[] = {{"input_embedding_scale", &cfg->embedding_scale},
                  {"output_multiplier", &cfg->logit_scale},
                  {"final_logit_softcapping", &cfg->logit_softcap}};
    int rc = 0;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        double scale = 0;
        TRY(json_read_double(owner(in, scales[i].key), scales[i].key, &scale, in->origin, err));
        if (!(scale >= 0 && scale <= 1e6)) {
            return error_set(err, ERR_FORMAT, "%s: \"%s\" = %g is outside of 0..1e6", in->origin,
                             scales[i].key, scale);
        }
        bool is_cap = scales[i].out == &cfg->logit_softcap;
        if (scale != 0 && (is_cap || scale != 1)) *scales[i].out = (float)scale;
    }
out:
    return rc;
}

/* Properties that do not go together. */
static int check_block(const struct head_block *block, const struct model_config *cfg,
                       const char *origin, struct error *err)
{
    if (block->rank > 0 && (cfg->logit_scale != 0 || cfg->logit_softcap != 0)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: logits that are scaled or capped are not supported together with "
                         "\"markov_rank\"",
                         origin);
    }
    for (int i = 0; i < cfg->n_layers && !block->window_is_causal; i++) {
        int window = config_layer(cfg, i)->window;
        if (window == 0 || window >= block->size) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: rows that see later ones through a window of %d cannot be in a block "
                         "of %d",
                         origin, window, block->size);
    }
    return 0;
}

int block_config_parse(struct head_block *block, struct block_layers *layers,
                       struct model_config *cfg, const struct block_source *in, struct error *err)
{
    int rc = 0;
    *block = (struct head_block){.from_anchor = in->is_dspark};
    *layers = (struct block_layers){0};
    TRY(check_kind(in, err));
    TRY(read_layers(layers, in, err));
    if (!json_member(owner(in, "block_size"), "block_size")) {
        return error_set(err, ERR_FORMAT, "%s lacks \"block_size\", the rows of a block",
                         in->origin);
    }
    TRY(json_read_int(owner(in, "block_size"), "block_size", 2, HEAD_BLOCK_MAX, &block->size,
                      in->origin, err));
    TRY(read_flag(in, "sample_from_anchor", &block->from_anchor, err));
    TRY(read_causality(block, in, err));
    TRY(read_chain(block, in, err));
    TRY(read_scales(cfg, in, err));
    TRY(check_block(block, cfg, in->origin, err));
out:
    return rc;
}
