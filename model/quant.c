/* Rounding of weights to integers, and packing. */
#include "model/quant.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "model/numerics.h"
#include "model/variants.h"

enum {
    VECTOR = 16,
    QUAD = 4,
    STEPS = QUANT_GROUP / QUAD,
    PACK_GROUPS = QUANT_PACK_K / QUANT_GROUP
};

static const uint16_t bf16_nan = 0x7fc0;
static const char *const names[] = {
    [WEIGHTS_BF16] = "bf16", [WEIGHTS_INT8] = "int8", [WEIGHTS_INT4] = "int4"};

const char *weight_form_name(enum weight_form form)
{
    return names[form];
}

int weight_form_find(enum weight_form *form, const char *name, struct error *err)
{
    for (int i = WEIGHTS_BF16; i <= WEIGHTS_INT4; i++) {
        *form = (enum weight_form)i;
        if (strcmp(names[i], name) == 0) return 0;
    }
    return error_set(err, ERR_ARGUMENT, "--weights %s: expected bf16, int8 or int4", name);
}

/* What a form can hold. */
struct range {
    float divisor, least, most; /* the largest magnitude is divisor * scale */
};

static struct range range_of(enum weight_form form)
{
    return form == WEIGHTS_INT8 ? (struct range){127.0f, -127.0f, 127.0f}
                                : (struct range){7.5f, -8.0f, 7.0f};
}

/* Whole groups only: loops of a known length become vectors. */
static inline __attribute__((always_inline)) uint16_t group_round(const struct range *range,
                                                                  const uint16_t *w, int8_t *q)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    uint32_t largest = 0;
    for (int i = 0; i < QUANT_GROUP; i++) {
        uint32_t size = w[i] & 0x7fffu;
        largest = size > largest ? size : largest;
    }
    float most = num_bf16_to_float((uint16_t)largest);
    memset(q, 0, QUANT_GROUP);
    if (largest >= 0x7f80u) return bf16_nan;
    if (most < 0x1p-100f) return 0;
    uint16_t scale = num_float_to_bf16(most / range->divisor);
    float factor = 1.0f / num_bf16_to_float(scale);
    for (int i = 0; i < QUANT_GROUP; i++) {
        float x = (num_bf16_to_float(w[i]) * factor + shift) - shift;
        x = x < range->least ? range->least : x;
        x = x > range->most ? range->most : x;
        q[i] = (int8_t)x;
    }
    return scale;
}

VARIANTS void quant_weights(enum weight_form form, const uint16_t *w, int n, int8_t *q,
                            uint16_t *scales)
{
    const struct range range = range_of(form);
    int k = 0;
    for (; k + QUANT_GROUP <= n; k += QUANT_GROUP) {
        *scales++ = group_round(&range, w + k, q + k);
    }
    if (k == n) return;
    uint16_t rest[QUANT_GROUP] = {0};
    int8_t rounded[QUANT_GROUP];
    memcpy(rest, w + k, (size_t)(n - k) * sizeof *w);
    *scales = group_round(&range, rest, rounded);
    memcpy(q + k, rounded, (size_t)(n - k));
}

size_t quant_group_bytes(enum weight_form form)
{
    size_t values = (size_t)QUANT_COLUMNS * QUANT_GROUP;
    return QUANT_COLUMNS * sizeof(uint16_t) + (form == WEIGHTS_INT8 ? values : values / 2);
}

struct quant_matrix quant_matrix_of(enum weight_form form, void *data, int n_in, int n_out)
{
    return (struct quant_matrix){
        .data = data,
        .n_in = n_in,
        .n_out = n_out,
        .n_groups = (n_in + QUANT_GROUP - 1) / QUANT_GROUP,
        .n_blocks = (n_out + QUANT_COLUMNS - 1) / QUANT_COLUMNS,
        .form = form,
    };
}

size_t quant_matrix_bytes(enum weight_form form, int n_in, int n_out)
{
    struct quant_matrix w = quant_matrix_of(form, NULL, n_in, n_out);
    return (size_t)w.n_blocks * (size_t)w.n_groups * quant_group_bytes(form);
}

/* Some groups of a block's columns before they are packed. */
struct columns {
    int8_t q[QUANT_COLUMNS][QUANT_PACK_K];
    uint16_t scales[QUANT_COLUMNS][PACK_GROUPS];
};

/* Four k of a column. Adding 128 to a byte turns its highest bit. */
static uint32_t quad_int8(const int8_t *q)
{
    uint32_t quad;
    memcpy(&quad, q, sizeof quad);
    return quad ^ 0x80808080u;
}

/* q + 8 of two quads: a two's complement of four bits whose highest is turned. */
static uint32_t quads_int4(const int8_t *q)
{
    uint32_t low, high;
    memcpy(&low, q, sizeof low);
    memcpy(&high, q + QUAD, sizeof high);
    low = (low & 0x0f0f0f0fu) ^ 0x08080808u;
    high = (high & 0x0f0f0f0fu) ^ 0x08080808u;
    return low | high << 4;
}

static void group_pack(enum weight_form form, const struct columns *columns, int group,
                       uint8_t *out)
{
    int step_quads = form == WEIGHTS_INT8 ? 1 : 2;
    for (int i = 0; i < QUANT_COLUMNS; i++) {
        memcpy(out + (size_t)i * sizeof(uint16_t), &columns->scales[i][group], sizeof(uint16_t));
    }
    out += QUANT_COLUMNS * sizeof(uint16_t);
    for (int first = 0; first < QUANT_COLUMNS; first += VECTOR) {
        for (int step = 0; step < STEPS; step += step_quads) {
            for (int i = first; i < first + VECTOR; i++) {
                const int8_t *q = &columns->q[i][group * QUANT_GROUP + step * QUAD];
                uint32_t quad = form == WEIGHTS_INT8 ? quad_int8(q) : quads_int4(q);
                memcpy(out, &quad, sizeof quad);
                out += sizeof quad;
            }
        }
    }
}

void quant_matrix_fill(const struct quant_matrix *w, int first_block, int end_block,
                       quant_fill_fn *fill, void *arg)
{
    struct columns columns;
    size_t group_bytes = quant_group_bytes(w->form);
    uint8_t *out = w->data + (size_t)first_block * (size_t)w->n_groups * group_bytes;
    for (int block = first_block; block < end_block; block++) {
        for (int k = 0; k < w->n_in; k += QUANT_PACK_K) {
            int n = w->n_in - k < QUANT_PACK_K ? w->n_in - k : QUANT_PACK_K;
            memset(&columns, 0, sizeof columns);
            for (int i = 0; i < QUANT_COLUMNS; i++) {
                int column = block * QUANT_COLUMNS + i;
                if (column < w->n_out) fill(arg, column, k, n, columns.q[i], columns.scales[i]);
            }
            for (int group = 0; group * QUANT_GROUP < n; group++) {
                group_pack(w->form, &columns, group, out);
                out += group_bytes;
            }
        }
    }
}
