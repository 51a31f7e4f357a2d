/* Reading the elements of stored matrices. Words are little-endian, at any address. */
#include "model/checkpoint/stored.h"

#include <string.h>
#include <xxhash.h>

#include "base/least.h"
#include "base/system/file.h"
#include "model/numerics/numerics.h"

/* ---- words ---- */

static uint32_t word_at(const uint8_t *words, size_t i)
{
    uint32_t word;
    memcpy(&word, words + i * sizeof word, sizeof word);
    return word;
}

static uint8_t piece(uint32_t word, int bits, int i)
{
    return (uint8_t)(word >> (bits * i) & ((1u << bits) - 1u));
}

/* The nibble of a word of AWQ that has row r of eight. */
static int awq_place(int r)
{
    return r / 2 + r % 2 * 4;
}

/* Element i of a row of integers that are packed one after the other. */
static uint8_t packed_at(const uint8_t *row, int bits, int i)
{
    if (bits == 8) return row[i];
    return (uint8_t)(row[i / 2] >> (i % 2 * 4) & 15);
}

/* ---- scales and zeros ---- */

int stored_group_of(const struct stored_matrix *s, int col)
{
    return s->order ? (int)word_at(s->order, (size_t)col) : col / s->group;
}

static bool is_transposed(const struct stored_matrix *s)
{
    return s->kind == STORED_AWQ || s->kind == STORED_GPTQ;
}

static size_t scale_index(const struct stored_matrix *s, int row, int group)
{
    if (is_transposed(s)) return (size_t)group * (size_t)s->line_rows + (size_t)row;
    return (size_t)(row / s->group_rows) * (size_t)s->n_groups + (size_t)group;
}

/* The bits of a scale of 16 bits. */
static uint16_t scale_bits(const struct stored_matrix *s, size_t i)
{
    uint16_t bits;
    memcpy(&bits, s->scales + i * sizeof bits, sizeof bits);
    return bits;
}

static float scale_at(const struct stored_matrix *s, size_t i)
{
    switch (s->scale_type) {
    case STORED_BF16:
        return num_bf16_to_float(scale_bits(s, i));
    case STORED_F16:
        return num_half_to_float(scale_bits(s, i));
    case STORED_F32:
        break;
    }
    return num_bits_to_float(word_at(s->scales, i));
}

float stored_scale_of(const struct stored_matrix *s, int row, int col)
{
    return scale_at(s, scale_index(s, row, stored_group_of(s, col)));
}

static uint8_t zero_of(const struct stored_matrix *s, int row, int group)
{
    size_t n_rows = (size_t)s->line_rows, r = (size_t)row, g = (size_t)group;
    size_t n_groups = (size_t)s->n_groups, per = s->bits == 8 ? 4 : 8;
    int middle = 1 << (s->bits - 1);
    if (!s->zeros) return (uint8_t)middle;
    if (s->has_byte_zeros) {
        int8_t zero = (int8_t)s->zeros[r * n_groups + g];
        return (uint8_t)(zero + middle);
    }
    if (s->kind == STORED_PACKED) {
        return piece(word_at(s->zeros, r / per * n_groups + g), s->bits, (int)(r % per));
    }
    uint32_t word = word_at(s->zeros, g * (n_rows / per) + r / per);
    if (s->kind == STORED_AWQ) return piece(word, 4, awq_place((int)(r % per)));
    if (s->has_low_zeros) word += s->bits == 8 ? 0x01010101u : 0x11111111u;
    return piece(word, s->bits, (int)(r % per));
}

/* ---- integers ---- */

static void read_awq(const struct stored_matrix *s, int row, int col, int n, uint8_t *q)
{
    size_t stride = (size_t)s->line_rows / 8, at = (size_t)col * stride + (size_t)row / 8;
    int place = awq_place(row % 8);
    for (int i = 0; i < n; i++, at += stride) {
        q[i] = piece(word_at(s->data, at), 4, place);
    }
}

static void read_gptq(const struct stored_matrix *s, int row, int col, int n, uint8_t *q)
{
    int bits = s->bits, per = bits == 8 ? 4 : 8;
    for (int i = 0; i < n;) {
        int first = (col + i) % per, end = least(per, first + n - i);
        size_t line = (size_t)((col + i) / per);
        uint32_t word = word_at(s->data, line * (size_t)s->line_rows + (size_t)row);
        for (int k = first; k < end; k++) {
            q[i++] = piece(word, bits, k);
        }
    }
}

static void read_integers(const struct stored_matrix *s, int row, int col, int n, uint8_t *q)
{
    size_t row_bytes = (size_t)s->n_cols * (size_t)s->bits / 8;
    const uint8_t *at = s->data + (size_t)row * row_bytes;
    if (s->kind == STORED_AWQ) {
        read_awq(s, row, col, n, q);
    } else if (s->kind == STORED_GPTQ) {
        read_gptq(s, row, col, n, q);
    } else {
        uint8_t flip = s->kind == STORED_BYTES ? 0x80 : 0;
        for (int i = 0; i < n; i++) {
            q[i] = (uint8_t)(packed_at(at, s->bits, col + i) ^ flip);
        }
    }
}

