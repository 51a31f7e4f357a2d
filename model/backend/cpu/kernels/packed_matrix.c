/* Packing bf16 weights. */
#include "model/backend/cpu/kernels/packed_matrix.h"

#include <string.h>

enum { PACK_K = 512 };

typedef uint32_t quad_u __attribute__((vector_size(16)));

size_t packed_matrix_bytes(int n_in, int n_out)
{
    size_t n_blocks = ((size_t)n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS;
    return n_blocks * KERNEL_COLUMNS * (size_t)n_in * sizeof(uint16_t);
}

/* Four pairs (uint32) of four columns: out[pair][column] = rows[column][pair]. */
static void square_transpose(uint16_t *out, const uint16_t *rows)
{
    quad_u r[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&r[i], rows + (size_t)i * PACK_K, sizeof r[i]);
    }
    quad_u low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    quad_u low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    quad_u high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    quad_u high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    for (size_t i = 0; i < 4; i++) {
        memcpy(out + 2 * i * KERNEL_COLUMNS, &r[i], sizeof r[i]);
    }
}

/* out[pair][column] = rows[column][pair] for n_pairs pairs of 64 columns; rows are PACK_K apart. */
static void pairs_transpose(uint16_t *out, const uint16_t *rows, int n_pairs)
{
    int pair = 0;
    for (; pair + 4 <= n_pairs; pair += 4) {
        for (int column = 0; column < KERNEL_COLUMNS; column += 4) {
            square_transpose(out + 2 * ((size_t)pair * KERNEL_COLUMNS + (size_t)column),
                             rows + (size_t)column * PACK_K + 2 * (size_t)pair);
        }
    }
    for (; pair < n_pairs; pair++) {
        for (int column = 0; column < KERNEL_COLUMNS; column++) {
            memcpy(out + 2 * ((size_t)pair * KERNEL_COLUMNS + (size_t)column),
                   rows + (size_t)column * PACK_K + 2 * (size_t)pair, 2 * sizeof *out);
        }
    }
}

void packed_matrix_fill(const struct packed_matrix *w, int first_block, int end_block,
                        packed_fill_fn *fill, const void *arg)
{
    _Alignas(64) uint16_t rows[KERNEL_COLUMNS * PACK_K];
    for (int block = first_block; block < end_block; block++) {
        uint16_t *out = w->data + (size_t)block * (size_t)w->n_in * KERNEL_COLUMNS;
        for (int k = 0; k < w->n_in; k += PACK_K) {
            int n = w->n_in - k < PACK_K ? w->n_in - k : PACK_K;
            for (int i = 0; i < KERNEL_COLUMNS; i++) {
                int column = block * KERNEL_COLUMNS + i;
                uint16_t *row = rows + (size_t)i * PACK_K;
                if (column < w->n_out) {
                    fill(arg, column, k, n, row);
                } else {
                    memset(row, 0, (size_t)n * sizeof *row);
                }
            }
            pairs_transpose(out + (size_t)k * KERNEL_COLUMNS, rows, n / 2);
        }
    }
}
