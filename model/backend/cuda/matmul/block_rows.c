#include "model/backend/cuda/matmul/block_rows.h"

#include <math.h>
#include <string.h>

#include "model/numerics/group.h"
#include "model/numerics/numerics.h"

enum { RUNS = QUANT_GROUP / BLOCK_RUN };

static const uint8_t table_16[16] = {GROUP_TABLE_16};

/* Stored fp8 is one of the blocks here. */
bool block_form_is_known(enum weight_form form)
{
    return form == WEIGHTS_FP8 || group_forms[form].low_bits > 0;
}

/* Integers of a table are those of 8 bits, and tiles have no fewer than 4. */
static int bits_of(const struct group_form *form)
{
    int bits = form->low_bits + form->high_bits;
    if (form->is_table) return 8;
    return bits < 4 ? 4 : bits;
}

static bool has_runs(const struct group_form *form)
{
    return form->scale == GROUP_SCALE_RUNS || form->minimum == GROUP_MINIMUM_RUNS;
}

struct block_layout block_layout_of(const struct matrix *m)
{
    struct block_layout layout = {.bits = 4, .n_scales = 1}, none = {0};
    int n_fp8 = 0;
    if (m->form != WEIGHTS_BLOCKS) return none;
    for (int i = 0; i < m->n_sections; i++) {
        n_fp8 += m->sections[i].form == WEIGHTS_FP8;
    }
    if (n_fp8 == m->n_sections) {
        return (struct block_layout){.bits = 8, .n_scales = RUNS, .is_fp8 = true};
    }
    if (n_fp8 > 0) return none;
    for (int i = 0; i < m->n_sections; i++) {
        const struct group_form *form = &group_forms[m->sections[i].form];
        if (!block_form_is_known(m->sections[i].form)) return none;
        if (bits_of(form) > layout.bits) layout.bits = bits_of(form);
        if (has_runs(form)) layout.n_scales = RUNS;
        if (form->minimum != GROUP_NO_MINIMUM) layout.has_mins = true;
    }
    return layout;
}

int block_run_of(const struct weight *weight)
{
    if (weight_form_of(weight) != WEIGHTS_FP8) return QUANT_GROUP;
    return weight->stored.n_groups == 1 ? 1 : BLOCK_RUN; /* groups are multiples of 32 */
}

/* ---- reading ---- */

/* Returns the number that is taken from q. Integers of 8 bits, and those of a matrix without
 * minimums, become signed; elsewhere they stay unsigned, and the minimum has to make up for it. */
static int offset_of(const struct block_layout *layout, const struct group_form *form)
{
    if (form->minimum == GROUP_NO_MINIMUM) {
        return layout->has_mins && layout->bits < 8 ? 0 : form->offset;
    }
    return form->low_bits == 8 ? 128 : 0;
}

/* n_here of a group, of which elements past n stay zero. */
static void write_group(const struct block_layout *layout, const struct group_form *form,
                        const struct weight_group *group, int n_here, int8_t *q, float *scales,
                        float *mins)
{
    int offset = offset_of(layout, form);
    int zero = form->minimum == GROUP_ZERO         ? group->zero - offset
               : form->minimum == GROUP_NO_MINIMUM ? form->offset - offset
                                                   : 0;
    for (int i = 0; i < n_here; i++) {
        q[i] = (int8_t)((form->is_table ? table_16[group->q[i]] : group->q[i]) - offset);
    }
    for (int run = 0; run * BLOCK_RUN < n_here; run++) {
        scales[run] = group_scale(form, group, run);
        mins[run] = zero ? scales[run] * (float)zero : group_minimum(form, group, run);
    }
}

/* The integers of this project's own files, which weight_read_groups gives with a bf16 scale. */
static void read_own_group(const struct weight *weight, enum weight_form form, int row, int first,
                           int n, struct weight_group *out)
{
    int8_t q[QUANT_GROUP];
    weight_read_groups(weight, form, row, first, n, q, &out->scale);
    for (int i = 0; i < n; i++) {
        out->q[i] = (uint8_t)(q[i] + group_forms[form].offset);
    }
}

static void read_fp8(const struct weight *weight, int row, int first, int n, struct block_row *out)
{
    uint8_t bytes[BLOCK_RUN];
    for (int at = 0; at < n; at += BLOCK_RUN) {
        int n_here = n - at < BLOCK_RUN ? n - at : BLOCK_RUN;
        float scale = stored_scale_of(&weight->stored, row, first + at);
        stored_read_fp8(&weight->stored, row, first + at, n_here, bytes);
        for (int i = 0; i < n_here; i++) {
            if ((bytes[i] & 0x7f) == 0x7f) scale = NAN;
        }
        memcpy(out->q + at, bytes, (size_t)n_here);
        out->scales[at / BLOCK_RUN] = scale;
    }
}

void block_row_read(const struct block_layout *layout, const struct weight *weight, int row,
                    int first, int n, struct block_row *out)
{
    enum weight_form form = weight_form_of(weight);
    if (layout->is_fp8) {
        read_fp8(weight, row, first, n, out);
        return;
    }
    for (int at = 0; at < n; at += QUANT_GROUP) {
        int n_here = n - at < QUANT_GROUP ? n - at : QUANT_GROUP;
        struct weight_group group = {0};
        if (out->order) {
            stored_read_listed(&weight->stored, row, first, out->order + at, &group);
        } else if (form == WEIGHTS_INT8 || form == WEIGHTS_INT4) {
            read_own_group(weight, form, row, first + at, n_here, &group);
        } else {
            weight_read_group(weight, row, (first + at) / QUANT_GROUP, &group);
        }
        write_group(layout, &group_forms[form], &group, n_here, out->q + at,
                    out->scales + at / BLOCK_RUN, out->mins + at / BLOCK_RUN);
    }
}
