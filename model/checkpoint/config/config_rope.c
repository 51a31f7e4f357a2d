/* Rotary embedding settings as transformers reads them: under "rope_scaling" with "rope_theta"
 * beside it (version 4), or all under "rope_parameters" (version 5). What the two would read
 * differently is refused. Formulas and defaults: modeling_rope_utils.py of transformers. */
#include "model/checkpoint/config/config_rope.h"

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"
#include "model/numerics/numerics.h"

enum { KIND_ALL = 1 << ROPE_DEFAULT | 1 << ROPE_LINEAR | 1 << ROPE_LLAMA3 | 1 << ROPE_YARN };

static const char *const kind_names[] = {
    [ROPE_DEFAULT] = "default",
    [ROPE_LINEAR] = "linear",
    [ROPE_LLAMA3] = "llama3",
    [ROPE_YARN] = "yarn",
};

const char *config_rope_kind_name(enum rope_kind kind)
{
    return kind_names[kind];
}

/* Which kinds may have which keys. Files have the original length also with kinds that do not use
 * it; "finetuned" only says how the weights were trained. */
static const struct {
    const char *key;
    unsigned kinds;
} rope_keys[] = {
    {"rope_type", KIND_ALL},
    {"type", KIND_ALL},
    {"rope_theta", KIND_ALL},
    {"partial_rotary_factor", KIND_ALL},
    {"original_max_position_embeddings", KIND_ALL},
    {"finetuned", KIND_ALL},
    {"factor", 1 << ROPE_LINEAR | 1 << ROPE_LLAMA3 | 1 << ROPE_YARN},
    {"low_freq_factor", 1 << ROPE_LLAMA3},
    {"high_freq_factor", 1 << ROPE_LLAMA3},
    {"attention_factor", 1 << ROPE_YARN},
    {"beta_fast", 1 << ROPE_YARN},
    {"beta_slow", 1 << ROPE_YARN},
    {"mscale", 1 << ROPE_YARN},
    {"mscale_all_dim", 1 << ROPE_YARN},
    {"truncate", 1 << ROPE_YARN},
};

/* Where rope settings are read from, with the names for error texts. */
struct source {
    json_t *root, *dict; /* dict may be NULL: plain rope */
    const char *origin;  /* of root */
    char where[512];     /* of dict */
};

static int find_dict(struct source *src, json_t *root, const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    json_t *old = json_member(root, "rope_scaling");
    json_t *new = json_member(root, "rope_parameters");
    if (old && json_is_object(old) && json_object_size(old) == 0) old = NULL;
    *src = (struct source){.root = root, .dict = old ? old : new, .origin = origin};
    const char *key = old ? "rope_scaling" : "rope_parameters";
    snprintf(src->where, sizeof src->where, "%.440s: \"%s\"", origin, key);
    if (old && new && !json_equal(old, new)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"rope_scaling\" and \"rope_parameters\" = %s differ", origin,
                         config_keys_show(new, shown));
    }
    if (src->dict && !json_is_object(src->dict)) {
        return error_set(err, ERR_FORMAT, "%s = %s is not an object", src->where,
                         config_keys_show(src->dict, shown));
    }
    return 0;
}

static int read_kind(struct rope_config *rope, const struct source *src, struct error *err)
{
    const char *name = NULL, *legacy = NULL;
    int rc = 0;
    rope->kind = ROPE_DEFAULT;
    if (!src->dict) return 0;
    TRY(json_read_string(src->dict, "rope_type", &name, src->where, err));
    TRY(json_read_string(src->dict, "type", &legacy, src->where, err));
    if (name && legacy && strcmp(name, legacy) != 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"rope_type\" = \"%.32s\" and \"type\" = \"%.32s\" differ",
                         src->where, name, legacy);
    }
    if (!name) name = legacy;
    if (!name) name = kind_names[ROPE_DEFAULT];
    for (int i = 0; i < (int)(sizeof kind_names / sizeof *kind_names); i++) {
        if (strcmp(name, kind_names[i]) == 0) {
            rope->kind = (enum rope_kind)i;
            return 0;
        }
    }
    rc = error_set(err, ERR_UNSUPPORTED,
                   "%s: \"rope_type\" = \"%.32s\" is not supported "
                   "(default, linear, llama3 and yarn are)",
                   src->where, name);
