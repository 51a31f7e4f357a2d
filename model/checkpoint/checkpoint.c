/* Opening and closing a checkpoint, and its fingerprint. folder.c, gguf_file.c and synthetic.c
 * supply the tensors, find.c looks them up, read.c reads them. */
#include "model/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/system/hub_cache.h"
#include "model/checkpoint/config/config_fields.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/internal.h"
#include "model/checkpoint/layers.h"

static const char synthetic_prefix[] = "synthetic:";

enum { STORED_SAMPLES = 8 }; /* rows whose scales and zeros are hashed */

static void hash_config(XXH3_state_t *state, const struct model_config *cfg)
{
    char bytes[CONFIG_HASHED_BYTES];
    size_t n = config_hashed_bytes(cfg, bytes);
    XXH3_64bits_update(state, bytes, n);
}

/* Properties of a head besides those of its layers. */
static void hash_head(XXH3_state_t *state, const struct head_config *head)
{
    const struct head_entry *e = &head->entry;
    const int32_t words[] = {(int32_t)head->format, e->n_features,      e->feature_dim,
                             (int32_t)e->norms,     e->has_fc,          e->feature_first,
                             e->keeps_normed,       e->norms_input,     head->has_final_norm,
                             head->recycles_normed, head->reads_normed, head->n_columns,
                             head->mask_token_id,   e->lacks_first};
    const struct head_places *p = &head->places;
    const int32_t of_places[] = {p->n,          p->n_blocks, p->n_stored_blocks,
                                 p->hidden_dim, p->has_bias, p->has_logits};
    const struct head_block *b = &head->block;
    const int32_t of_block[] = {b->size, b->from_anchor, b->is_causal, b->window_is_causal,
                                b->rank};
    XXH3_64bits_update(state, words, sizeof words);
    if (p->n > 0) XXH3_64bits_update(state, of_places, sizeof of_places);
    if (b->size > 0) XXH3_64bits_update(state, of_block, sizeof of_block);
}

/* Samples spread over the tensor, its first and last bytes among them. */
static void hash_samples(XXH3_state_t *state, const uint8_t *data, size_t n_bytes)
{
    enum { N_SAMPLES = 8, SAMPLE_BYTES = 256 };
    if (n_bytes <= (size_t)N_SAMPLES * SAMPLE_BYTES) {
        XXH3_64bits_update(state, data, n_bytes);
        return;
    }
    size_t span = n_bytes - SAMPLE_BYTES;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        size_t at = i + 1 == N_SAMPLES ? span : span / (N_SAMPLES - 1) * i;
        XXH3_64bits_update(state, data + at, SAMPLE_BYTES);
    }
}

static void hash_weight(XXH3_state_t *state, const struct weight *weight)
{
    char text[128];
    int len = snprintf(text, sizeof text, "%d %d %d %" PRIu64 " %a %a", (int)weight->dtype,
                       weight->n_rows, weight->n_cols, weight->seed, (double)weight->scale,
                       (double)weight->mean);
    XXH3_64bits_update(state, text, (size_t)len);
    if (!weight->data && weight->dtype == DTYPE_BLOCKS) {
        XXH3_64bits_update(state, &(int32_t){(int32_t)weight->block}, sizeof(int32_t));
    }
    if (!weight->data) return;
    if (weight->dtype == DTYPE_BLOCKS || weight->paired_rows) {
        const int32_t words[] = {(int32_t)weight->block, weight->paired_rows};
        XXH3_64bits_update(state, words, sizeof words);
    }
    hash_samples(state, weight->data, weight_data_bytes(weight));
    if (weight->scales) hash_samples(state, weight->scales, weight_scale_bytes(weight));
    if (weight->dtype != DTYPE_STORED) return;
    const struct stored_matrix *s = &weight->stored;
    const int words[] = {(int)s->kind,     s->bits,           s->group,
                         s->group_rows,    s->n_groups,       (int)s->scale_type,
                         s->zeros != NULL, s->has_byte_zeros, s->has_low_zeros};
    XXH3_64bits_update(state, words, sizeof words);
    for (int i = 0; i < STORED_SAMPLES; i++) {
        int row = (int)((int64_t)(weight->n_rows - 1) * i / (STORED_SAMPLES - 1));
        uint64_t hash = stored_hash(s, row, 0, weight->n_cols);
        XXH3_64bits_update(state, &hash, sizeof hash);
    }
}

/* Sets ck->name, for a folder to the one that the name means. */
static int find_folder(struct checkpoint *ck, const char *name, struct error *err)
{
    char folder[HUB_PATH_BYTES];
    int rc = 0;
    TRY(layers_strip(&ck->name, name, err));
    if (ck->is_synthetic) goto out;
    TRY(hub_cache_resolve(folder, ck->name, err));
    free(ck->name);
    ck->name = strdup(folder);
    if (!ck->name) rc = error_set(err, ERR_NO_MEMORY, "no memory for the name of a model");
out:
    return rc;
}

