/* How positions rotate. Scaling of llama3's kind is a table of divisors in the file, rope_freqs,
 * from which the numbers of config.json are found again, so that the frequencies are the folder's
 * to the last bit; other divisors are used as they are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "model/checkpoint/gguf/config.h"
#include "model/checkpoint/gguf/internal.h"

/* A table of fp32 divisors, one for each pair of a head's elements. */
struct divisors {
    float of[HEAD_DIM_MAX / 2];
    int n;
};

static int read_divisors(const struct gguf_writing *w, const char *name, int n,
                         struct divisors *divisors, struct error *err)
{
    const struct gguf_tensor *tensor = gguf_find_tensor(w->gguf, name);
    divisors->n = 0;
    if (!tensor) return 0;
    if (tensor->type != 0 || tensor->n_dims != 1 || tensor->dims[0] != (uint64_t)n ||
        n > HEAD_DIM_MAX / 2) {
        return error_set(err, ERR_FORMAT,
                         "%s: the tensor %s has %llu elements, must have %d, of fp32",
                         gguf_origin(w->gguf), name, (unsigned long long)tensor->dims[0], n);
    }
    memcpy(divisors->of, tensor->data, (size_t)n * sizeof *divisors->of);
    divisors->n = n;
    for (int i = 0; i < n; i++) {
        float value = divisors->of[i];
        if (value >= 1e-6f && value <= 1e9f) continue;
        return error_set(err, ERR_FORMAT,
                         "%s: element %d of the tensor %s is %g, which is no "
                         "divisor of a frequency",
                         gguf_origin(w->gguf), i, name, (double)value);
    }
    return 0;
}

/* The numbers with which llama3's kind of scaling has been used so far, but for its factor. */
static const double low_freq_factor = 1, high_freq_factor = 4, original_length = 8192;

/* The divisor of llama3's kind for frequency i of n. */
static double llama3_divisor(double theta, double factor, int i, int n)
{
    double wavelength = 2 * 3.14159265358979323846 * pow(theta, (double)i / n);
    if (wavelength < original_length / high_freq_factor) return 1;
    if (wavelength > original_length / low_freq_factor) return factor;
    double smooth =
        (original_length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
    return 1 / ((1 - smooth) / factor + smooth);
}

static bool is_llama3(const struct divisors *divisors, double theta)
{
    double factor = (double)divisors->of[divisors->n - 1];
    for (int i = 0; i < divisors->n; i++) {
        double wanted = llama3_divisor(theta, factor, i, divisors->n);
        if (fabs((double)divisors->of[i] - wanted) > 1e-4 * wanted) return false;
    }
    return true;
}

static int write_freqs(const struct gguf_writing *w, const struct divisors *divisors, double theta,
                       json_t *scaling, struct error *err)
{
    int rc = 0;
    if (json_object_size(scaling) > 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: rope_freqs.weight beside a \"%s.rope.scaling.type\" is not supported",
                         gguf_origin(w->gguf), w->arch->name);
    }
    if (!is_llama3(divisors, theta)) {
        memcpy(w->out->divisors, divisors->of, (size_t)divisors->n * sizeof *divisors->of);
        w->out->n_divisors = divisors->n;
        return 0;
    }
    TRY(gguf_set(scaling, "rope_type", json_string("llama3"), err));
    TRY(gguf_set(scaling, "factor", gguf_json_number((double)divisors->of[divisors->n - 1]), err));
    TRY(gguf_set(scaling, "low_freq_factor", json_real(low_freq_factor), err));
    TRY(gguf_set(scaling, "high_freq_factor", json_real(high_freq_factor), err));
    TRY(gguf_set(scaling, "original_max_position_embeddings",
                 json_integer((json_int_t)original_length), err));
out:
    return rc;
}

/* Numbers of rope.scaling that config.json has under `key`. */
static int copy_number(const struct gguf_writing *w, const char *tail, json_t *scaling,
                       const char *key, struct error *err)
{
    char own[GGUF_KEY_BYTES];
    double value = 0;
    gguf_arch_key(w, tail, own);
    if (!gguf_has(w->gguf, own)) return 0;
    int rc = gguf_read_number(w->gguf, own, &value, err);
    return rc ? rc : gguf_set(scaling, key, gguf_json_number(value), err);
}

/* Reads the file's factor of cos and sin, 1 if there is none. YaRN's own is multiplied by it,
 * Phi's is replaced. */
static int read_attn_factor(const struct gguf_writing *w, double *factor, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    *factor = 1;
    int rc =
        gguf_read_number(w->gguf, gguf_arch_key(w, "rope.scaling.attn_factor", key), factor, err);
    if (rc || (*factor > 0 && *factor <= 1e6)) return rc;
    return error_set(err, ERR_FORMAT, "%s: \"%s\" = %g is outside of (0, 1e6]",
                     gguf_origin(w->gguf), key, *factor);
}

