/* Integer kernels in plain C. Without an instruction for fma: a sum has 20 bits and a scale 24, so
 * their product is exact in double. It is added with rounding to odd and then rounded once more,
 * which gives the result of the fused step. */
#include "model/backend/cpu/kernels/quant/tile.h"

enum { COLUMNS = 16 };
#define QUANT_TILE_ROWS 2

static float chain_step(float acc, int32_t sum, float scale)
{
#ifdef __FP_FAST_FMAF
    return fmaf((float)sum, scale, acc);
#else
    return (float)num_add_to_odd((double)acc, (double)sum * (double)scale);
#endif
}

INLINE_ALWAYS int quant_step_bytes(enum weight_form form)
{
    (void)form;
    return 4;
}

/* Sums of 16 columns of a group of one row, whose steps of four k are step_stride apart. */
static void int8_sums(int32_t *sum, const uint8_t *w, const int8_t *q, int step_stride)
{
    for (int step = 0; step < QUANT_STEPS; step++) {
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] +=
                w[4 * i] * q[0] + w[4 * i + 1] * q[1] + w[4 * i + 2] * q[2] + w[4 * i + 3] * q[3];
        }
        w += QUANT_STEP_BYTES;
        q += step_stride;
    }
}

static void int4_sums(int32_t *sum, const uint8_t *w, const int8_t *q, int step_stride)
{
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        for (int i = 0; i < COLUMNS; i++) {
            for (int j = 0; j < 4; j++) {
                sum[i] += (w[4 * i + j] & 15) * q[j] + (w[4 * i + j] >> 4) * q[step_stride + j];
            }
        }
        w += QUANT_STEP_BYTES;
        q += 2 * step_stride;
    }
}

/* A group of row `row` of a panel of n_rows. */
static void row_group(enum weight_form form, const uint8_t *w, const uint8_t *x, int n_rows,
                      int row, float *acc)
{
    const int vector_bytes = quant_vector_bytes(form);
    const int8_t *q = (const int8_t *)x + n_rows * QUANT_HEAD_BYTES + 4 * row;
    for (int v = 0; v < QUANT_VECTORS; v++) {
        const uint8_t *values = w + QUANT_SCALE_BYTES + v * vector_bytes;
        int32_t sum[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] = quant_start(x, n_rows, row);
        }
        (form == WEIGHTS_INT8 ? int8_sums : int4_sums)(sum, values, q, 4 * n_rows);
        for (int i = 0; i < COLUMNS; i++) {
            uint16_t scale;
            memcpy(&scale, w + sizeof scale * (size_t)(COLUMNS * v + i), sizeof scale);
            float *out = acc + COLUMNS * v + i;
            *out = chain_step(*out, sum[i], num_bf16_to_float(scale) * quant_scale(x, row));
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const uint8_t *w = d->w, *x = d->x;
    for (int group = 0; group < d->n_groups; group++) {
        for (int i = 0; i < n_rows; i++) {
            row_group(form, w, x, n_rows, i, d->acc + i * QUANT_COLUMNS);
        }
        w += quant_group_bytes(form);
        x += n_rows * (QUANT_HEAD_BYTES + QUANT_STEPS * quant_step_bytes(form));
    }
}

/* Loops of a known length become vectors. */
static void quant_round(const uint16_t *in, struct quant_group *out)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    uint32_t largest = 0;
    for (int i = 0; i < QUANT_GROUP; i++) {
        uint32_t size = in[i] & 0x7fffu;
        largest = size > largest ? size : largest;
    }
    float most = num_bf16_to_float((uint16_t)largest);
    *out = (struct quant_group){0};
    if (largest >= 0x7f80u) out->scale = NAN;
    if (largest >= 0x7f80u || most < 0x1p-100f) return;
    float factor = 127.0f / most;
    for (int i = 0; i < QUANT_GROUP; i++) {
        float x = num_bf16_to_float(in[i]) * factor + shift;
        out->q[i] = (int16_t)(num_float_to_bits(x) - 0x4b400000u);
    }
    for (int i = 0; i < QUANT_GROUP; i += 4) {
        out->sums[0] += out->q[i] + out->q[i + 1];
        out->sums[1] += out->q[i + 2] + out->q[i + 3];
    }
    out->scale = most / 127.0f;
}

static void quant_store(enum weight_form form, const struct quant_group *group, int step_stride,
                        uint8_t *start, uint8_t *q)
{
    int8_t bytes[QUANT_GROUP];
    int32_t value = (form == WEIGHTS_INT8 ? -128 : -8) * (group->sums[0] + group->sums[1]);
    memcpy(start, &value, sizeof value);
    for (int i = 0; i < QUANT_GROUP; i++) {
        bytes[i] = (int8_t)group->q[i];
    }
    for (int step = 0; step < QUANT_STEPS; step++) {
        memcpy(q + step * step_stride, bytes + 4 * step, 4);
    }
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_plain = KERNELS_QUANT_TABLE;
