/* Integer kernels in plain C. Without an instruction for fma: a sum has at most 24 bits and a scale
 * 24, so their product is exact in double. It is added with rounding to odd and then rounded once
 * more, which gives the result of the fused step. */
#include "model/backend/cpu/kernels/quant/tile.h"

enum { COLUMNS = 16 };
#define QUANT_TILE_ROWS 2

INLINE_ALWAYS bool quant_is_wide(enum weight_form form)
{
    (void)form;
    return false;
}

/* a * b has at most 48 bits. */
static float chain_step(float acc, float a, float b)
{
#ifdef __FP_FAST_FMAF
    return fmaf(a, b, acc);
#else
    return (float)num_add_to_odd((double)acc, (double)a * (double)b);
#endif
}

/* ---- weights ---- */

static const uint8_t table_16[16] = {GROUP_TABLE_16};

/* The unsigned integers of a step of 16 columns. */
INLINE_ALWAYS void step_load(enum weight_form form, const uint8_t *w, int step, uint8_t *q)
{
    const struct group_form *f = &group_forms[form];
    const uint8_t *low = w + quant_low_at(form, step), *high = w + quant_high_at(form, step);
    const int low_shift = quant_low_shift(form, step), mask = quant_low_mask(form);
    const int high_shift = f->high_bits ? step * f->high_bits % 8 : 0;
    for (int i = 0; i < QUANT_STEP_BYTES; i++) {
        int bits = low[i] >> low_shift & mask;
        if (f->high_bits) {
            bits |= (high[i] >> high_shift & ((1 << f->high_bits) - 1)) << f->low_bits;
        }
        q[i] = (uint8_t)bits;
    }
    for (int i = 0; f->is_table && i < QUANT_STEP_BYTES; i++) {
        q[i] = table_16[q[i]];
    }
}

/* Scales and minimums of a group's columns; with runs, the scale that theirs multiply. */
struct scales {
    float scale[QUANT_COLUMNS], minimum[QUANT_RUNS][QUANT_COLUMNS];
};

static uint16_t load_word(const uint8_t *at)
{
    uint16_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static void halves_load(const uint8_t *at, float out[QUANT_COLUMNS])
{
#ifdef __ARM_FP16_FORMAT_IEEE
    __fp16 halves[QUANT_COLUMNS];
    memcpy(halves, at, sizeof halves);
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        out[i] = (float)halves[i];
    }
#else
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        out[i] = num_half_to_float(load_word(at + 2 * i));
    }
#endif
}

INLINE_ALWAYS void scales_load(enum weight_form form, const uint8_t *w, const uint8_t *super,
                               struct scales *out)
{
    const enum group_scale kind = group_forms[form].scale;
    if (kind == GROUP_SCALE_F32) memcpy(out->scale, w, sizeof out->scale);
    if (kind == GROUP_SCALE_F16) halves_load(w, out->scale);
    if (kind == GROUP_SCALE_BYTE || kind == GROUP_SCALE_RUNS) halves_load(super, out->scale);
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        if (kind == GROUP_SCALE_BF16) out->scale[i] = num_bf16_to_float(load_word(w + 2 * i));
        if (kind == GROUP_SCALE_BYTE) out->scale[i] *= (float)(int8_t)w[i];
    }
}

INLINE_ALWAYS void minimums_load(enum weight_form form, const uint8_t *minimums,
                                 const uint8_t *super, struct scales *out)
{
    const enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_MINIMUM_F16) halves_load(minimums, out->minimum[0]);
    if (kind != GROUP_MINIMUM_BYTE && kind != GROUP_MINIMUM_RUNS) return;
    halves_load(super + QUANT_STEP_BYTES, out->minimum[0]);
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        float minimum = out->minimum[0][i];
        out->minimum[0][i] = minimum * (float)minimums[i];
        if (kind == GROUP_MINIMUM_RUNS) {
            out->minimum[1][i] = minimum * (float)minimums[QUANT_COLUMNS + i];
        }
    }
}

/* ---- sums ---- */

/* Sums of 16 columns of a run of a row, or of a whole group (run < 0), whose steps of four k are
 * step_stride apart. */
INLINE_ALWAYS void steps_sum(enum weight_form form, int32_t *sum, const uint8_t *w, const int8_t *q,
                             int step_stride, int run)
{
    const int first = run > 0 ? QUANT_RUN_STEPS : 0;
    const int end = run == 0 ? QUANT_RUN_STEPS : QUANT_STEPS;
#pragma GCC unroll 8
    for (int step = first; step < end; step++) {
        const int8_t *x = q + step * step_stride;
        uint8_t u[QUANT_STEP_BYTES];
        step_load(form, w, step, u);
        for (int i = 0; i < COLUMNS; i++) {
            sum[i] +=
                u[4 * i] * x[0] + u[4 * i + 1] * x[1] + u[4 * i + 2] * x[2] + u[4 * i + 3] * x[3];
        }
    }
}