/* Refuses a factor with the kinds of scaling whose cos and sin no config.json multiplies. */
static int check_attn_factor(const struct gguf_writing *w, const json_t *scaling, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    const char *kind = json_string_value(json_object_get(scaling, "rope_type"));
    double factor;
    if (kind && (strcmp(kind, "yarn") == 0 || strcmp(kind, "longrope") == 0)) return 0;
    int rc = read_attn_factor(w, &factor, err);
    if (rc || factor == 1) return rc;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: \"%s\" = %g is not supported without the scaling yarn or, in phi3, "
                     "longrope (1 is)",
                     gguf_origin(w->gguf), gguf_arch_key(w, "rope.scaling.attn_factor", key),
                     factor);
}

/* Replaces YaRN's factor of cos and sin, which is in `scaling` or follows from it, where the file
 * multiplies it. */
static int multiply_yarn(const struct gguf_writing *w, json_t *scaling, struct error *err)
{
    double multiplier, scale = json_number_value(json_object_get(scaling, "factor"));
    const json_t *given = json_object_get(scaling, "attention_factor");
    int rc = read_attn_factor(w, &multiplier, err);
    if (rc || multiplier == 1) return rc;
    double all = json_number_value(json_object_get(scaling, "mscale_all_dim"));
    double log_scale = scale > 1 ? 0.1 * log(scale) : 0;
    double factor = given      ? json_number_value(given)
                    : all != 0 ? (1 + log_scale) / (1 + all * log_scale)
                               : 1 + log_scale;
    return gguf_set(scaling, "attention_factor", json_real(factor * multiplier), err);
}

static int write_yarn(const struct gguf_writing *w, json_t *scaling, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    double extrapolation = 1;
    int original = 0, rc = 0;
    TRY(gguf_read_number(w->gguf, gguf_arch_key(w, "rope.scaling.yarn_ext_factor", key),
                         &extrapolation, err));
    if (extrapolation != 1) {
        return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %g is not supported (1 is)",
                         gguf_origin(w->gguf), key, extrapolation);
    }
    TRY(gguf_set(scaling, "rope_type", json_string("yarn"), err));
    TRY(gguf_read_equal(w, "rope.scaling.original_context_length", 1, GGUF_INT_MOST, &original,
                        err));
    if (original) {
        TRY(gguf_set(scaling, "original_max_position_embeddings", json_integer(original), err));
    }
    TRY(copy_number(w, "rope.scaling.factor", scaling, "factor", err));
    TRY(copy_number(w, "rope.scaling.yarn_attn_factor", scaling, "attention_factor", err));
    TRY(copy_number(w, "rope.scaling.yarn_beta_fast", scaling, "beta_fast", err));
    TRY(copy_number(w, "rope.scaling.yarn_beta_slow", scaling, "beta_slow", err));
    if (gguf_has(w->gguf, gguf_arch_key(w, "rope.scaling.yarn_log_multiplier", key))) {
        TRY(gguf_set(scaling, "mscale", json_integer(1), err)); /* it is in no file */
    }
    TRY(copy_number(w, "rope.scaling.yarn_log_multiplier", scaling, "mscale_all_dim", err));
    TRY(multiply_yarn(w, scaling, err));
out:
    return rc;
}

static int write_linear(const struct gguf_writing *w, const char *tail, json_t *scaling,
                        struct error *err)
{
    int rc = gguf_set(scaling, "rope_type", json_string("linear"), err);
    return rc ? rc : copy_number(w, tail, scaling, "factor", err);
}

/* Phi's long context: divisors for short and for long texts. The factor of cos and sin follows from
 * the lengths; one that does not is kept. */
static int write_long(const struct gguf_writing *w, int n, int max_positions, json_t *scaling,
                      struct error *err)
{
    static const struct {
        const char *tensor, *key;
    } tables[] = {{"rope_factors_long.weight", "long_factor"},
                  {"rope_factors_short.weight", "short_factor"}};
    char key[GGUF_KEY_BYTES];
    struct divisors divisors;
    int original = 4096, rc = 0;
    TRY(gguf_read_equal(w, "rope.scaling.original_context_length", 1, GGUF_INT_MOST, &original,
                        err));
    TRY(gguf_set(w->root, "original_max_position_embeddings", json_integer(original), err));
    if (!gguf_find_tensor(w->gguf, tables[0].tensor)) goto out;
    TRY(gguf_set(scaling, "rope_type", json_string("longrope"), err));
    for (int i = 0; i < 2; i++) {
        json_t *list = json_array();
        TRY(gguf_set(scaling, tables[i].key, list, err));
        TRY(read_divisors(w, tables[i].tensor, n, &divisors, err));
        for (int k = 0; k < divisors.n; k++) {
            TRY(gguf_append(list, gguf_json_number((double)divisors.of[k]), err));
        }
    }
    double ratio = (double)max_positions / original;
    double usual = ratio > 1 ? sqrt(1 + log(ratio) / log(original)) : 1, given = usual;
    if (gguf_has(w->gguf, gguf_arch_key(w, "rope.scaling.attn_factor", key))) {
        TRY(read_attn_factor(w, &given, err));
    }
    if (fabs(given - usual) > 1e-5 * usual) {
        TRY(gguf_set(scaling, "attention_factor", gguf_json_number(given), err));
    }
out:
    return rc;
}

