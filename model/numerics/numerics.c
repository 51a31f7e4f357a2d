/* Elementary functions of our own. Polynomials: exp after Cephes (Moshier), log and the sin/cos
 * kernels after fdlibm (Sun Microsystems 1993). Every operation is a single IEEE add, multiply or
 * divide; the compiler may not contract them (cmake/flags.cmake). */
#include "model/numerics/numerics.h"

#include "model/numerics/exp_coefficients.h"
#include "model/numerics/log_coefficients.h"

float num_half_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t exponent = x >> 10 & 0x1fu;
    uint32_t fraction = x & 0x3ffu;
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return num_bits_to_float(num_float_to_bits(small) | sign);
    }
    uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return num_bits_to_float(sign | wide << 23 | fraction << 13);
}

static float power_of_two(int n)
{
    return num_bits_to_float((uint32_t)(n + 127) << 23);
}

float num_exp(float x)
{
    if (!(x >= EXP_LEAST)) return x < 0 ? 0.0f : x; /* NaN stays */
    if (x > EXP_MOST) return INFINITY;
    /* x = n ln 2 + r; adding 1.5 * 2^23 rounds to an integer. */
    float shifted = x * EXP_LOG2_E + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = x - n * EXP_LN2;
    r = r - n * EXP_LN2_LOW;
    float y;
    EXP_POLYNOMIAL(y, r);
    int whole = (int)n;
    int half = whole >> 1; /* in two factors: 2^128 is no float */
    return y * power_of_two(half) * power_of_two(whole - half);
}

float num_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + num_exp(2.0f * x));
}

float num_gelu_tanh(float x)
{
    return x / (1.0f + num_exp(GELU_SLOPE * (x + GELU_CUBE * (x * x * x))));
}

double num_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x == 0) return -HUGE_VAL;
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > LOG_SQRT_2) {
        m *= 0.5;
        k++;
    }
    double f = m - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double w = z * z;
    double r = LOG_R_EVEN(w) + LOG_R_ODD(z, w);
    double half_square = 0.5 * f * f;
    return k * LOG_LN2 - ((half_square - (s * (half_square + r) + k * LOG_LN2_LOW)) - f);
}

double num_exp_double(double x)
{
    if (x < -700.0) return 0.0;
    if (x > 700.0) return HUGE_VAL;
    double n = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - n * LOG_LN2) - n * LOG_LN2_LOW;
    /* Taylor to degree 13: the rest is below 2^-57 for |r| <= ln 2 / 2. */
    double y = 1.0;
    for (int i = 13; i >= 1; i--) {
        y = 1.0 + y * r / i;
    }
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

void num_sincos(double x, double *sin_x, double *cos_x)
{
    double n = floor(x * 0.63661977236758134308 + 0.5);
    double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) -
               n * 2.02226624879595063154e-21;
    double z = r * r;
    double s =
        r +
        z * r *
            (-1.66666666666666324348e-01 +
             z * (8.33333333332248946124e-03 +
                  z * (-1.98412698298579493134e-04 +
                       z * (2.75573137070700676789e-06 +
                            z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
    double c = 1.0 - (0.5 * z - z * z *
                                    (4.16666666666666019037e-02 +
                                     z * (-1.38888888888741095749e-03 +
                                          z * (2.48015872894767294178e-05 +
                                               z * (-2.75573143513906633035e-07 +
                                                    z * (2.08757232129817482790e-09 +
                                                         z * -1.13596475577881948265e-11))))));
    switch ((int64_t)n & 3) {
    case 0:
        *sin_x = s, *cos_x = c;
        break;
    case 1:
        *sin_x = c, *cos_x = -s;
        break;
    case 2:
        *sin_x = -s, *cos_x = -c;
        break;
    default:
        *sin_x = -c, *cos_x = s;
        break;
    }
}

float num_gumbel(uint32_t bits)
{
    double u = ((double)bits + 0.5) * 0x1p-32;
    return (float)-num_log(-num_log(u));
}
