/* Rotary embedding settings as transformers reads them: under "rope_scaling" with "rope_theta"
 * beside it (version 4), or all under "rope_parameters" (version 5). What the two would read
 * differently is refused. Formulas and defaults: modeling_rope_utils.py of transformers. */
#include "model/checkpoint/config/config_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "model/checkpoint/config/config_keys.h"
#include "model/numerics/numerics.h"

enum {
    LINEAR = 1 << ROPE_LINEAR,
    LLAMA3 = 1 << ROPE_LLAMA3,
    YARN = 1 << ROPE_YARN,
    LONG = 1 << ROPE_LONG,
    KIND_ALL = 1 << ROPE_DEFAULT | LINEAR | LLAMA3 | YARN | LONG
};

static const char *const kind_names[] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3",
    [ROPE_YARN] = "yarn",       [ROPE_LONG] = "longrope",
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
    {"factor", LINEAR | LLAMA3 | YARN | LONG},
    {"low_freq_factor", LLAMA3},
    {"high_freq_factor", LLAMA3},
    {"attention_factor", YARN | LONG},
    {"beta_fast", YARN},
    {"beta_slow", YARN},
    {"mscale", YARN},
    {"mscale_all_dim", YARN},
    {"truncate", YARN},
    {"short_factor", LONG},
    {"long_factor", LONG},
};

/* Where rope settings are read from, with the names for error texts. */
struct source {
    json_t *root, *dict; /* dict may be NULL: plain rope */
    const struct model_family *family;
    const char *origin;    /* of root */
    const char *theta_key; /* in root */
    double theta;          /* where no key says it */
    char where[512];       /* of dict */
};

static int find_dict(struct source *src, json_t *root, const struct model_family *family,
                     const char *origin, struct error *err)
{
    char shown[CONFIG_VALUE_BYTES];
    json_t *old = json_member(root, "rope_scaling");
    json_t *new = json_member(root, "rope_parameters");
    if (old && json_is_object(old) && json_object_size(old) == 0) old = NULL;
    *src = (struct source){.root = root,
                           .dict = old ? old : new,
                           .family = family,
                           .origin = origin,
                           .theta_key = "rope_theta",
                           .theta = family->rope_theta > 0 ? family->rope_theta : 10000.0};
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
    bool is_long = strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0;
    if (is_long && src->family->is_long_rope) name = kind_names[ROPE_LONG];
    for (int i = 0; i < (int)(sizeof kind_names / sizeof *kind_names); i++) {
        bool is_other = i == ROPE_LONG && !src->family->is_long_rope;
        if (strcmp(name, kind_names[i]) == 0 && !is_other) {
            rope->kind = (enum rope_kind)i;
            return 0;
        }
    }
    rc = error_set(err, ERR_UNSUPPORTED,
                   "%s: \"rope_type\" = \"%.32s\" is not supported "
                   "(default, linear, llama3 and yarn are, and longrope in Phi-3)",
                   src->where, name);
out:
    return rc;
}

static bool kind_has_key(const struct source *src, enum rope_kind kind, const char *key)
{
    bool is_of_query =
        strcmp(key, "llama_4_scaling_beta") == 0 || strcmp(key, "max_position_embeddings") == 0;
    if (is_of_query) return family_has_key(src->family, "llama_4_scaling_beta");
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
        if (json_is_null(value) || kind_has_key(src, rope->kind, key)) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: unknown key \"%.64s\" = %s with rope type \"%s\"; "
                         "it might change the result",
                         src->where, key, config_keys_show(value, shown), kind_names[rope->kind]);
    }
    const json_t *partial = json_member(src->dict, "partial_rotary_factor");
    if (family_has_key(src->family, "partial_rotary_factor")) return 0;
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
    rope->theta = src->theta;
    TRY(check_one_value(src, src->theta_key, err));
    TRY(json_read_double(src->root, src->theta_key, &rope->theta, src->origin, err));
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
    if (rope->kind == ROPE_LONG) rope->original_max_positions = src->family->original_positions;
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

/* The number of elements of a head that rotate. */
static int read_partial(struct rope_config *rope, int head_dim, const struct source *src,
                        struct error *err)
{
    const char *key = "partial_rotary_factor";
    double part = 1;
    int rc = 0;
    if (!family_has_key(src->family, key)) return 0;
    TRY(check_one_value(src, key, err));
    TRY(json_read_double(src->root, key, &part, src->origin, err));
    TRY(json_read_double(src->dict, key, &part, src->where, err));
    int dim = part > 0 && part <= 1 ? (int)(head_dim * part) : 0;
    if (dim < 2 || dim % 2) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"%s\" = %g rotates no even number of the %d elements of a head",
                         src->origin, key, part, head_dim);
    }
    rope->rotary_dim = dim < head_dim ? dim : 0;
out:
    return rc;
}

static int read_divisors(struct rope_config *rope, const char *key, int n, const struct source *src,
                         struct error *err)
{
    const json_t *list = json_member(src->dict, key);
    if (json_array_size(list) != (size_t)n) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not a list of %d numbers", src->where, key,
                         n);
    }
    for (int i = 0; i < n; i++) {
        double value = json_number_value(json_array_get(list, (size_t)i));
        if (!(value >= 1e-6 && value <= 1e9)) {
            return error_set(err, ERR_FORMAT, "%s: number %d of \"%s\" is not in [1e-6, 1e9]",
                             src->where, i, key);
        }
        rope->divisors[i] = (float)value;
    }
    return 0;
}