/* Fills `scaling`; it stays empty where nothing is scaled. */
static int write_scaling(const struct gguf_writing *w, json_t *scaling, struct error *err)
{
    char key[GGUF_KEY_BYTES];
    struct gguf_text type = {"none", 4};
    const struct gguf_text linear_type = {"linear", 6};
    double linear = 1;
    int rc = 0;
    TRY(gguf_read_number(w->gguf, gguf_arch_key(w, "rope.scale_linear", key), &linear, err));
    if (gguf_has(w->gguf, gguf_arch_key(w, "rope.scaling.factor", key))) type = linear_type;
    TRY(gguf_read_text(w->gguf, gguf_arch_key(w, "rope.scaling.type", key), &type, err));
    if (gguf_text_is(&type, "yarn")) return write_yarn(w, scaling, err);
    if (gguf_text_is(&type, "longrope") && w->arch->id == GGUF_ARCH_PHI3) return 0;
    if (gguf_text_is(&type, "linear")) return write_linear(w, "rope.scaling.factor", scaling, err);
    if (!gguf_text_is(&type, "none")) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"%s\" = \"%.*s\" is not supported (none, linear and yarn are, and "
                         "longrope in phi3)",
                         gguf_origin(w->gguf), key, type.len < 40 ? (int)type.len : 40, type.data);
    }
    if (linear != 1 && linear != 0) rc = write_linear(w, "rope.scale_linear", scaling, err);
out:
    return rc;
}

/* The part of a head that rotates, of which only Phi leaves some. */
static int write_rotated(const struct gguf_writing *w, int head_dim, int *n_rotated,
                         struct error *err)
{
    char key[GGUF_KEY_BYTES];
    *n_rotated = head_dim;
    int rc = gguf_read_equal(w, "rope.dimension_count", 1, GGUF_INT_MOST, n_rotated, err);
    if (rc || *n_rotated == head_dim) return rc;
    if (*n_rotated > head_dim || w->arch->id != GGUF_ARCH_PHI3) {
        return error_set(err, ERR_UNSUPPORTED, "%s: \"%s\" = %d is not supported with heads of %d",
                         gguf_origin(w->gguf), gguf_arch_key(w, "rope.dimension_count", key),
                         *n_rotated, head_dim);
    }
    /* The reader cuts the product with head_dim. */
    double part = (*n_rotated + 0.25) / head_dim;
    return gguf_set(w->root, "partial_rotary_factor", json_real(part), err);
}

int gguf_write_rope(const struct gguf_writing *w, int head_dim, int max_positions,
                    struct error *err)
{
    char key[GGUF_KEY_BYTES];
    struct divisors divisors;
    json_t *scaling = json_object();
    double theta = w->arch->id == GGUF_ARCH_GEMMA3 ? 1e6 : 10000, local_theta = 10000;
    int n_rotated, rc = gguf_set(w->root, "rope_scaling", scaling, err);
    if (rc) return rc;
    TRY(gguf_read_number(w->gguf, gguf_arch_key(w, "rope.freq_base", key), &theta, err));
    TRY(gguf_set(w->root, "rope_theta", gguf_json_number(theta), err));
    if (w->arch->id == GGUF_ARCH_GEMMA3) {
        TRY(gguf_read_number(w->gguf, gguf_arch_key(w, "rope.freq_base_swa", key), &local_theta,
                             err));
        TRY(gguf_set(w->root, "rope_local_base_freq", gguf_json_number(local_theta), err));
    }
    TRY(write_rotated(w, head_dim, &n_rotated, err));
    TRY(write_scaling(w, scaling, err));
    if (w->arch->id == GGUF_ARCH_PHI3) {
        TRY(write_long(w, n_rotated / 2, max_positions, scaling, err));
    }
    TRY(read_divisors(w, "rope_freqs.weight", head_dim / 2, &divisors, err));
    if (divisors.n) TRY(write_freqs(w, &divisors, theta, scaling, err));
    TRY(check_attn_factor(w, scaling, err));
out:
    return rc;
}
