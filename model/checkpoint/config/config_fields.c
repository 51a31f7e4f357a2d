/* The table of config fields and what only needs the table. */
#include "model/checkpoint/config/config_fields.h"

#include <stdio.h>
#include <string.h>

#define ROW(member, type_of_it, hash_place, json_place, json_key, rope_kinds) \
    .name = #member, .offset = offsetof(struct model_config, member),         \
    .size = sizeof(((struct model_config *)0)->member), .type = (type_of_it), \
    .hashed_at = (hash_place), .place = (json_place), .key = (json_key), .kinds = (rope_kinds)

enum {
    LINEAR = 1 << ROPE_LINEAR,
    LLAMA3 = 1 << ROPE_LLAMA3,
    YARN = 1 << ROPE_YARN,
};

/* The numbers in hashed_at never change, because fingerprints are compared between machines and
 * kept on disk. A new field takes the next number. Fields after HASHED_ALWAYS are hashed with their
 * number, and only where they are not zero, so that models without the property keep theirs. */
enum { HASHED_ALWAYS = 28 };

static const struct config_field fields[] = {
    {ROW(architecture, CONFIG_TEXT, 1, CONFIG_BY_HAND, NULL, 0)},
    {ROW(dim, CONFIG_INT, 3, CONFIG_AT_TOP, "hidden_size", 0)},
    {ROW(ffn_dim, CONFIG_INT, 7, CONFIG_AT_TOP, "intermediate_size", 0)},
    {ROW(n_layers, CONFIG_INT, 2, CONFIG_AT_TOP, "num_hidden_layers", 0)},
    {ROW(n_heads, CONFIG_INT, 4, CONFIG_AT_TOP, "num_attention_heads", 0)},
    {ROW(n_kv_heads, CONFIG_INT, 5, CONFIG_AT_TOP, "num_key_value_heads", 0)},
    {ROW(head_dim, CONFIG_INT, 6, CONFIG_AT_TOP, "head_dim", 0)},
    {ROW(vocab_size, CONFIG_INT, 8, CONFIG_AT_TOP, "vocab_size", 0)},
    {ROW(max_positions, CONFIG_INT, 9, CONFIG_AT_TOP, "max_position_embeddings", 0)},
    {ROW(norm_eps, CONFIG_FLOAT, 10, CONFIG_AT_TOP, "rms_norm_eps", 0)},
    {ROW(tied_embeddings, CONFIG_BOOL, 21, CONFIG_AT_TOP, "tie_word_embeddings", 0)},

    {ROW(o_bias, CONFIG_BOOL, 23, CONFIG_IN_FAMILY, "attention_bias", 0)},
    {ROW(mlp_bias, CONFIG_BOOL, 24, CONFIG_IN_FAMILY, "mlp_bias", 0)},
    {ROW(qkv_bias, CONFIG_BOOL, 22, CONFIG_BY_HAND, NULL, 0)},
    {ROW(qk_norm, CONFIG_BOOL, 25, CONFIG_BY_HAND, NULL, 0)},
    {ROW(layers, CONFIG_LAYERS, 26, CONFIG_BY_HAND, NULL, 0)},

    {ROW(ropes[0].theta, CONFIG_DOUBLE, 12, CONFIG_BESIDE_ROPE, "rope_theta", 0)},
    {ROW(ropes[0].kind, CONFIG_INT, 11, CONFIG_BY_HAND, NULL, 0)},
    {ROW(ropes[0].factor, CONFIG_DOUBLE, 13, CONFIG_IN_ROPE, "factor", LINEAR | LLAMA3 | YARN)},
    {ROW(ropes[0].low_freq_factor, CONFIG_DOUBLE, 14, CONFIG_IN_ROPE, "low_freq_factor", LLAMA3)},
    {ROW(ropes[0].high_freq_factor, CONFIG_DOUBLE, 15, CONFIG_IN_ROPE, "high_freq_factor", LLAMA3)},
    {ROW(ropes[0].beta_fast, CONFIG_DOUBLE, 17, CONFIG_IN_ROPE, "beta_fast", YARN)},
    {ROW(ropes[0].beta_slow, CONFIG_DOUBLE, 18, CONFIG_IN_ROPE, "beta_slow", YARN)},
    {ROW(ropes[0].attention_factor, CONFIG_DOUBLE, 19, CONFIG_IN_ROPE, "attention_factor", YARN)},
    {ROW(ropes[0].truncate, CONFIG_BOOL, 20, CONFIG_IN_ROPE, "truncate", YARN), .left_out = "true"},
    {ROW(ropes[0].original_max_positions, CONFIG_INT, 16, CONFIG_IN_ROPE,
         "original_max_position_embeddings", LLAMA3 | YARN)},

    {ROW(bos_id, CONFIG_INT, 27, CONFIG_BY_HAND, NULL, 0)},
    {ROW(ends, CONFIG_IDS, 28, CONFIG_BY_HAND, NULL, 0)},
    {ROW(qk_norm_whole, CONFIG_BOOL, 29, CONFIG_BY_HAND, NULL, 0)},
    {ROW(norm_offset, CONFIG_BOOL, 30, CONFIG_BY_HAND, NULL, 0)},
    {ROW(norms, CONFIG_INT, 31, CONFIG_BY_HAND, NULL, 0)},
    {ROW(activation, CONFIG_INT, 32, CONFIG_BY_HAND, NULL, 0)},
    {ROW(embedding_scale, CONFIG_FLOAT, 33, CONFIG_BY_HAND, NULL, 0)},
    {ROW(logit_scale, CONFIG_FLOAT, 34, CONFIG_BY_HAND, NULL, 0)},
    {ROW(logit_softcap, CONFIG_FLOAT, 35, CONFIG_BY_HAND, NULL, 0)},
    {ROW(query_beta, CONFIG_FLOAT, 36, CONFIG_BY_HAND, NULL, 0)},
    {ROW(query_period, CONFIG_INT, 37, CONFIG_BY_HAND, NULL, 0)},
    {ROW(ropes[0].rotary_dim, CONFIG_INT, 38, CONFIG_BY_HAND, NULL, 0)},
    {ROW(ropes[0].divisors, CONFIG_FLOATS, 39, CONFIG_BY_HAND, NULL, 0)},
    {ROW(ropes[1], CONFIG_ROPE, 40, CONFIG_BY_HAND, NULL, 0)},
    /* Not hashed: the types and the bytes of the tensors say how they are stored. */
    {ROW(stored, CONFIG_INT, 0, CONFIG_BY_HAND, NULL, 0)},
    {ROW(stored_group, CONFIG_INT, 0, CONFIG_BY_HAND, NULL, 0)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

const struct config_field *config_fields(int *n)
{
    *n = N_FIELDS;
    return fields;
}

const void *config_field_value(const struct config_field *field, const struct model_config *cfg)
{
    return (const char *)cfg + field->offset;
}

/* Floats in hexadecimal, so that equal texts mean equal numbers; zeros at the end are left out. */
static size_t put_floats(const float *values, size_t n_values, char *text, size_t size)
{
    size_t n = 0;
    while (n_values > 0 && values[n_values - 1] == 0) {
        n_values--;
    }
    for (size_t i = 0; i < n_values; i++) {
        n += (size_t)snprintf(text + n, size - n, "%s%a", i ? "," : "", (double)values[i]);
    }
    return n;
}

/* Nothing for a table that no layer uses, which is zero. */
static size_t put_rope(const struct rope_config *rope, char *text, size_t size)
{
    if (rope->theta == 0) return 0;
    size_t n = (size_t)snprintf(
        text, size, "%d,%a,%a,%a,%a,%d,%a,%a,%a,%d,%d;", (int)rope->kind, rope->theta, rope->factor,
        rope->low_freq_factor, rope->high_freq_factor, rope->original_max_positions,
        rope->beta_fast, rope->beta_slow, rope->attention_factor, rope->truncate, rope->rotary_dim);
    return n + put_floats(rope->divisors, HEAD_DIM_MAX / 2, text + n, size - n);
}

static bool ropes_differ(const struct rope_config *a, const struct rope_config *b)
{
    char a_text[CONFIG_HASHED_BYTES], b_text[CONFIG_HASHED_BYTES];
    size_t n = put_rope(a, a_text, sizeof a_text);
    return n != put_rope(b, b_text, sizeof b_text) || memcmp(a_text, b_text, n) != 0;
}

static bool field_differs(const struct config_field *field, const struct model_config *a,
                          const struct model_config *b)
{
    const void *x = config_field_value(field, a), *y = config_field_value(field, b);
    const struct end_ids *x_ids = x, *y_ids = y;
    switch (field->type) {
    case CONFIG_TEXT:
        return strcmp(x, y) != 0;
    case CONFIG_FLOAT:
        return *(const float *)x != *(const float *)y;
    case CONFIG_DOUBLE:
        return *(const double *)x != *(const double *)y;
    case CONFIG_IDS:
        return x_ids->n != y_ids->n ||
               memcmp(x_ids->ids, y_ids->ids, (size_t)x_ids->n * sizeof *x_ids->ids) != 0;
    case CONFIG_ROPE:
        return ropes_differ(x, y);
    case CONFIG_INT:
    case CONFIG_BOOL:
    case CONFIG_FLOATS:
    case CONFIG_LAYERS:
        break;
    }
    return memcmp(x, y, field->size) != 0;
}

const char *config_difference(const struct model_config *a, const struct model_config *b)
{
    for (int i = 0; i < N_FIELDS; i++) {
        if (field_differs(&fields[i], a, b)) return fields[i].name;
    }
    return NULL;
}

static const struct config_field *hashed_field(int place)
{
    for (int i = 0; i < N_FIELDS; i++) {
        if (fields[i].hashed_at == place) return &fields[i];
    }
    return NULL;
}

/* The properties of a kind besides its window, if it has any. */
static size_t put_kind(const struct layer_kind *kind, int i, char *bytes, size_t size)
{
    const struct layer_kind plain = {.window = kind->window};
    if (memcmp(kind, &plain, sizeof plain) == 0) return 0;
    return (size_t)snprintf(bytes, size, " kind %d:%d,%a,%a,%a", i, kind->rope,
                            (double)kind->attention_scale, (double)kind->attention_softcap,
                            (double)kind->residual_scale);
}

/* Where all layers are of one kind, its window, which is all that was hashed when models had one
 * window for all layers. Otherwise the windows of all kinds, and a digit for each layer. */
static size_t put_layers(const struct model_config *cfg, char *bytes, size_t size)
{
    int n_kinds = 1;
    for (int i = 0; i < cfg->n_layers; i++) {
        if (cfg->layers.of[i] >= n_kinds) n_kinds = cfg->layers.of[i] + 1;
    }
    size_t n = (size_t)snprintf(bytes, size, " %d", cfg->layers.kinds[0].window);
    if (n_kinds == 1) return n + put_kind(&cfg->layers.kinds[0], 0, bytes + n, size - n);
    for (int i = 1; i < n_kinds; i++) {
        n += (size_t)snprintf(bytes + n, size - n, ",%d", cfg->layers.kinds[i].window);
    }
    bytes[n++] = ':';
    for (int i = 0; i < cfg->n_layers; i++) {
        bytes[n++] = (char)('0' + cfg->layers.of[i]);
    }
    for (int i = 0; i < n_kinds; i++) {
        n += put_kind(&cfg->layers.kinds[i], i, bytes + n, size - n);
    }
    return n;
}

static bool is_zero(const struct config_field *field, const struct model_config *cfg)
{
    const char *bytes = config_field_value(field, cfg);
    size_t i = 0;
    while (i < field->size && bytes[i] == 0) {
        i++;
    }
    return i == field->size;
}

/* Appends the field to bytes[size]; floats in hexadecimal, so that equal texts mean equal numbers.
 * Ids are appended as they are in memory. */
static size_t put_field(const struct config_field *field, const struct model_config *cfg,
                        char *bytes, size_t size)
{
    const void *value = config_field_value(field, cfg);
    char blank[16] = "";
    const struct end_ids *ids = value;
    if (field->hashed_at > HASHED_ALWAYS && is_zero(field, cfg)) return 0;
    if (field->hashed_at > HASHED_ALWAYS) {
        snprintf(blank, sizeof blank, " %d:", field->hashed_at);
    } else if (field->hashed_at > 1) {
        strcpy(blank, " ");
    }
    switch (field->type) {
    case CONFIG_TEXT:
        return (size_t)snprintf(bytes, size, "%s%s", blank, (const char *)value);
    case CONFIG_INT:
        return (size_t)snprintf(bytes, size, "%s%d", blank, *(const int *)value);
    case CONFIG_BOOL:
        return (size_t)snprintf(bytes, size, "%s%d", blank, *(const bool *)value);
    case CONFIG_FLOAT:
        return (size_t)snprintf(bytes, size, "%s%a", blank, (double)*(const float *)value);
    case CONFIG_DOUBLE:
        return (size_t)snprintf(bytes, size, "%s%a", blank, *(const double *)value);
    case CONFIG_LAYERS:
        return put_layers(cfg, bytes, size);
    case CONFIG_FLOATS:
        strcpy(bytes, blank);
        return strlen(blank) + put_floats(value, field->size / sizeof(float), bytes + strlen(blank),
                                          size - strlen(blank));
    case CONFIG_ROPE:
        strcpy(bytes, blank);
        return strlen(blank) + put_rope(value, bytes + strlen(blank), size - strlen(blank));
    case CONFIG_IDS:
        break;
    }
    memcpy(bytes, ids->ids, (size_t)ids->n * sizeof *ids->ids);
    return (size_t)ids->n * sizeof *ids->ids;
}

size_t config_hashed_bytes(const struct model_config *cfg, char bytes[CONFIG_HASHED_BYTES])
{
    const struct config_field *field;
    size_t n = 0;
    for (int place = 1; (field = hashed_field(place)); place++) {
        n += put_field(field, cfg, bytes + n, CONFIG_HASHED_BYTES - n);
    }
    return n;
}
