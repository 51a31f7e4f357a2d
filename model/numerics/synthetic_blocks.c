/* Rounding elements to groups. Steps and minimums are those of the smallest range that holds a
 * group, or each of its runs of 16 where the kind has scales for these. A super-block's halves are
 * the same in all of a matrix: they are chosen so that the widest range that elements may have is
 * the largest byte. */
#include "model/numerics/synthetic_blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/numerics/numerics.h"

enum { RUN = QUANT_GROUP / 2 };

static const uint8_t table_16[16] = {GROUP_TABLE_16};

/* The largest byte of a scale and of a minimum in a super-block of these kinds. */
static const struct {
    int scale, minimum;
} most_bytes[BLOCK_KINDS] = {
    [BLOCK_Q2_K] = {15, 15}, [BLOCK_Q3_K] = {31, 0},  [BLOCK_Q4_K] = {63, 63},
    [BLOCK_Q5_K] = {63, 63}, [BLOCK_Q6_K] = {127, 0}, [BLOCK_IQ4_XS] = {31, 0},
};

bool synthetic_block_kind(const char *name, enum block_kind *kind)
{
    for (int i = BLOCK_UNREAD + 1; i < BLOCK_KINDS; i++) {
        *kind = (enum block_kind)i;
        bool has_integers = block_form(*kind) != WEIGHTS_BF16;
        if (has_integers && strcasecmp(name, block_type_of(*kind)->name) == 0) return true;
    }
    return false;
}

void synthetic_block_names(char *text, size_t text_bytes)
{
    size_t n = 0;
    *text = '\0';
    for (int i = BLOCK_UNREAD + 1; i < BLOCK_KINDS && n < text_bytes; i++) {
        if (block_form((enum block_kind)i) == WEIGHTS_BF16) continue;
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%s", n ? ", " : "",
                              block_type_of((enum block_kind)i)->name);
    }
}

/* The nearest half of x in [0, 65504]. */
static uint16_t half_of(float x)
{
    int exponent;
    if (!(x > 0)) return 0;
    frexpf(x, &exponent); /* x < 2^exponent */
    if (exponent < -13) return (uint16_t)lrintf(ldexpf(x, 24));
    return (uint16_t)((exponent + 14) * 1024 + (int)lrintf(ldexpf(x, 11 - exponent)) - 1024);
}

/* The numbers that integers stand for before they are multiplied: from -below to `above`. */
static void range_of(const struct group_form *form, int *below, int *above)
{
    int most = (1 << (form->low_bits + form->high_bits)) - 1;
    *below = form->is_table ? form->offset - table_16[0] : form->offset;
    *above = form->is_table ? table_16[15] - form->offset : most - form->offset;
}

static int clamp(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

/* Sets the step and the minimum of one run, or of the group where it has one of each. */
static void set_scales(enum block_kind kind, float deviation, const float *values, int n, int run,
                       struct weight_group *out)
{
    const struct group_form *form = &group_forms[block_form(kind)];
    int below, above, most_scale = most_bytes[kind].scale;
    float low = 0, high = 0;
    range_of(form, &below, &above);
    bool has_minimum = form->minimum != GROUP_NO_MINIMUM;
    for (int i = 0; i < n; i++) {
        low = fminf(low, values[i]);
        high = fmaxf(high, values[i]);
    }
    float width = has_minimum ? high - low : fmaxf(high, -low), step = width / (float)above;
    float widest = (has_minimum ? 2 : 1) * 1.75f * deviation; /* sqrt(3) deviations */
    if (!group_form_is_super(block_form(kind))) {
        out->scale = half_of(step);
        out->minimum = has_minimum ? half_of(-low) : 0;
        return;
    }
    out->scale = half_of(widest / (float)(above * most_scale));
    float unit = num_half_to_float(out->scale);
    if (unit > 0) out->scales[run] = (int8_t)clamp((int)lrintf(step / unit), 1, most_scale);
    if (!has_minimum) return;
    int most_minimum = most_bytes[kind].minimum;
    out->minimum = half_of(1.75f * deviation / (float)most_minimum);
    unit = num_half_to_float(out->minimum);
    if (unit > 0) out->minimums[run] = (uint8_t)clamp((int)lrintf(-low / unit), 0, most_minimum);
}

static uint8_t nearest_entry(float x)
{
    int best = 0;
    for (int i = 1; i < 16; i++) {
        if (fabsf((float)table_16[i] - x) < fabsf((float)table_16[best] - x)) best = i;
    }
    return (uint8_t)best;
}

static void round_run(const struct group_form *form, const float *values, int run,
                      struct weight_group *out)
{
    int most = (1 << (form->low_bits + form->high_bits)) - 1;
    float step = group_scale(form, out, run), minimum = group_minimum(form, out, run);
    for (int i = 0; i < RUN; i++) {
        float x = (float)form->offset;
        if (step > 0) x += (values[i] + minimum) / step;
        out->q[run * RUN + i] =
            form->is_table ? nearest_entry(x) : (uint8_t)clamp((int)lrintf(x), 0, most);
    }
}

void synthetic_round_group(enum block_kind kind, float deviation, const float *values,
                           struct weight_group *out)
{
    const struct group_form *form = &group_forms[block_form(kind)];
    *out = (struct weight_group){0};
    if (form->scale == GROUP_SCALE_RUNS) {
        set_scales(kind, deviation, values, RUN, 0, out);
        set_scales(kind, deviation, values + RUN, RUN, 1, out);
    } else {
        set_scales(kind, deviation, values, QUANT_GROUP, 0, out);
    }
    round_run(form, values, 0, out);
    round_run(form, values + RUN, 1, out);
}
