/* Weights by name: look-up, reading, fingerprint. Where they come from is the business of
 * checkpoint_folder.c and checkpoint_synthetic.c. Every tensor that the config asks for is checked at
 * open, so that a model with a hole is refused before anything is computed. */
#include "model/checkpoint/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "model/checkpoint/internal.h"
#include "model/numerics/numerics.h"

static const char synthetic_prefix[] = "synthetic:";

static const struct {
    const char *name;
    enum dtype dtype;
} dtypes[] = {
    {"BF16", DTYPE_BF16},
    {"F16", DTYPE_F16},
    {"F32", DTYPE_F32},
};

static size_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 2;
}

static int tensor_by_name(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

const struct tensor *checkpoint_tensor(const struct checkpoint *ck, const char *name)
{
    struct tensor wanted = {.name = name};
    if (!ck->n_tensors) return NULL;
    return bsearch(&wanted, ck->tensors, ck->n_tensors, sizeof wanted, tensor_by_name);
}

static void show_shape(const struct safetensors_entry *entry, char *text, size_t text_bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; i < entry->n_dims && len < text_bytes; i++) {
        int n = snprintf(text + len, text_bytes - len, "%s%" PRIu64, i ? ", " : "", entry->dims[i]);
        len += (size_t)n;
    }
}

/* A vector counts as one row, also when it is written as [1][n]. */
static bool has_shape(const struct safetensors_entry *entry, int n_rows, int n_cols)
{
    if (entry->n_dims == 1) return n_rows == 1 && entry->dims[0] == (uint64_t)n_cols;
    return entry->n_dims == 2 && entry->dims[0] == (uint64_t)n_rows &&
           entry->dims[1] == (uint64_t)n_cols;
}

static int find_in_file(const struct checkpoint *ck, const struct tensor *tensor, int n_rows,
                        int n_cols, struct weight *weight, struct error *err)
{
    const struct safetensors_entry *entry = tensor->entry;
    char shape[128];
    if (!has_shape(entry, n_rows, n_cols)) {
        show_shape(entry, shape, sizeof shape);
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %s has shape [%s], the config asks for [%d, %d]", ck->name,
                         tensor->name, shape, n_rows, n_cols);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, entry->dtype) != 0) continue;
        *weight = tensor->weight;
        weight->dtype = dtypes[i].dtype;
        weight->n_rows = n_rows;
        weight->n_cols = n_cols;
        return 0;
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: tensor %s is of dtype %s, which is not supported (BF16, F16, F32 are)",
                     ck->name, tensor->name, entry->dtype);
}

int checkpoint_find(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
                    struct weight *weight, struct error *err)
{
    if (checkpoint_is_packed(ck, name)) {
        return checkpoint_find_packed(ck, name, n_rows, n_cols, weight, err);
    }
    const struct tensor *tensor = checkpoint_tensor(ck, name);
    if (!tensor) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %.100s", ck->name, name);
    }
    if (tensor->entry) return find_in_file(ck, tensor, n_rows, n_cols, weight, err);
    if (tensor->weight.n_rows != n_rows || tensor->weight.n_cols != n_cols) {
        return error_set(err, ERR_FORMAT, "%s: tensor %s has shape [%d, %d], not [%d, %d]",
                         ck->name, tensor->name, tensor->weight.n_rows, tensor->weight.n_cols,
                         n_rows, n_cols);
    }
    *weight = tensor->weight;
    return 0;
}

/* Every field, floats in hexadecimal, so that configs are equal exactly when the texts are. */
static void hash_config(XXH3_state_t *state, const struct model_config *cfg)
{
    char text[1024];
    const struct rope_config *rope = &cfg->rope;
    int len = snprintf(text, sizeof text,
                       "%s %d %d %d %d %d %d %d %d %a %d %a %a %a %a %d %a %a %a %d "
                       "%d %d %d %d %d %d %d",
                       cfg->architecture, cfg->n_layers, cfg->dim, cfg->n_heads, cfg->n_kv_heads,
                       cfg->head_dim, cfg->ffn_dim, cfg->vocab_size, cfg->max_positions,
                       (double)cfg->norm_eps, (int)rope->kind, rope->theta, rope->factor,
                       rope->low_freq_factor, rope->high_freq_factor, rope->original_max_positions,
                       rope->beta_fast, rope->beta_slow, rope->attention_factor, rope->truncate,
                       cfg->tied_embeddings, cfg->qkv_bias, cfg->o_bias, cfg->mlp_bias,
                       cfg->qk_norm, cfg->sliding_window, cfg->bos_id);
    XXH3_64bits_update(state, text, (size_t)len);
    XXH3_64bits_update(state, cfg->ends.ids, (size_t)cfg->ends.n * sizeof *cfg->ends.ids);
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
    if (!weight->data) return;
    if (weight->scales) {
        hash_samples(state, weight->data, weight_packed_bytes(weight));
        hash_samples(state, weight->scales, weight_scale_bytes(weight));
        return;
    }
    size_t n = (size_t)weight->n_rows * (size_t)weight->n_cols;
    hash_samples(state, weight->data, n * dtype_bytes(weight->dtype));
}

