/* Rotary position embedding with its scalings. */
#include "model/rope.h"

#include <math.h>

#include "model/numerics/numerics.h"

static const double two_pi = 6.283185307179586;

static double power(double base, double exponent)
{
    return num_exp_double(exponent * num_log(base));
}

/* Llama 3.1: long wavelengths are divided by factor, short ones kept, between them a ramp. */
static double scale_llama3(double frequency, const struct rope_config *cfg)
{
    double wavelength = two_pi / frequency;
    double low = cfg->original_max_positions / cfg->low_freq_factor;
    double high = cfg->original_max_positions / cfg->high_freq_factor;
    if (wavelength < high) return frequency;
    if (wavelength > low) return frequency / cfg->factor;
    double smooth = (cfg->original_max_positions / wavelength - cfg->low_freq_factor) /
                    (cfg->high_freq_factor - cfg->low_freq_factor);
    return (1 - smooth) * frequency / cfg->factor + smooth * frequency;
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071): the dimension at which a rotation count is reached. */
static double correction_dim(double n_rotations, int dim, const struct rope_config *cfg)
{
    return dim * num_log(cfg->original_max_positions / (n_rotations * two_pi)) /
           (2 * num_log(cfg->theta));
}

static double scale_yarn(double frequency, int i, int dim, const struct rope_config *cfg)
{
    double low = correction_dim(cfg->beta_fast, dim, cfg);
    double high = correction_dim(cfg->beta_slow, dim, cfg);
    if (cfg->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > dim - 1) high = dim - 1;
    if (low == high) high += 0.001;
    double ramp = (i - low) / (high - low);
    if (ramp < 0) ramp = 0;
    if (ramp > 1) ramp = 1;
    return frequency / cfg->factor * ramp + frequency * (1 - ramp);
}

int rope_init(struct rope *rope, const struct rope_config *cfg, int head_dim, struct error *err)
{
    int dim = cfg->rotary_dim ? cfg->rotary_dim : head_dim;
    if (dim < 4 || dim % 4 || dim > HEAD_DIM_MAX) {
        return error_set(
            err, ERR_UNSUPPORTED,
            "rotating %d elements of a head is not supported (a multiple of 4, 4 to %d)", dim,
            HEAD_DIM_MAX);
    }
    rope->half = dim / 2;
    rope->attention_factor = 1.0f;
    for (int i = 0; i < rope->half; i++) {
        double frequency = 1.0 / power(cfg->theta, 2.0 * i / dim);
        switch (cfg->kind) {
        case ROPE_DEFAULT:
            break;
        case ROPE_LINEAR:
            frequency /= cfg->factor;
            break;
        case ROPE_LLAMA3:
            frequency = scale_llama3(frequency, cfg);
            break;
        case ROPE_YARN:
            frequency = scale_yarn(frequency, i, dim, cfg);
            rope->attention_factor = (float)cfg->attention_factor;
            break;
        case ROPE_LONG:
            frequency /= (double)cfg->divisors[i];
            rope->attention_factor = (float)cfg->attention_factor;
            break;
        }
        rope->frequency[i] = (float)frequency;
    }
    return 0;
}

void rope_position(const struct rope *rope, int position, float *cos, float *sin)
{
    for (int i = 0; i < rope->half; i++) {
        float angle = rope->frequency[i] * (float)position;
        double s, c;
        num_sincos((double)angle, &s, &c);
        cos[i] = (float)c * rope->attention_factor;
        sin[i] = (float)s * rope->attention_factor;
    }
}