/* Looks up every tensor of the layout. How they are spread over files does not change the hash. */
static int check_and_hash(struct checkpoint *ck, struct error *err)
{
    XXH3_state_t *state = XXH3_createState();
    int rc = 0;
    if (!state) return error_set(err, ERR_NO_MEMORY, "no memory for a hash");
    XXH3_64bits_reset(state);
    hash_config(state, &ck->cfg);
    if (ck->head) hash_head(state, ck->head);
    if (ck->head_ids) {
        size_t n = (size_t)ck->head->n_columns;
        XXH3_64bits_update(state, ck->head_ids, n * sizeof *ck->head_ids);
    }
    if (ck->head_mask) {
        const struct head_entry *e = &ck->head->entry;
        size_t n = (size_t)e->n_features * (size_t)e->feature_dim;
        XXH3_64bits_update(state, ck->head_mask, n * sizeof *ck->head_mask);
    }
    if (ck->layers) {
        XXH3_64bits_update(state, ck->layers, (size_t)ck->cfg.n_layers * sizeof *ck->layers);
    }
    for (size_t i = 0; i < ck->n_layout; i++) {
        const struct tensor_spec *spec = &ck->layout[i];
        struct weight weight = {0};
        TRY(checkpoint_find(ck, spec->name, spec->n_rows, spec->n_cols, &weight, err));
        XXH3_64bits_update(state, spec->name, strlen(spec->name) + 1);
        hash_weight(state, &weight);
    }
    ck->fingerprint = XXH3_64bits_digest(state);
out:
    XXH3_freeState(state);
    return rc;
}

/* Takes the fields of config.json that are no part of the configuration. */
static void take_rest(struct checkpoint *ck, const struct config_rest *rest)
{
    const struct rope_config *rope = &ck->cfg.ropes[0];
    ck->n_guessing_layers = rest->n_guessing_layers;
    ck->mask = rest->mask;
    if (rope->kind == ROPE_LONG && ck->cfg.max_positions > rope->original_max_positions) {
        snprintf(ck->remarks[CHECKPOINT_LONG_ROPE], sizeof ck->remarks[0],
                 "texts of every length are rotated by the long factors, because the context of %d "
                 "is longer than the %d that the short ones are for; with "
                 "\"max_position_embeddings\" = %d in config.json they would hold",
                 ck->cfg.max_positions, rope->original_max_positions, rope->original_max_positions);
    }
    if (rest->is_text_part) {
        snprintf(ck->remarks[CHECKPOINT_TEXT_PART], sizeof ck->remarks[0],
                 "the model also takes images; only its text part is read");
    }
    ck->scheme = rest->scheme;
    if (ck->scheme.has_quantized_activations) {
        snprintf(ck->remarks[CHECKPOINT_ACTIVATIONS], sizeof ck->remarks[0],
                 "config.json quantizes activations or the KV cache as well, which is not done "
                 "here: the weights are used as they are stored, and activations as with other "
                 "models (docs/numerics.md)");
    }
    memcpy(ck->unknown_keys, rest->unknown, sizeof ck->unknown_keys);
    if (!rest->n_unknown) return;
    snprintf(ck->remarks[CHECKPOINT_UNKNOWN_KEYS], sizeof ck->remarks[0],
             "%s has keys that are not known here: %s; they are ignored, and if one of them "
             "changes what the model computes, its texts are wrong (--strict-config refuses them)",
             checkpoint_config_words(ck), rest->unknown);
}

/* Leaves the layers of the list. A list of all layers changes nothing. */
static int choose_layers(struct checkpoint *ck, const char *list, struct error *err)
{
    int *layers = NULL, n = 0, rc = 0;
    TRY(layers_parse(&layers, &n, list, ck->name, ck->cfg.n_layers, err));
    if (n == ck->cfg.n_layers) goto out;
    ck->whole_layout = ck->layout;
    ck->n_whole_layout = ck->n_layout;
    ck->whole_layers = ck->cfg.n_layers;
    ck->layout = NULL;
    config_choose_layers(&ck->cfg, layers, n);
    ck->layers = layers;
    layers = NULL;
    TRY(checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err));
out:
    free(layers);
    return rc;
}