/* Looks at every tensor of the layout. How they are spread over files does not count. */
static int check_and_hash(struct checkpoint *ck, struct error *err)
{
    XXH3_state_t *state = XXH3_createState();
    int rc = 0;
    if (!state) return error_set(err, ERR_NO_MEMORY, "no memory for a hash");
    XXH3_64bits_reset(state);
    hash_config(state, &ck->cfg);
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

int checkpoint_open(struct checkpoint **ck, const char *name, struct error *err)
{
    struct checkpoint *self = NULL;
    int rc = 0;
    *ck = NULL;
    TRY(mem_array(&self, 1, sizeof *self, err));
    self->is_synthetic = strncmp(name, synthetic_prefix, strlen(synthetic_prefix)) == 0;
    self->name = strdup(name);
    if (!self->name) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for the name of a checkpoint");
        goto out;
    }
    if (self->is_synthetic) {
        TRY(checkpoint_open_synthetic(self, err));
    } else {
        TRY(checkpoint_open_folder(self, err));
    }
    qsort(self->tensors, self->n_tensors, sizeof *self->tensors, tensor_by_name);
    TRY(check_and_hash(self, err));
    *ck = self;
out:
    if (rc) checkpoint_close(self);
    return rc;
}

void checkpoint_close(struct checkpoint *ck)
{
    if (!ck) return;
    checkpoint_close_files(ck);
    free(ck->tensors);
    free(ck->layout);
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

bool checkpoint_is_synthetic(const struct checkpoint *ck)
{
    return ck->is_synthetic;
}

const struct tensor_spec *checkpoint_tensors(const struct checkpoint *ck, size_t *n)
{
    *n = ck->n_layout;
    return ck->layout;
}

uint64_t checkpoint_fingerprint(const struct checkpoint *ck)
{
    return ck->fingerprint;
}

uint64_t checkpoint_stamp(const struct checkpoint *ck)
{
    uint64_t stamp = 0;
    for (size_t i = 0; i < ck->n_files; i++) {
        const struct file_view *view = &ck->files[i].view;
        const uint64_t words[2] = {view->size_bytes, (uint64_t)view->mtime_ns};
        stamp ^= XXH3_64bits_withSeed(words, sizeof words,
                                      XXH3_64bits(ck->files[i].name, strlen(ck->files[i].name)));
    }
    return stamp;
}

void checkpoint_release(const struct checkpoint *ck)
{
    for (size_t i = 0; i < ck->n_files; i++) {
        file_advise(&ck->files[i].view, FILE_DROP);
    }
}

static uint64_t element_index(const struct weight *weight, int row, int col)
{
    return (uint64_t)row * (uint64_t)weight->n_cols + (uint64_t)col;
}

/* Elements in a file may lie at odd addresses, hence memcpy. */
static float load_element(const uint8_t *at, enum dtype dtype)
{
    uint16_t half;
    float single;
    if (dtype == DTYPE_F32) {
        memcpy(&single, at, sizeof single);
        return single;
    }
    memcpy(&half, at, sizeof half);
    return dtype == DTYPE_F16 ? num_half_to_float(half) : num_bf16_to_float(half);
}

void weight_read_bf16(const struct weight *weight, int row, int col, int n, uint16_t *out)
{
    uint64_t first = element_index(weight, row, col);
    assert(!weight->scales); /* packed: weight_read_groups */
    if (!weight->data) {
        synthetic_read_bf16(weight, first, (size_t)n, out);
        return;
    }
    size_t bytes = dtype_bytes(weight->dtype);
    const uint8_t *at = weight->data + first * bytes;
    if (weight->dtype == DTYPE_BF16) {
        memcpy(out, at, (size_t)n * sizeof *out);
        return;
    }
    for (int i = 0; i < n; i++) {
        out[i] = num_float_to_bf16(load_element(at + (size_t)i * bytes, weight->dtype));
    }
}

void weight_read_f32(const struct weight *weight, int row, int col, int n, float *out)
{
    enum { CHUNK = 256 };
    uint16_t chunk[CHUNK];
    uint64_t first = element_index(weight, row, col);
    if (weight->data) {
        size_t bytes = dtype_bytes(weight->dtype);
        const uint8_t *at = weight->data + first * bytes;
        for (int i = 0; i < n; i++) {
            out[i] = load_element(at + (size_t)i * bytes, weight->dtype);
        }
        return;
    }
    for (int done = 0; done < n; done += CHUNK) {
        int n_here = n - done < CHUNK ? n - done : CHUNK;
        synthetic_read_bf16(weight, first + (uint64_t)done, (size_t)n_here, chunk);
        for (int i = 0; i < n_here; i++) {
            out[done + i] = num_bf16_to_float(chunk[i]);
        }
    }
}
