/* Packing integers with their scales. */
#include "model/backend/cpu/kernels/quant/matrix.h"

#include <string.h>

#include "base/least.h"

enum { VECTOR = 16, QUAD = 4 };

struct quant_matrix quant_matrix_of(enum weight_form form, void *data, int n_in, int n_out,
                                    int first_group)
{
    return (struct quant_matrix){
        .data = data,
        .n_in = n_in,
        .n_out = n_out,
        .n_groups = (n_in + QUANT_GROUP - 1) / QUANT_GROUP,
        .n_blocks = (n_out + QUANT_COLUMNS - 1) / QUANT_COLUMNS,
        .first_group = group_form_is_super(form) ? first_group : 0,
        .form = form,
    };
}

/* Super-blocks that begin before group `group`. The first one begins at group 0, although it may
 * lack its first groups. */
static int supers_before(const struct quant_matrix *w, int group)
{
    return group > 0 ? (w->first_group + group - 1) / GROUP_SUPER + 1 : 0;
}

size_t quant_group_offset(const struct quant_matrix *w, int group)
{
    return (size_t)group * (size_t)quant_group_bytes(w->form) +
           (size_t)supers_before(w, group) * (size_t)quant_super_bytes(w->form);
}

size_t quant_block_bytes(const struct quant_matrix *w)
{
    return quant_group_offset(w, w->n_groups);
}

size_t quant_matrix_bytes(const struct quant_matrix *w)
{
    return (size_t)w->n_blocks * quant_block_bytes(w);
}

/* Some groups of a block's columns before they are packed. */
struct columns {
    struct weight_group of[QUANT_COLUMNS][QUANT_PACK_GROUPS];
};

static uint8_t *words_pack(const struct columns *columns, int group, bool is_minimum, uint8_t *out)
{
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        const struct weight_group *from = &columns->of[i][group];
        memcpy(out, is_minimum ? &from->minimum : &from->scale, sizeof(uint16_t));
        out += sizeof(uint16_t);
    }
    return out;
}

static uint8_t *super_pack(enum weight_form form, const struct columns *columns, int group,
                           uint8_t *out)
{
    out = words_pack(columns, group, false, out);
    bool has_minimum = group_forms[form].minimum != GROUP_NO_MINIMUM;
    return has_minimum ? words_pack(columns, group, true, out) : out;
}

static void scales_pack(enum weight_form form, const struct columns *columns, int group,
                        uint8_t *out)
{
    enum group_scale kind = group_forms[form].scale;
    if (kind == GROUP_SCALE_F16 || kind == GROUP_SCALE_BF16) {
        words_pack(columns, group, false, out);
        return;
    }
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        const struct weight_group *from = &columns->of[i][group];
        if (kind == GROUP_SCALE_F32) {
            memcpy(out + (size_t)i * sizeof(float), &from->scale_f32, sizeof(float));
        } else {
            out[i] = (uint8_t)from->scales[0];
            if (kind == GROUP_SCALE_RUNS) out[QUANT_COLUMNS + i] = (uint8_t)from->scales[1];
        }
    }
}

static void minimums_pack(enum weight_form form, const struct columns *columns, int group,
                          uint8_t *out)
{
    enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_NO_MINIMUM) return;
    if (kind == GROUP_MINIMUM_F16) {
        words_pack(columns, group, true, out);
        return;
    }
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        const struct weight_group *from = &columns->of[i][group];
        out[i] = kind == GROUP_ZERO ? from->zero : from->minimums[0];
        if (kind == GROUP_MINIMUM_RUNS) out[QUANT_COLUMNS + i] = from->minimums[1];
    }
}

/* `bits` bits of each byte of q from bit `from` on, of as many steps as a line holds. */
static uint32_t quad_of_steps(const uint8_t *q, int from, int bits)
{
    uint32_t mask = 0x01010101u * (uint32_t)((1 << bits) - 1), line = 0;
    for (int i = 0; i < 8 / bits; i++) {
        uint32_t quad;
        memcpy(&quad, q + i * QUAD, sizeof quad);
        line |= (quad >> from & mask) << i * bits;
    }
    return line;
}

/* Lines of 16 columns from `first` on. */
static uint8_t *lines_pack(const struct columns *columns, int group, int first, int from, int bits,
                           uint8_t *out)
{
    for (int k = 0; bits > 0 && k < QUANT_GROUP; k += QUAD * 8 / bits) {
        for (int i = first; i < first + VECTOR; i++) {
            uint32_t line = quad_of_steps(columns->of[i][group].q + k, from, bits);
            memcpy(out, &line, sizeof line);
            out += sizeof line;
        }
    }
    return out;
}

static uint8_t *group_pack(enum weight_form form, const struct columns *columns, int group,
                           uint8_t *out)
{
    const struct group_form *f = &group_forms[form];
    memset(out, 0, (size_t)quant_scales_bytes(form));
    scales_pack(form, columns, group, out);
    out += quant_scales_bytes(form);
    minimums_pack(form, columns, group, out);
    out += quant_minimums_bytes(form);
    for (int first = 0; first < QUANT_COLUMNS; first += VECTOR) {
        out = lines_pack(columns, group, first, 0, f->low_bits, out);
        out = lines_pack(columns, group, first, f->low_bits, f->high_bits, out);
    }
    return out;
}

void quant_matrix_fill(const struct quant_matrix *w, int first_block, int end_block,
                       quant_fill_fn *fill, const void *arg)
{
    struct columns columns;
    uint8_t *out = w->data + (size_t)first_block * quant_block_bytes(w);
    bool is_super = group_form_is_super(w->form);
    for (int block = first_block; block < end_block; block++) {
        for (int at = 0; at < w->n_groups; at += QUANT_PACK_GROUPS) {
            int n = least(QUANT_PACK_GROUPS, w->n_groups - at);
            memset(&columns, 0, sizeof columns);
            for (int i = 0; i < QUANT_COLUMNS; i++) {
                int column = block * QUANT_COLUMNS + i;
                if (column < w->n_out) fill(arg, column, at, n, columns.of[i]);
            }
            for (int i = 0; i < n; i++) {
                bool begins = at + i == 0 || (at + i + w->first_group) % GROUP_SUPER == 0;
                if (is_super && begins) out = super_pack(w->form, &columns, i, out);
                out = group_pack(w->form, &columns, i, out);
            }
        }
    }
}
