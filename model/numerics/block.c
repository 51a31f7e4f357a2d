/* Reading blocks. Numbers are little endian and may lie at odd addresses. Names of fields are those
 * of ggml: d is a scale, m a minimum, qs the low bits, qh and hmask the high ones. */
#include "model/numerics/block.h"

#include <string.h>

#include "base/least.h"

/* By the id in a file. Ids without a name were removed from the format. */
static const struct block_type types[] = {
    [0] = {"F32", BLOCK_F32, 1, 4},          [1] = {"F16", BLOCK_F16, 1, 2},
    [2] = {"Q4_0", BLOCK_Q4_0, 32, 18},      [3] = {"Q4_1", BLOCK_Q4_1, 32, 20},
    [6] = {"Q5_0", BLOCK_Q5_0, 32, 22},      [7] = {"Q5_1", BLOCK_Q5_1, 32, 24},
    [8] = {"Q8_0", BLOCK_Q8_0, 32, 34},      [9] = {"Q8_1", BLOCK_UNREAD, 0, 0},
    [10] = {"Q2_K", BLOCK_Q2_K, 256, 84},    [11] = {"Q3_K", BLOCK_Q3_K, 256, 110},
    [12] = {"Q4_K", BLOCK_Q4_K, 256, 144},   [13] = {"Q5_K", BLOCK_Q5_K, 256, 176},
    [14] = {"Q6_K", BLOCK_Q6_K, 256, 210},   [15] = {"Q8_K", BLOCK_UNREAD, 0, 0},
    [16] = {"IQ2_XXS", BLOCK_UNREAD, 0, 0},  [17] = {"IQ2_XS", BLOCK_UNREAD, 0, 0},
    [18] = {"IQ3_XXS", BLOCK_UNREAD, 0, 0},  [19] = {"IQ1_S", BLOCK_UNREAD, 0, 0},
    [20] = {"IQ4_NL", BLOCK_IQ4_NL, 32, 18}, [21] = {"IQ3_S", BLOCK_UNREAD, 0, 0},
    [22] = {"IQ2_S", BLOCK_UNREAD, 0, 0},    [23] = {"IQ4_XS", BLOCK_IQ4_XS, 256, 136},
    [24] = {"I8", BLOCK_UNREAD, 0, 0},       [25] = {"I16", BLOCK_UNREAD, 0, 0},
    [26] = {"I32", BLOCK_UNREAD, 0, 0},      [27] = {"I64", BLOCK_UNREAD, 0, 0},
    [28] = {"F64", BLOCK_UNREAD, 0, 0},      [29] = {"IQ1_M", BLOCK_UNREAD, 0, 0},
    [30] = {"BF16", BLOCK_BF16, 1, 2},       [34] = {"TQ1_0", BLOCK_UNREAD, 0, 0},
    [35] = {"TQ2_0", BLOCK_UNREAD, 0, 0},    [39] = {"MXFP4", BLOCK_UNREAD, 0, 0},
    [40] = {"NVFP4", BLOCK_UNREAD, 0, 0},    [41] = {"Q1_0", BLOCK_UNREAD, 0, 0},
    [42] = {"Q2_0", BLOCK_UNREAD, 0, 0},
};

enum { N_TYPES = sizeof types / sizeof *types, HALF = QUANT_GROUP / 2 };

const struct block_type *block_type_find(uint32_t id)
{
    return id < N_TYPES && types[id].name ? &types[id] : NULL;
}

/* ---- the kinds ---- */

