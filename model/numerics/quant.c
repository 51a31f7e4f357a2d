/* Rounding of weights to integers. */
#include "model/numerics/quant.h"

#include <string.h>

#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

static const uint16_t bf16_nan = 0x7fc0;

/* The range of integers of a form. */
struct range {
    float divisor, least, most; /* the largest magnitude is divisor * scale */
};

static struct range range_of(enum weight_form form)
{
    return form == WEIGHTS_INT8 ? (struct range){127.0f, -127.0f, 127.0f}
                                : (struct range){7.5f, -8.0f, 7.0f};
}

/* Whole groups only: loops of a known length become vectors. */
static inline __attribute__((always_inline)) uint16_t group_round(const struct range *range,
                                                                  const uint16_t *w, int8_t *q)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    uint32_t largest = 0;
    for (int i = 0; i < QUANT_GROUP; i++) {
        uint32_t size = w[i] & 0x7fffu;
        largest = size > largest ? size : largest;
    }
    float most = num_bf16_to_float((uint16_t)largest);
    memset(q, 0, QUANT_GROUP);
    if (largest >= 0x7f80u) return bf16_nan;
    if (most < 0x1p-100f) return 0;
    uint16_t scale = num_float_to_bf16(most / range->divisor);
    float factor = 1.0f / num_bf16_to_float(scale);
    for (int i = 0; i < QUANT_GROUP; i++) {
        float x = (num_bf16_to_float(w[i]) * factor + shift) - shift;
        x = x < range->least ? range->least : x;
        x = x > range->most ? range->most : x;
        q[i] = (int8_t)x;
    }
    return scale;
}

VARIANTS void quant_weights(enum weight_form form, const uint16_t *w, int n, int8_t *q,
                            uint16_t *scales)
{
    const struct range range = range_of(form);
    int k = 0;
    for (; k + QUANT_GROUP <= n; k += QUANT_GROUP) {
        *scales++ = group_round(&range, w + k, q + k);
    }
    if (k == n) return;
    uint16_t rest[QUANT_GROUP] = {0};
    int8_t rounded[QUANT_GROUP];
    memcpy(rest, w + k, (size_t)(n - k) * sizeof *w);
    *scales = group_round(&range, rest, rounded);
    memcpy(q + k, rounded, (size_t)(n - k));
}
