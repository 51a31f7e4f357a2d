/* Packing weights of fp8. */
#include "model/backend/cpu/kernels/fp8_matrix.h"

#include <string.h>

#include "base/least.h"

struct fp8_matrix fp8_matrix_of(void *data, int n_in, int n_out, int first_run, int run)
{
    struct fp8_matrix w = {.data = data,
                           .n_in = n_in,
                           .n_out = n_out,
                           .n_blocks = (n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS,
                           .first_run = least(first_run, n_in),
                           .run = least(run, n_in)};
    w.n_runs = 1 + (n_in - w.first_run + w.run - 1) / w.run;
    return w;
}

static size_t block_bytes(const struct fp8_matrix *w)
{
    return KERNEL_COLUMNS * ((size_t)w->n_runs * sizeof(float) + (size_t)w->n_in);
}

size_t fp8_matrix_bytes(const struct fp8_matrix *w)
{
    return (size_t)w->n_blocks * block_bytes(w);
}

int fp8_matrix_run(const struct fp8_matrix *w, int i)
{
    return i == 0 ? 0 : least(w->n_in, w->first_run + (i - 1) * w->run);
}

/* A part of a run of all columns of a block. */
static void fill_part(const struct fp8_matrix *w, int block, int k, int n, uint8_t *out,
                      float *scales, fp8_fill_fn *fill, const void *arg)
{
    uint8_t q[FP8_PACK_K];
    for (int i = 0; i < KERNEL_COLUMNS; i++) {
        int column = block * KERNEL_COLUMNS + i;
        scales[i] = 0;
        memset(q, 0, (size_t)n);
        if (column < w->n_out) fill(arg, column, k, n, q, &scales[i]);
        for (int at = 0; at < n; at += 2) {
            memcpy(out + (size_t)(k + at) * KERNEL_COLUMNS + 2 * (size_t)i, q + at, 2);
        }
    }
}

void fp8_matrix_fill(const struct fp8_matrix *w, int first_block, int end_block, fp8_fill_fn *fill,
                     const void *arg)
{
    float scales[KERNEL_COLUMNS];
    for (int block = first_block; block < end_block; block++) {
        uint8_t *data = w->data + (size_t)block * block_bytes(w);
        uint8_t *out = data + (size_t)w->n_runs * sizeof scales;
        for (int run = 0; run < w->n_runs; run++) {
            int end = fp8_matrix_run(w, run + 1);
            for (int k = fp8_matrix_run(w, run); k < end; k += FP8_PACK_K) {
                fill_part(w, block, k, least(FP8_PACK_K, end - k), out, scales, fill, arg);
            }
            memcpy(data + (size_t)run * sizeof scales, scales, sizeof scales);
        }
    }
}