static uint16_t word(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t long_word(const uint8_t *at)
{
    return (uint32_t)word(at) | (uint32_t)word(at + 2) << 16;
}

/* 16 bytes of two integers each: the lower halves come first. */
static void read_nibbles(const uint8_t *qs, uint8_t *q)
{
    for (int i = 0; i < HALF; i++) {
        q[i] = qs[i] & 15;
        q[i + HALF] = qs[i] >> 4;
    }
}

/* The fifth bits of 32 integers. */
static void add_bits(const uint8_t *qh, uint8_t *q)
{
    uint32_t bits = long_word(qh);
    for (int i = 0; i < QUANT_GROUP; i++) {
        q[i] = (uint8_t)(q[i] | (bits >> i & 1) << 4);
    }
}

/* A minimum that is added becomes one that is taken away. */
static uint16_t negated(uint16_t half)
{
    return half ^ 0x8000;
}

static void read_q4_0(const uint8_t *at, int group, struct weight_group *out)
{
    (void)group;
    out->scale = word(at);
    read_nibbles(at + 2, out->q);
}

static void read_q4_1(const uint8_t *at, int group, struct weight_group *out)
{
    (void)group;
    out->scale = word(at);
    out->minimum = negated(word(at + 2));
    read_nibbles(at + 4, out->q);
}

static void read_q5_0(const uint8_t *at, int group, struct weight_group *out)
{
    (void)group;
    out->scale = word(at);
    read_nibbles(at + 6, out->q);
    add_bits(at + 2, out->q);
}

static void read_q5_1(const uint8_t *at, int group, struct weight_group *out)
{
    (void)group;
    out->scale = word(at);
    out->minimum = negated(word(at + 2));
    read_nibbles(at + 8, out->q);
    add_bits(at + 4, out->q);
}

/* Adding 128 to a signed byte flips its highest bit. */
static void read_q8_0(const uint8_t *at, int group, struct weight_group *out)
{
    (void)group;
    out->scale = word(at);
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = at[2 + i] ^ 0x80;
    }
}

/* Scales, qs[64], d, dmin. */
static void read_q2_k(const uint8_t *at, int group, struct weight_group *out)
{
    const uint8_t *scales = at + 2 * group, *qs = at + 16 + 32 * (group / 4);
    int shift = 2 * (group % 4);
    out->scale = word(at + 80);
    out->minimum = word(at + 82);
    for (int run = 0; run < 2; run++) {
        out->scales[run] = (int8_t)(scales[run] & 15);
        out->minimums[run] = scales[run] >> 4;
    }
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = qs[i] >> shift & 3;
    }
}

/* hmask[32], qs[64], scales[12], d. Of the 16 scales of six bits, scale i has its low four bits in
 * half of byte i % 8 and its high two bits in a pair of byte 8 + i % 4. */
static void read_q3_k(const uint8_t *at, int group, struct weight_group *out)
{
    const uint8_t *qs = at + 32 + 32 * (group / 4), *scales = at + 96;
    int shift = 2 * (group % 4);
    out->scale = word(at + 108);
    for (int run = 0; run < 2; run++) {
        int i = 2 * group + run;
        int low = scales[i % 8] >> (i < 8 ? 0 : 4) & 15, high = scales[8 + i % 4] >> 2 * (i / 4);
        out->scales[run] = (int8_t)((low | (high & 3) << 4) - 32);
    }
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = (uint8_t)((qs[i] >> shift & 3) | (at[i] >> group & 1) << 2);
    }
}

/* d, dmin, scales[12] of Q4_K and Q5_K: scale and minimum of a group have six bits each. */
static void read_k_scales(const uint8_t *at, int group, struct weight_group *out)
{
    const uint8_t *s = at + 4;
    out->scale = word(at);
    out->minimum = word(at + 2);
    if (group < 4) {
        out->scales[0] = (int8_t)(s[group] & 63);
        out->minimums[0] = s[group + 4] & 63;
    } else {
        out->scales[0] = (int8_t)((s[group + 4] & 15) | s[group - 4] >> 6 << 4);
        out->minimums[0] = (uint8_t)(s[group + 4] >> 4 | s[group] >> 6 << 4);
    }
}

static void read_q4_k(const uint8_t *at, int group, struct weight_group *out)
{
    const uint8_t *qs = at + 16 + 32 * (group / 2);
    int shift = 4 * (group % 2);
    read_k_scales(at, group, out);
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = qs[i] >> shift & 15;
    }
}

/* As Q4_K with qh[32] before qs. */
static void read_q5_k(const uint8_t *at, int group, struct weight_group *out)
{
    const uint8_t *qh = at + 16, *qs = at + 48 + 32 * (group / 2);
    int shift = 4 * (group % 2);
    read_k_scales(at, group, out);
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = (uint8_t)((qs[i] >> shift & 15) | (qh[i] >> group & 1) << 4);
    }
}

