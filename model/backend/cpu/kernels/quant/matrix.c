/* Packing weights of 8 and 4 bits. */
#include "model/backend/cpu/kernels/quant/matrix.h"

#include <string.h>

enum {
    VECTOR = 16,
    QUAD = 4,
    STEPS = QUANT_GROUP / QUAD,
    PACK_GROUPS = QUANT_PACK_K / QUANT_GROUP
};

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

/* Four k of a column. Adding 128 to a byte flips its highest bit. */
static uint32_t quad_int8(const int8_t *q)
{
    uint32_t quad;
    memcpy(&quad, q, sizeof quad);
    return quad ^ 0x80808080u;
}

/* q + 8 of two quads: a two's complement of four bits whose highest bit is flipped. */
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
                       quant_fill_fn *fill, const void *arg)
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
