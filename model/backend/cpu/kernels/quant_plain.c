/* Integer kernels in plain C, with or without fma. A sum has 20 bits and a scale 24, so their
 * product is exact in double. It is added with rounding to odd and then rounded once more, which
 * gives the result of the fused step. */
#include "model/backend/cpu/kernels/quant_tile.h"

enum { COLUMNS = 16 };
#define QUANT_TILE_ROWS 2

static float chain_step(float acc, int32_t sum, float scale)
{
    return (float)num_add_to_odd((double)acc, (double)sum * (double)scale);
}

/* Sums of 16 columns of a group of one row. */
static void int8_sums(int32_t *sum, const uint8_t *w, const struct quant_group *x)
{
    for (int step = 0; step < QUANT_STEPS; step++) {
        const int8_t *q = x->q + 4 * step;
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] +=
                w[4 * i] * q[0] + w[4 * i + 1] * q[1] + w[4 * i + 2] * q[2] + w[4 * i + 3] * q[3];
        }
        w += QUANT_STEP_BYTES;
    }
}

static void int4_sums(int32_t *sum, const uint8_t *w, const struct quant_group *x)
{
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        const int8_t *q = x->q + 4 * step;
        for (int i = 0; i < COLUMNS; i++) {
            for (int j = 0; j < 4; j++) {
                sum[i] += (w[4 * i + j] & 15) * q[j] + (w[4 * i + j] >> 4) * q[4 + j];
            }
        }
        w += QUANT_STEP_BYTES;
    }
}

static void row_group(enum weight_form form, const uint8_t *w, const struct quant_group *x,
                      float *acc)
{
    const int vector_bytes = quant_vector_bytes(form);
    for (int v = 0; v < QUANT_VECTORS; v++) {
        const uint8_t *values = w + QUANT_SCALE_BYTES + v * vector_bytes;
        int32_t sum[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] = x->start;
        }
        (form == WEIGHTS_INT8 ? int8_sums : int4_sums)(sum, values, x);
        for (int i = 0; i < COLUMNS; i++) {
            uint16_t scale;
            memcpy(&scale, w + sizeof scale * (size_t)(COLUMNS * v + i), sizeof scale);
            float *out = acc + COLUMNS * v + i;
            *out = chain_step(*out, sum[i], num_bf16_to_float(scale) * x->scale);
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    size_t bytes = quant_group_bytes(form);
    for (int group = 0; group < d->n_groups; group++) {
        for (int i = 0; i < n_rows; i++) {
            row_group(form, d->w + (size_t)group * bytes, d->x + (size_t)i * d->x_stride + group,
                      d->acc + i * QUANT_COLUMNS);
        }
    }
}

#include "model/backend/cpu/kernels/quant_impl.h"

const struct kernels_quant kernels_quant_plain = KERNELS_QUANT_TABLE;