/* ql[128], qh[64], scales[16], d. */
static void read_q6_k(const uint8_t *at, int group, struct weight_group *out)
{
    int half = group / 4, quarter = group % 4;
    const uint8_t *ql = at + 64 * half + 32 * (quarter % 2), *qh = at + 128 + 32 * half;
    int low_shift = 4 * (quarter / 2), high_shift = 2 * quarter;
    out->scale = word(at + 208);
    memcpy(out->scales, at + 192 + 2 * group, 2);
    for (int i = 0; i < QUANT_GROUP; i++) {
        out->q[i] = (uint8_t)((ql[i] >> low_shift & 15) | (qh[i] >> high_shift & 3) << 4);
    }
}

/* d, scales_h, scales_l[4], qs[128]. */
static void read_iq4_xs(const uint8_t *at, int group, struct weight_group *out)
{
    int low = at[4 + group / 2] >> 4 * (group % 2) & 15, high = word(at + 2) >> 2 * group & 3;
    out->scale = word(at);
    out->scales[0] = (int8_t)((low | high << 4) - 32);
    read_nibbles(at + 8 + 16 * group, out->q);
}

/* Reads group `group` of the block at `at` into a zeroed group. */
typedef void read_fn(const uint8_t *at, int group, struct weight_group *out);

/* The id in a file; the form of matrices and its reader, where the kind has integers. */
static const struct {
    int id;
    enum weight_form form;
    read_fn *read;
} kinds[BLOCK_KINDS] = {
    [BLOCK_F32] = {0, WEIGHTS_BF16, NULL},
    [BLOCK_F16] = {1, WEIGHTS_BF16, NULL},
    [BLOCK_BF16] = {30, WEIGHTS_BF16, NULL},
    [BLOCK_Q4_0] = {2, WEIGHTS_Q4_0, read_q4_0},
    [BLOCK_Q4_1] = {3, WEIGHTS_Q4_1, read_q4_1},
    [BLOCK_Q5_0] = {6, WEIGHTS_Q5_0, read_q5_0},
    [BLOCK_Q5_1] = {7, WEIGHTS_Q5_1, read_q5_1},
    [BLOCK_Q8_0] = {8, WEIGHTS_Q8_0, read_q8_0},
    [BLOCK_Q2_K] = {10, WEIGHTS_Q2_K, read_q2_k},
    [BLOCK_Q3_K] = {11, WEIGHTS_Q3_K, read_q3_k},
    [BLOCK_Q4_K] = {12, WEIGHTS_Q4_K, read_q4_k},
    [BLOCK_Q5_K] = {13, WEIGHTS_Q5_K, read_q5_k},
    [BLOCK_Q6_K] = {14, WEIGHTS_Q6_K, read_q6_k},
    [BLOCK_IQ4_NL] = {20, WEIGHTS_IQ4_NL, read_q4_0},
    [BLOCK_IQ4_XS] = {23, WEIGHTS_IQ4_XS, read_iq4_xs},
};

const struct block_type *block_type_of(enum block_kind kind)
{
    return &types[kinds[kind].id];
}

size_t block_bytes(enum block_kind kind, size_t n)
{
    const struct block_type *type = block_type_of(kind);
    return n / (size_t)type->n_elements * (size_t)type->n_bytes;
}

enum weight_form block_form(enum block_kind kind)
{
    return kinds[kind].form;
}

void block_read_group(enum block_kind kind, const uint8_t *row, int group, struct weight_group *out)
{
    const struct block_type *type = block_type_of(kind);
    int groups = type->n_elements / QUANT_GROUP;
    memset(out, 0, sizeof *out);
    kinds[kind].read(row + (size_t)(group / groups) * (size_t)type->n_bytes, group % groups, out);
}

void block_read_f32(enum block_kind kind, const uint8_t *row, int first, int n, float *out)
{
    float values[QUANT_GROUP];
    struct weight_group group;
    for (int at = first, end = first + n; at < end;) {
        int skipped = at % QUANT_GROUP, n_here = least(QUANT_GROUP - skipped, end - at);
        block_read_group(kind, row, at / QUANT_GROUP, &group);
        group_read_f32(kinds[kind].form, &group, values);
        memcpy(out, values + skipped, (size_t)n_here * sizeof *out);
        out += n_here;
        at += n_here;
    }
}