out:
    return rc;
}

static bool kind_has_key(enum rope_kind kind, const char *key)
{
    for (size_t i = 0; i < sizeof rope_keys / sizeof *rope_keys; i++) {
        if (strcmp(rope_keys[i].key, key) == 0) return rope_keys[i].kinds >> kind & 1;
    }
    return false;
}

static int check_keys(const struct rope_config *rope, const struct source *src, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    for (void *at = json_object_iter(src->dict); at; at = json_object_iter_next(src->dict, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        if (json_is_null(value) || kind_has_key(rope->kind, key)) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: unknown key \"%.64s\" = %s with rope type \"%s\"; "
                         "it might change the result",
                         src->where, key, config_keys_show(value, shown), kind_names[rope->kind]);
    }
    const json_t *partial = json_member(src->dict, "partial_rotary_factor");
    if (partial && !(json_is_number(partial) && json_number_value(partial) == 1)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"partial_rotary_factor\" = %s is not supported", src->where,
                         config_keys_show(partial, shown));
    }
    return 0;
}

/* A key that version 5 has in the dictionary and version 4 beside it: either place is good, but not
 * two different values. */
static int check_one_value(const struct source *src, const char *key, struct error *err)
{
    char inner_shown[CONFIG_VALUE_BYTES], outer_shown[CONFIG_VALUE_BYTES];
    const json_t *inner = json_member(src->dict, key), *outer = json_member(src->root, key);
    if (!inner || !outer || !json_is_number(inner) || !json_is_number(outer)) return 0;
    if (json_number_value(inner) == json_number_value(outer)) return 0;
    return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %s, but = %s outside of it", src->where,
                     key, config_keys_show(inner, inner_shown),
                     config_keys_show(outer, outer_shown));
}

static int read_theta(struct rope_config *rope, const struct source *src, struct error *err)
{
    int rc = 0;
    rope->theta = 10000.0;
    TRY(check_one_value(src, "rope_theta", err));
    TRY(json_read_double(src->root, "rope_theta", &rope->theta, src->origin, err));
    TRY(json_read_double(src->dict, "rope_theta", &rope->theta, src->where, err));
    if (!(rope->theta > 1 && rope->theta <= 1e15)) {
        rc = error_set(err, ERR_FORMAT, "%s: \"rope_theta\" = %g is outside of (1, 1e15]",
                       src->origin, rope->theta);
    }
out:
    return rc;
}

/* Reads a number that must be there and lie in [1e-6, 1e9], so that a frequency divided by it is
 * finite. */
static int read_positive(double *out, const struct source *src, const char *key, struct error *err)
{
    double value = 0;
    if (!json_member(src->dict, key)) {
        return error_set(err, ERR_FORMAT, "%s lacks \"%s\"", src->where, key);
    }
    int rc = json_read_double(src->dict, key, &value, src->where, err);
    if (rc) return rc;
    if (!(value >= 1e-6 && value <= 1e9)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" = %g is outside of [1e-6, 1e9]", src->where,
                         key, value);
    }
    *out = value;
    return 0;
}

static int read_original_length(struct rope_config *rope, int max_positions,
                                const struct source *src, struct error *err)
{
    const char *key = "original_max_position_embeddings";
    int rc = 0;
    rope->original_max_positions = max_positions;
    TRY(check_one_value(src, key, err));
    TRY(json_read_int(src->dict, key, 1, 1 << 30, &rope->original_max_positions, src->where, err));
    TRY(json_read_int(src->root, key, 1, 1 << 30, &rope->original_max_positions, src->origin, err));
out:
    return rc;
}

