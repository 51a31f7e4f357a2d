/* The promised order of a sum over ranks, ((0+1)+(2+3))+((4+5)+(6+7)), on data that one process can
 * see. Every implementation of comm_tree_sum adds through here. Addition commutes bit for bit, so at
 * each node of the tree the lower side plus the higher side is the higher plus the lower. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True for 1, 2, 4, 8, ...: the sizes that have a tree. */
bool comm_tree_has_order(int size);

/* into[i] += other[i]: one node of the tree. */
void comm_tree_add(float *restrict into, const float *restrict other, size_t n);

/* Sums elements [begin, end) of the `size` arrays rows[0..size) by the tree, in place; all rows hold
 * the sum afterwards. size is a power of two. */
void comm_tree_local(float *const *rows, int size, size_t begin, size_t end);