/* LongRoPE (Ding et al. 2024, arXiv 2402.13753). transformers takes the long factors as soon as a
 * text is longer than the original length, for all its positions, although keys that were computed
 * before have the short ones. Here a key never changes, so the context decides: a model that can be
 * given longer texts has the long factors for all of them, as vLLM does it. */
static int read_long(struct rope_config *rope, const struct model_config *cfg,
                     const struct source *src, struct error *err)
{
    int n = (rope->rotary_dim ? rope->rotary_dim : cfg->head_dim) / 2, rc = 0;
    bool is_long = cfg->max_positions > rope->original_max_positions;
    TRY(read_divisors(rope, "long_factor", n, src, err));
    if (!is_long) TRY(read_divisors(rope, "short_factor", n, src, err));
    rope->attention_factor = 1;
    if (rope->factor > 1) {
        rope->attention_factor =
            sqrt(1 + num_log(rope->factor) / num_log(rope->original_max_positions));
    }
    TRY(json_read_double(src->dict, "attention_factor", &rope->attention_factor, src->where, err));
    if (!(rope->attention_factor > 0 && rope->attention_factor <= 1e6)) {
        rc = error_set(err, ERR_FORMAT, "%s: \"attention_factor\" = %g is outside of (0, 1e6]",
                       src->where, rope->attention_factor);
    }
out:
    return rc;
}

/* The factor of q by position. */
static int read_query_scale(struct model_config *cfg, const struct rope_config *rope,
                            const struct source *src, struct error *err)
{
    const char *key = "llama_4_scaling_beta";
    double beta = 0;
    if (!family_has_key(src->family, key)) return 0;
    if (!src->dict) return error_set(err, ERR_FORMAT, "%s lacks \"rope_parameters\"", src->origin);
    int rc = json_read_double(src->dict, key, &beta, src->where, err);
    if (rc) return rc;
    if (!(beta >= 0 && beta <= 1e3)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" = %g is outside of [0, 1000]", src->where,
                         key, beta);
    }
    cfg->query_beta = (float)beta;
    cfg->query_period = beta > 0 ? rope->original_max_positions : 0;
    return 0;
}

/* yarn with "factor": null takes the ratio of the lengths; a missing factor is an error there, but
 * not with longrope. */
static int read_factor(struct rope_config *rope, int max_positions, const struct source *src,
                       struct error *err)
{
    bool is_ratio = rope->kind == ROPE_YARN && json_is_null(json_object_get(src->dict, "factor"));
    if (is_ratio || (rope->kind == ROPE_LONG && !json_member(src->dict, "factor"))) {
        rope->factor = (double)max_positions / rope->original_max_positions;
        return 0;
    }
    return read_positive(&rope->factor, src, "factor", err);
}

static int read_rope(struct rope_config *out, const struct model_config *cfg,
                     const struct source *src, struct error *err)
{
    struct rope_config rope = {.factor = 1, .attention_factor = 1};
    int rc = 0;
    TRY(read_kind(&rope, src, err));
    TRY(check_keys(&rope, src, err));
    TRY(read_theta(&rope, src, err));
    TRY(read_partial(&rope, cfg->head_dim, src, err));
    TRY(read_original_length(&rope, cfg->max_positions, src, err));
    if (rope.kind != ROPE_DEFAULT) TRY(read_factor(&rope, cfg->max_positions, src, err));
    if (rope.kind == ROPE_LLAMA3) TRY(read_llama3(&rope, src, err));
    if (rope.kind == ROPE_YARN) TRY(read_yarn(&rope, src, err));
    if (rope.kind == ROPE_LONG) TRY(read_long(&rope, cfg, src, err));
    *out = rope;
out:
    return rc;
}

/* The rotation of the layers with a window. Beside a dictionary for all layers it is plain, with a
 * base of its own or the same one. */
static int read_window_rope(struct model_config *cfg, const struct source *all, json_t *own,
                            bool is_nested, struct error *err)
{
    struct rope_config *ropes = cfg->ropes;
    struct source src = *all;
    src.dict = own;
    if (is_nested) {
        src.root = NULL;
    } else if (all->family->window_theta > 0) {
        src.theta_key = "rope_local_base_freq";
    }
    if (all->family->window_theta > 0) src.theta = all->family->window_theta;
    int rc = read_rope(&ropes[1], cfg, &src, err);
    if (rc) return rc;
    if (ropes[0].kind == ROPE_DEFAULT && ropes[1].kind == ROPE_DEFAULT &&
        ropes[0].theta == ropes[1].theta) {
        ropes[1] = (struct rope_config){0};
    }
    return 0;
}

int config_rope_read(struct model_config *cfg, json_t *root, const struct model_family *family,
                     const char *origin, struct error *err)
{
    struct source src;
    int rc = 0;
    TRY(find_dict(&src, root, family, origin, err));
    json_t *full = json_member(src.dict, "full_attention");
    json_t *own = json_member(src.dict, "sliding_attention");
    bool is_nested = family->ropes_differ && (full || own);
    if (is_nested) src.dict = full;
    if ((full && !json_is_object(full)) || (own && !json_is_object(own))) {
        return error_set(err, ERR_FORMAT, "%s has a rotation that is not an object", src.where);
    }
    TRY(read_rope(&cfg->ropes[0], cfg, &src, err));
    TRY(read_query_scale(cfg, &cfg->ropes[0], &src, err));
    if (family->ropes_differ) {
        TRY(read_window_rope(cfg, &src, is_nested ? own : NULL, is_nested, err));
    }
out:
    return rc;
}
