/* ctest: libs=checkpoint */
/* config.json and generation_config.json: the input is both, cut at the first zero byte. What is
 * accepted must be something that other code can size its arrays by. The first text is also read as
 * that of a head. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/config/head_config.h"
#include "model/checkpoint/head_readings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check(const struct model_config *cfg)
{
    int slices = config_slices(cfg);
    demand(cfg->n_layers > 0 && cfg->dim > 0 && cfg->dim % 2 == 0);
    demand(cfg->ffn_dim > 0 && cfg->ffn_dim % 2 == 0 && cfg->vocab_size > 0);
    demand(cfg->n_heads % cfg->n_kv_heads == 0 && cfg->head_dim % 16 == 0);
    demand((int64_t)cfg->n_heads * cfg->head_dim <= 1 << 20);
    demand(slices >= 1 && slices <= 8 && cfg->n_heads % slices == 0);
    demand(cfg->max_positions > 0);
    for (int i = 0; i < cfg->n_layers; i++) {
        const struct layer_kind *kind = config_layer(cfg, i);
        demand(kind->window >= 0 && kind->rope >= ROPE_NONE && kind->rope < ROPES_MAX);
        demand(kind->attention_scale >= 0 && kind->attention_scale <= 1e6f);
        demand(kind->attention_softcap >= 0 && kind->residual_scale >= 0);
    }
    for (int i = 0; i < config_n_ropes(cfg); i++) {
        const struct rope_config *rope = &cfg->ropes[i];
        demand(rope->theta > 1 && rope->factor > 0 && rope->attention_factor > 0);
        demand(rope->rotary_dim >= 0 && rope->rotary_dim < cfg->head_dim &&
               rope->rotary_dim % 2 == 0);
        demand(rope->kind != ROPE_LONG || rope->divisors[0] > 0);
    }
    demand(cfg->logit_scale >= 0 && cfg->logit_softcap >= 0 && cfg->embedding_scale >= 0);
    demand(cfg->query_period >= 0);
    demand(cfg->norm_eps > 0 && cfg->ends.n <= END_IDS_MAX && cfg->bos_id < cfg->vocab_size);
    for (int i = 0; i < cfg->ends.n; i++) {
        demand(cfg->ends.ids[i] >= 0 && cfg->ends.ids[i] < cfg->vocab_size);
        demand(i == 0 || cfg->ends.ids[i] > cfg->ends.ids[i - 1]);
    }
}

static void check_head(const char *text, size_t len)
{
    struct head_config head;
    struct head_claims claims;
    struct model_config cfg;
    struct config_rest rest;
    struct head_reading readings[HEAD_READINGS_MAX];
    struct error err;
    char shown[HEAD_READING_BYTES];
    int n = 0;
    head_config_is_head(text, len);
    if (head_config_parse(&head, &claims, &cfg, &rest, text, len, "fuzz", &err)) return;
    if (head.format == HEAD_MEDUSA || head.format == HEAD_BLOCKWISE) { /* tensors say the rest */
        demand(cfg.n_layers == 0 && cfg.dim == 0 && cfg.vocab_size == 0 && cfg.logit_scale >= 0);
        demand(claims.places.n >= 0 && claims.places.n <= 1024);
        demand(claims.places.n_blocks >= 0 && claims.places.n_blocks <= 1024);
        return;
    }
    check(&cfg);
    demand(claims.target_dim >= 0 && claims.target_dim <= 1 << 20);
    demand(claims.n_features >= 0 && claims.n_features <= HEAD_FEATURES_MAX);
    demand(claims.n_columns >= 0 && claims.n_columns <= 1 << 24);
    demand(head.mask_token_id >= -1 && head.mask_token_id < cfg.vocab_size);
    demand(head.n_ids >= 0 && head.n_ids <= HEAD_FEATURES_MAX);
    for (int i = 0; i < head.n_ids; i++) {
        demand(head.ids[i] >= 0 && head.ids[i] <= LAYERS_MAX);
        demand(i == 0 || head.ids[i] > head.ids[i - 1]);
    }
    const struct head_block *block = &head.block;
    demand(block->size == 0 || (block->size >= 2 && block->size <= HEAD_BLOCK_MAX));
    demand(block->size == 0 || (head.mask_token_id >= 0 && head.n_ids > 0));
    demand(block->rank >= 0 && block->rank % 16 == 0 && (block->rank == 0 || block->size > 0));
    head.entry.n_features = head.n_ids ? head.n_ids : 3;
    head_reading_show(&head, shown);
    if (!head_readings(&head, 32, readings, &n, &err)) demand(n > 0 && n <= HEAD_READINGS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_config cfg;
    struct error err;
    const uint8_t *cut = memchr(data, 0, size);
    size_t first_len = cut ? (size_t)(cut - data) : size;
    const char *second = cut ? (const char *)cut + 1 : NULL;
    size_t second_len = cut ? size - first_len - 1 : 0;
    struct config_rest rest;
    check_head((const char *)data, first_len);
    if (config_parse(&cfg, (const char *)data, first_len, second, second_len, "fuzz", &rest,
                     &err) == 0) {
        check(&cfg);
        demand((rest.n_unknown == 0) == (rest.unknown[0] == 0) && rest.n_guessing_layers >= 0);
    }
    return 0;
}
