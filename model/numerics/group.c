/* The weights that a group of integers stores. */
#include "model/numerics/group.h"

#include "model/numerics/numerics.h"

static const uint8_t table_16[16] = {GROUP_TABLE_16};

float group_scale(const struct group_form *form, const struct weight_group *group, int run)
{
    switch (form->scale) {
    case GROUP_SCALE_BF16:
        return num_bf16_to_float(group->scale);
    case GROUP_SCALE_F16:
        return num_half_to_float(group->scale);
    case GROUP_SCALE_F32:
        return group->scale_f32;
    case GROUP_SCALE_BYTE:
        return num_half_to_float(group->scale) * (float)group->scales[0];
    case GROUP_SCALE_RUNS:
        break;
    }
    return num_half_to_float(group->scale) * (float)group->scales[run];
}

float group_minimum(const struct group_form *form, const struct weight_group *group, int run)
{
    float minimum = num_half_to_float(group->minimum);
    switch (form->minimum) {
    case GROUP_MINIMUM_F16:
        return minimum;
    case GROUP_MINIMUM_BYTE:
        return minimum * (float)group->minimums[0];
    case GROUP_MINIMUM_RUNS:
        return minimum * (float)group->minimums[run];
    case GROUP_NO_MINIMUM:
    case GROUP_ZERO:
        break;
    }
    return 0;
}

static void run_read(const struct group_form *form, const struct weight_group *group, int run,
                     float *out)
{
    enum { RUN = QUANT_GROUP / 2 };
    const uint8_t *q = group->q + run * RUN;
    int offset = form->minimum == GROUP_ZERO ? group->zero : form->offset;
    float scale = group_scale(form, group, run);
    for (int i = 0; i < RUN; i++) {
        out[i] = scale * (float)((form->is_table ? table_16[q[i]] : q[i]) - offset);
    }
    if (form->minimum == GROUP_NO_MINIMUM || form->minimum == GROUP_ZERO) return;
    float minimum = group_minimum(form, group, run);
    for (int i = 0; i < RUN; i++) {
        out[i] -= minimum;
    }
}

void group_read_f32(enum weight_form form, const struct weight_group *group, float *out)
{
    run_read(&group_forms[form], group, 0, out);
    run_read(&group_forms[form], group, 1, out + QUANT_GROUP / 2);
}