int checkpoint_open(struct checkpoint **ck, const char *name, struct error *err)
{
    struct checkpoint *self = NULL;
    size_t len;
    const char *list = layers_split(name, &len);
    int rc = 0;
    struct config_rest rest = {0};
    *ck = NULL;
    TRY(mem_array(&self, 1, sizeof *self, err));
    self->is_synthetic = strncmp(name, synthetic_prefix, strlen(synthetic_prefix)) == 0;
    TRY(find_folder(self, name, err));
    if (self->is_synthetic) {
        TRY(checkpoint_open_synthetic(self, &rest, err));
    } else if (gguf_is_file(self->name)) {
        TRY(checkpoint_open_gguf(self, &rest, err));
    } else {
        TRY(checkpoint_open_folder(self, &rest, err));
    }
    take_rest(self, &rest);
    checkpoint_sort_tensors(self);
    if (!self->is_synthetic && !self->gguf) TRY(checkpoint_settle_stored(self, err));
    if (!self->is_synthetic && !self->gguf) TRY(checkpoint_untie_head(self, err));
    if (list) TRY(choose_layers(self, list, err));
    TRY(check_and_hash(self, err));
    if (!self->is_synthetic) TRY(checkpoint_check_unread(self, err));
    *ck = self;
out:
    if ((rc == ERR_UNSUPPORTED || rc == ERR_FORMAT) && checkpoint_is_head_folder(self->name)) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s is a head or another part of a drafter, which reads what a target has "
                       "computed, and no model (outrider describe says which)",
                       self->name);
    }
    if (rc) checkpoint_close(self);
    return rc;
}

int checkpoint_open_head(struct checkpoint **ck, const char *name,
                         const struct head_options *options, struct error *err)
{
    static const struct head_options none = {0};
    struct checkpoint *self = NULL;
    struct config_rest rest = {0};
    int rc = 0;
    *ck = NULL;
    TRY(mem_array(&self, 1, sizeof *self, err));
    TRY(find_folder(self, name, err));
    TRY(checkpoint_open_head_folder(self, &rest, options ? options : &none, err));
    take_rest(self, &rest);
    TRY(check_and_hash(self, err));
    TRY(checkpoint_check_unread(self, err));
    *ck = self;
out:
    if (rc) checkpoint_close(self);
    return rc;
}

void checkpoint_close(struct checkpoint *ck)
{
    if (!ck) return;
    checkpoint_close_files(ck);
    gguf_close(ck->gguf);
    free(ck->tensors);
    free(ck->renamed);
    free(ck->layout);
    free(ck->whole_layout);
    free(ck->layers);
    free(ck->head);
    free(ck->head_ids);
    free(ck->head_mask);
    free(ck->name);
    free(ck);
}

const struct model_config *checkpoint_config(const struct checkpoint *ck)
{
    return &ck->cfg;
}

const char *checkpoint_name(const struct checkpoint *ck)
{
    return ck->name;
}

int checkpoint_layer(const struct checkpoint *ck, int i)
{
    return ck->layers ? ck->layers[i] : i;
}

bool checkpoint_is_synthetic(const struct checkpoint *ck)
{
    return ck->is_synthetic;
}

bool checkpoint_is_gguf(const struct checkpoint *ck)
{
    return ck->gguf != NULL;
}

int checkpoint_n_guessing_layers(const struct checkpoint *ck)
{
    return ck->n_guessing_layers;
}

const struct tensor_spec *checkpoint_tensors(const struct checkpoint *ck, size_t *n)
{
    *n = ck->n_layout;
    return ck->layout;
}

const char *checkpoint_remark(const struct checkpoint *ck, enum checkpoint_remark which)
{
    return ck->remarks[which][0] ? ck->remarks[which] : NULL;
}

int checkpoint_mask_token(const struct checkpoint *ck, const char **key)
{
    if (key) *key = ck->mask.key;
    return ck->mask.key ? ck->mask.id : -1;
}

int checkpoint_demand_known_keys(const struct checkpoint *ck, struct error *err)
{
    if (!ck->unknown_keys[0]) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: %s has keys that are not known here: %s; --strict-config refuses them",
                     ck->name, checkpoint_config_words(ck), ck->unknown_keys);
}

uint64_t checkpoint_fingerprint(const struct checkpoint *ck)
{
    return ck->fingerprint;
}

uint64_t checkpoint_stamp(const struct checkpoint *ck)
{
    uint64_t stamp = ck->lender ? checkpoint_stamp(ck->lender) : 0;
    for (size_t i = 0; i < ck->n_files; i++) {
        const struct file_view *view = &ck->files[i].view;
        const uint64_t words[] = {view->size_bytes, (uint64_t)view->mtime_ns,
                                  (uint64_t)view->ctime_ns, view->inode};
        stamp ^= XXH3_64bits_withSeed(words, sizeof words,
                                      XXH3_64bits(ck->files[i].name, strlen(ck->files[i].name)));
    }
    return stamp;
}

void checkpoint_expect_whole(const struct checkpoint *ck)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        file_advise(&ck->files[i].view, FILE_WHOLE);
    }
}

void checkpoint_release(const struct checkpoint *ck)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        file_advise(&ck->files[i].view, FILE_DROP);
    }
}
