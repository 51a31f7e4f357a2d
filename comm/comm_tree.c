/* Pairs of rows at distance 1, 2, 4, ... are added into the lower row, block by block, so that a
 * block of all rows stays in the cache. Row 0 is then the root of the tree. */
#include "comm/comm_tree.h"

#include <string.h>

enum { BLOCK_FLOATS = 4096 };

bool comm_tree_has_order(int size)
{
    return size > 0 && (size & (size - 1)) == 0;
}

void comm_tree_add(float *restrict into, const float *restrict other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += other[i];
}

static void sum_block(float *const *rows, int size, size_t begin, size_t n)
{
    for (int distance = 1; distance < size; distance *= 2) {
        for (int row = 0; row < size; row += 2 * distance) {
            comm_tree_add(rows[row] + begin, rows[row + distance] + begin, n);
        }
    }
    for (int row = 1; row < size; row++) {
        memcpy(rows[row] + begin, rows[0] + begin, n * sizeof(float));
    }
}

void comm_tree_local(float *const *rows, int size, size_t begin, size_t end)
{
    while (begin < end) {
        size_t n = end - begin < BLOCK_FLOATS ? end - begin : BLOCK_FLOATS;
        sum_block(rows, size, begin, n);
        begin += n;
    }
}