/* Sets the scale and the zero of a group; the integers are left. */
static void group_begin(const struct stored_matrix *s, int row, int group, struct weight_group *out)
{
    size_t i = scale_index(s, row, group);
    *out = (struct weight_group){.zero = zero_of(s, row, group)};
    if (s->bits == 4 && s->scale_type != STORED_F32) {
        out->scale = scale_bits(s, i);
    } else {
        out->scale_f32 = scale_at(s, i);
    }
}

void stored_read_group(const struct stored_matrix *s, int row, int group, struct weight_group *out)
{
    int col = group * QUANT_GROUP, n = least(QUANT_GROUP, s->n_cols - col);
    group_begin(s, row, stored_group_of(s, col), out);
    read_integers(s, row, col, n, out->q);
    memset(out->q + n, out->zero, (size_t)(QUANT_GROUP - n));
}

void stored_read_listed(const struct stored_matrix *s, int row, int first_col, const int32_t *list,
                        struct weight_group *out)
{
    *out = (struct weight_group){0};
    if (list[0] < 0) return; /* groups are filled up at their ends */
    group_begin(s, row, stored_group_of(s, first_col + list[0]), out);
    for (int i = 0; i < QUANT_GROUP; i++) {
        if (list[i] < 0) {
            out->q[i] = out->zero;
        } else {
            read_integers(s, row, first_col + list[i], 1, &out->q[i]);
        }
    }
}

enum weight_form stored_form(const struct stored_matrix *s)
{
    if (s->kind == STORED_FP8) return WEIGHTS_FP8;
    if (s->bits == 8) return WEIGHTS_U8_F32;
    switch (s->scale_type) {
    case STORED_BF16:
        return WEIGHTS_U4_BF16;
    case STORED_F16:
        return WEIGHTS_U4_F16;
    case STORED_F32:
        break;
    }
    return WEIGHTS_U4_F32;
}

/* ---- fp8 ---- */

void stored_read_fp8(const struct stored_matrix *s, int row, int col, int n, uint8_t *out)
{
    memcpy(out, s->data + (size_t)row * (size_t)s->n_cols + (size_t)col, (size_t)n);
}

/* ---- elements ---- */

/* The sum of the exponents of e4m3 and of a scale may lie below what fp32 has, so the product is
 * made in double, where it is exact. */
void stored_read_f32(const struct stored_matrix *s, int row, int col, int n, float *out)
{
    uint8_t q;
    for (int i = 0; i < n; i++) {
        double scale = (double)stored_scale_of(s, row, col + i), value;
        if (s->kind == STORED_FP8) {
            stored_read_fp8(s, row, col + i, 1, &q);
            value = (double)num_fp8_to_float(q);
        } else {
            read_integers(s, row, col + i, 1, &q);
            value = (double)(q - zero_of(s, row, stored_group_of(s, col + i)));
        }
        out[i] = (float)(scale * value);
    }
}

/* ---- hashes and hints ---- */

uint64_t stored_hash(const struct stored_matrix *s, int row, int col, int n)
{
    enum { CHUNK = 256 };
    uint8_t bytes[CHUNK];
    uint64_t hash = 0;
    for (int done = 0; done < n; done += CHUNK) {
        int n_here = least(CHUNK, n - done);
        if (s->kind == STORED_FP8) {
            stored_read_fp8(s, row, col + done, n_here, bytes);
        } else {
            read_integers(s, row, col + done, n_here, bytes);
        }
        hash = XXH3_64bits_withSeed(bytes, (size_t)n_here, hash);
    }
    /* In a matrix with an order nearly every column begins another group, so this is a hash for
     * each column of each row. One for the whole order would cost less, but kept packs and
     * fingerprints have this one. */
    for (int at = col, group = -1; at < col + n; at++) {
        int own = stored_group_of(s, at);
        if (own == group) continue;
        group = own;
        struct {
            float scale;
            uint32_t zero, group;
        } words = {stored_scale_of(s, row, at), 0, (uint32_t)own};
        if (s->kind != STORED_FP8) words.zero = zero_of(s, row, own);
        hash = XXH3_64bits_withSeed(&words, sizeof words, hash);
    }
    return hash;
}

void stored_expect(const struct stored_matrix *s, int row, int n_rows, int col, int n)
{
    size_t bits = (size_t)s->bits, rows = (size_t)s->line_rows, cols = (size_t)s->n_cols;
    if (s->kind == STORED_AWQ) { /* a line of words for each k */
        size_t first = (size_t)row / 8 * 4, end = ((size_t)(row + n_rows) + 7) / 8 * 4;
        size_t stride = rows / 8 * 4;
        file_expect_runs(s->data + (size_t)col * stride + first, stride, end - first, n);
    } else if (s->kind == STORED_GPTQ) { /* one for each 4 or 8 of them */
        int per = s->bits == 8 ? 4 : 8, first = col / per, end = (col + n + per - 1) / per;
        file_expect_runs(s->data + (size_t)first * rows * 4 + (size_t)row * 4, rows * 4,
                         (size_t)n_rows * 4, end - first);
    } else {
        size_t stride = cols * bits / 8;
        file_expect_runs(s->data + (size_t)row * stride + (size_t)col * bits / 8, stride,
                         (size_t)n * bits / 8, n_rows);
    }
}