/* Begins the sums of a row. */
INLINE_ALWAYS void sum_begin(enum weight_form form, int32_t *sum, int32_t x_sum)
{
    for (int i = 0; i < COLUMNS; i++) {
        sum[i] = group_forms[form].offset * x_sum;
    }
}

/* Sums of a group of row `row`, as exact floats. column: the first one of the vector. */
INLINE_ALWAYS void group_sums(enum weight_form form, float *total, const uint8_t *w, int column,
                              const uint8_t *x, int n_rows, int row)
{
    const uint8_t *zeros = w + quant_scales_bytes(form) + column;
    const uint8_t *values = w + quant_scales_bytes(form) + quant_minimums_bytes(form) +
                            column / COLUMNS * quant_vector_bytes(form);
    const int8_t *q = (const int8_t *)x + n_rows * QUANT_HEAD_BYTES + 4 * row;
    int32_t x_sum = quant_sum(x, n_rows, row), sum[COLUMNS];
    if (quant_has_runs(form)) {
#pragma GCC unroll 2
        for (int run = 0; run < QUANT_RUNS; run++) {
            const int8_t *scales = (const int8_t *)w + run * QUANT_COLUMNS + column;
            sum_begin(form, sum, quant_run_sum(x, n_rows, row, run));
            steps_sum(form, sum, values, q, 4 * n_rows, run);
            for (int i = 0; i < COLUMNS; i++) {
                float exact = (float)sum[i] * (float)scales[i];
                total[i] = run == 0 ? exact : exact + total[i];
            }
        }
        return;
    }
    sum_begin(form, sum, x_sum);
    steps_sum(form, sum, values, q, 4 * n_rows, -1);
    for (int i = 0; i < COLUMNS; i++) {
        if (group_forms[form].minimum == GROUP_ZERO) sum[i] += zeros[i] * x_sum;
        total[i] = (float)sum[i];
    }
}

/* ---- chains ---- */

/* A group of row `row` of a panel of n_rows. */
INLINE_ALWAYS void row_group(enum weight_form form, const uint8_t *w, const struct scales *scales,
                             const uint8_t *x, int n_rows, int row, float *acc)
{
    const enum group_minimum kind = group_forms[form].minimum;
    float total[QUANT_COLUMNS], x_scale = quant_scale(x, row);
    float scaled = quant_scaled_sum(x, n_rows, row);
    for (int first = 0; first < QUANT_COLUMNS; first += COLUMNS) {
        group_sums(form, total + first, w, first, x, n_rows, row);
    }
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        acc[i] = chain_step(acc[i], total[i], scales->scale[i] * x_scale);
    }
    if (kind == GROUP_NO_MINIMUM || kind == GROUP_ZERO) return;
    for (int run = 0; run < (kind == GROUP_MINIMUM_RUNS ? QUANT_RUNS : 1); run++) {
        if (kind == GROUP_MINIMUM_RUNS) {
            scaled = (float)quant_run_sum(x, n_rows, row, run) * x_scale;
        }
        for (int i = 0; i < QUANT_COLUMNS; i++) {
            acc[i] = chain_step(acc[i], scales->minimum[run][i], scaled);
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const uint8_t *w = d->w, *x = d->x, *super = w;
    int until = d->n_first; /* groups until the next super-block */
    w += quant_super_bytes(form);
    for (int group = 0; group < d->n_groups; group++, until--) {
        if (quant_super_bytes(form) && until == 0) {
            super = w;
            w += quant_super_bytes(form);
            until = GROUP_SUPER;
        }
        struct scales scales;
        scales_load(form, w, super, &scales);
        minimums_load(form, w + quant_scales_bytes(form), super, &scales);
        for (int i = 0; i < n_rows; i++) {
            row_group(form, w, &scales, x, n_rows, i, d->acc + i * QUANT_COLUMNS);
        }
        w += quant_group_bytes(form);
        x += n_rows * (QUANT_HEAD_BYTES + QUANT_GROUP);
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
    for (int i = 0; i < QUANT_GROUP / QUANT_RUNS; i++) {
        out->sums[0] += out->q[i];
        out->sums[1] += out->q[i + QUANT_GROUP / QUANT_RUNS];
    }
    out->scale = most / 127.0f;
}

static void quant_store(enum weight_form form, const struct quant_group *group, int step_stride,
                        uint8_t *q)
{
    int8_t bytes[QUANT_GROUP];
    (void)form;
    for (int i = 0; i < QUANT_GROUP; i++) {
        bytes[i] = (int8_t)group->q[i];
    }
    for (int step = 0; step < QUANT_STEPS; step++) {
        memcpy(q + step * step_stride, bytes + 4 * step, 4);
    }
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_plain = KERNELS_QUANT_TABLE;
