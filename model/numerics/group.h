/* Groups of 32 weights along k, as forms of integers keep them. A weight is
 *   scale * integer                   in most forms
 *   scale * integer - minimum         with a minimum
 *   scale * (integer - zero)          with a zero
 * The integer is q - offset, or an entry of a table that q selects. The scale of a group is a
 * number of 16 or 32 bits, or that of a super-block of 256 weights times a signed byte, which is
 * one for the group or one for each of its two runs of 16. Minimums have the same kinds. All these
 * products are exact in fp32, so `scale` and `minimum` above are exact.
 *
 * The order of k is that of the matrix. The groups of a super-block are 8 neighbours whose first
 * one begins at a multiple of 256. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/numerics/quant.h"
#include "model/numerics/weight_form.h"

enum group_scale {
    GROUP_SCALE_BF16,
    GROUP_SCALE_F16,
    GROUP_SCALE_F32,
    GROUP_SCALE_BYTE, /* half of the super-block times a signed byte */
    GROUP_SCALE_RUNS  /* the same with a byte for each run of 16 */
};

enum group_minimum {
    GROUP_NO_MINIMUM,
    GROUP_MINIMUM_F16,  /* any sign */
    GROUP_MINIMUM_BYTE, /* half of the super-block times an unsigned byte */
    GROUP_MINIMUM_RUNS, /* the same with a byte for each run of 16 */
    GROUP_ZERO          /* an unsigned byte in units of q */
};

/* Bits of q are stored in two parts: the low 2, 4 or 8 of them, and the high 0, 1 or 2 above. */
struct group_form {
    int low_bits, high_bits;
    int offset; /* with a table: of its entries, so that they become unsigned */
    bool is_table;
    enum group_scale scale;
    enum group_minimum minimum;
};

enum { GROUP_SUPER = 8 /* groups of a super-block */ };

/* Constants, so that kernels are compiled for each form. Forms without integers have zeros. Not for
 * C++, which has no named entries of arrays. */
#ifndef __cplusplus
static const struct group_form group_forms[WEIGHT_FORMS] = {
    [WEIGHTS_INT8] = {8, 0, 128, false, GROUP_SCALE_BF16, GROUP_NO_MINIMUM},
    [WEIGHTS_INT4] = {4, 0, 8, false, GROUP_SCALE_BF16, GROUP_NO_MINIMUM},
    [WEIGHTS_Q4_0] = {4, 0, 8, false, GROUP_SCALE_F16, GROUP_NO_MINIMUM},
    [WEIGHTS_Q4_1] = {4, 0, 0, false, GROUP_SCALE_F16, GROUP_MINIMUM_F16},
    [WEIGHTS_Q5_0] = {4, 1, 16, false, GROUP_SCALE_F16, GROUP_NO_MINIMUM},
    [WEIGHTS_Q5_1] = {4, 1, 0, false, GROUP_SCALE_F16, GROUP_MINIMUM_F16},
    [WEIGHTS_Q8_0] = {8, 0, 128, false, GROUP_SCALE_F16, GROUP_NO_MINIMUM},
    [WEIGHTS_Q2_K] = {2, 0, 0, false, GROUP_SCALE_RUNS, GROUP_MINIMUM_RUNS},
    [WEIGHTS_Q3_K] = {2, 1, 4, false, GROUP_SCALE_RUNS, GROUP_NO_MINIMUM},
    [WEIGHTS_Q4_K] = {4, 0, 0, false, GROUP_SCALE_BYTE, GROUP_MINIMUM_BYTE},
    [WEIGHTS_Q5_K] = {4, 1, 0, false, GROUP_SCALE_BYTE, GROUP_MINIMUM_BYTE},
    [WEIGHTS_Q6_K] = {4, 2, 32, false, GROUP_SCALE_RUNS, GROUP_NO_MINIMUM},
    [WEIGHTS_IQ4_NL] = {4, 0, 128, true, GROUP_SCALE_F16, GROUP_NO_MINIMUM},
    [WEIGHTS_IQ4_XS] = {4, 0, 128, true, GROUP_SCALE_BYTE, GROUP_NO_MINIMUM},
    [WEIGHTS_U4_F16] = {4, 0, 0, false, GROUP_SCALE_F16, GROUP_ZERO},
    [WEIGHTS_U4_BF16] = {4, 0, 0, false, GROUP_SCALE_BF16, GROUP_ZERO},
    [WEIGHTS_U4_F32] = {4, 0, 0, false, GROUP_SCALE_F32, GROUP_ZERO},
    [WEIGHTS_U8_F32] = {8, 0, 0, false, GROUP_SCALE_F32, GROUP_ZERO},
};

/* The table of the IQ4 forms, plus 128. */
#define GROUP_TABLE_16 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241

static inline bool group_form_is_super(enum weight_form form)
{
    return group_forms[form].scale >= GROUP_SCALE_BYTE;
}

#endif

/* A group between reading and packing. Of the fields after q a form uses those that it has. */
struct weight_group {
    uint8_t q[QUANT_GROUP];
    uint16_t scale;      /* bits of a half or a bf16: of the group or of its super-block */
    uint16_t minimum;    /* bits of a half, likewise */
    float scale_f32;     /* GROUP_SCALE_F32 */
    int8_t scales[2];    /* of the group (the first) or of its runs */
    uint8_t minimums[2]; /* likewise */
    uint8_t zero;
};

/* The scale of run 0 or 1 of a group, and its minimum, 0 where the form has none; exact. */
float group_scale(const struct group_form *form, const struct weight_group *group, int run);
float group_minimum(const struct group_form *form, const struct weight_group *group, int run);

/* Writes the weights of a group, each rounded once from its exact value. */
void group_read_f32(enum weight_form form, const struct weight_group *group, float *out);
