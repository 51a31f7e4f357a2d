/* Pairs of rows at distance 1, 2, 4, ... are added into the lower row, block by block, so that a
 * block of all rows stays in the cache. Row 0 is then the root of the tree. */
#include "comm/comm_tree.h"

#include <string.h>

enum { BLOCK_FLOATS = 4096 };

void comm_tree_add(float *restrict into, const float *restrict other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += other[i];
}

static void sum_block(float *const *rows, int size, size_t begin, size_t n)
{
    for (int distance = 1; distance < size; distance *= 2) {
        for (int row = 0; row + distance < size; row += 2 * distance) {
            comm_tree_add(rows[row] + begin, rows[row + distance] + begin, n);
        }
    }
    for (int row = 1; row < size; row++) {
        memcpy(rows[row] + begin, rows[0] + begin, n * sizeof(float));
    }
}

/* The right side may have fewer ranks than the left one, whose ranks then share them. */
struct comm_tree_turn comm_tree_turn_of(int rank, int size, int distance)
{
    int begin = rank / (2 * distance) * 2 * distance, middle = begin + distance;
    int n_right = size - middle < distance ? size - middle : distance;
    if (n_right <= 0) return (struct comm_tree_turn){.from = -1};
    if (rank < middle) {
        int at = rank - begin;
        return (struct comm_tree_turn){.from = middle + at % n_right,
                                       .first_to = middle + at,
                                       .step_to = 1,
                                       .n_to = at < n_right ? 1 : 0};
    }
    int at = rank - middle;
    return (struct comm_tree_turn){.from = begin + at,
                                   .first_to = begin + at,
                                   .step_to = n_right,
                                   .n_to = (distance - at + n_right - 1) / n_right};
}

void comm_tree_local(float *const *rows, int size, size_t begin, size_t end)
{
    while (begin < end) {
        size_t n = end - begin < BLOCK_FLOATS ? end - begin : BLOCK_FLOATS;
        sum_block(rows, size, begin, n);
        begin += n;
    }
}
