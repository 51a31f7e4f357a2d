/* Digests of the bytes of tensors. */
#include "model/checkpoint/digest.h"

#include <xxhash.h>

static uint64_t hash_elements(const struct weight *weight, int row, int col, int n)
{
    size_t bytes;
    if (weight->dtype == DTYPE_STORED) return stored_hash(&weight->stored, row, col, n);
    const uint8_t *run = weight_run(weight, row, col, n, &bytes);
    return XXH3_64bits(run, bytes);
}

/* The scales of all groups that the run touches. */
static uint64_t hash_scales(const struct weight *weight, int row, int col, int n)
{
    size_t row_scales = (size_t)(weight->n_cols / weight->group);
    size_t first = (size_t)(col / weight->group), last = (size_t)((col + n - 1) / weight->group);
    return XXH3_64bits(weight->scales + ((size_t)row * row_scales + first) * sizeof(uint16_t),
                       (last - first + 1) * sizeof(uint16_t));
}

uint64_t weight_digest_unit(const struct weight *weight, int row, int col, int n)
{
    if (!weight->data || n < 1) return 0;
    const uint64_t words[] = {(uint64_t)row, (uint64_t)col, hash_elements(weight, row, col, n),
                              weight->scales ? hash_scales(weight, row, col, n) : 0};
    return XXH3_64bits(words, sizeof words);
}

uint64_t weight_digest_vector(const struct weight *weight, int first, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += weight_digest_unit(weight, 0, first + i, 1);
    }
    return sum;
}