static int read_llama3(struct rope_config *rope, const struct source *src, struct error *err)
{
    int rc = 0;
    TRY(read_positive(&rope->low_freq_factor, src, "low_freq_factor", err));
    TRY(read_positive(&rope->high_freq_factor, src, "high_freq_factor", err));
    if (rope->high_freq_factor <= rope->low_freq_factor) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: \"high_freq_factor\" = %g is not above \"low_freq_factor\" = %g",
                       src->where, rope->high_freq_factor, rope->low_freq_factor);
    }
out:
    return rc;
}

/* The factor with which YaRN multiplies cos and sin: 0.1 m ln(s) + 1 (Peng et al. 2023, arXiv
 * 2309.00071). */
static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1.0 : 0.1 * m * num_log(factor) + 1.0;
}

static int read_attention_factor(struct rope_config *rope, const struct source *src,
                                 struct error *err)
{
    double m = 0, m_all = 0;
    int rc = 0;
    TRY(json_read_double(src->dict, "mscale", &m, src->where, err));
    TRY(json_read_double(src->dict, "mscale_all_dim", &m_all, src->where, err));
    rope->attention_factor = m != 0 && m_all != 0
                                 ? yarn_scale(rope->factor, m) / yarn_scale(rope->factor, m_all)
                                 : yarn_scale(rope->factor, 1);
    TRY(json_read_double(src->dict, "attention_factor", &rope->attention_factor, src->where, err));
    if (!(rope->attention_factor > 0 && rope->attention_factor <= 1e6)) {
        rc = error_set(err, ERR_FORMAT, "%s: \"attention_factor\" = %g is outside of (0, 1e6]",
                       src->where, rope->attention_factor);
    }
out:
    return rc;
}

static int read_yarn(struct rope_config *rope, const struct source *src, struct error *err)
{
    int rc = 0;
    rope->truncate = true;
    TRY(json_read_double(src->dict, "beta_fast", &rope->beta_fast, src->where, err));
    TRY(json_read_double(src->dict, "beta_slow", &rope->beta_slow, src->where, err));
    TRY(json_read_bool(src->dict, "truncate", &rope->truncate, src->where, err));
    if (rope->beta_fast == 0) rope->beta_fast = 32; /* transformers takes 0 for "not set" */
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (!(rope->beta_slow > 0 && rope->beta_fast >= rope->beta_slow && rope->beta_fast <= 1e9)) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: \"beta_fast\" = %g and \"beta_slow\" = %g are not in order", src->where,
                       rope->beta_fast, rope->beta_slow);
        goto out;
    }
    TRY(read_attention_factor(rope, src, err));
out:
    return rc;
}

/* yarn with "factor": null takes the ratio of the lengths; a missing factor is an error. */
static int read_factor(struct rope_config *rope, int max_positions, const struct source *src,
                       struct error *err)
{
    if (rope->kind == ROPE_YARN && json_is_null(json_object_get(src->dict, "factor"))) {
        rope->factor = (double)max_positions / rope->original_max_positions;
        return 0;
    }
    return read_positive(&rope->factor, src, "factor", err);
}

int config_rope_read(struct model_config *cfg, json_t *root, const char *origin, struct error *err)
{
    struct rope_config rope = {.factor = 1, .attention_factor = 1};
    struct source src;
    int rc = 0;
    TRY(find_dict(&src, root, origin, err));
    TRY(read_kind(&rope, &src, err));
    TRY(check_keys(&rope, &src, err));
    TRY(read_theta(&rope, &src, err));
    TRY(read_original_length(&rope, cfg->max_positions, &src, err));
    if (rope.kind != ROPE_DEFAULT) TRY(read_factor(&rope, cfg->max_positions, &src, err));
    if (rope.kind == ROPE_LLAMA3) TRY(read_llama3(&rope, &src, err));
    if (rope.kind == ROPE_YARN) TRY(read_yarn(&rope, &src, err));
    cfg->ropes[0] = rope;
out:
    return rc;
}
