/* The fixed order of a sum over ranks, ((0+1)+(2+3))+((4+5)+(6+7)), on data in the memory of one
 * process. Every implementation of comm_tree_sum adds with these functions. Addition commutes bit
 * for bit, so it does not matter which side of a node comes first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True for 1, 2, 4, 8, ..., the sizes that have a tree. */
bool comm_tree_has_order(int size);

/* into[i] += other[i]: one node of the tree. */
void comm_tree_add(float *restrict into, const float *restrict other, size_t n);

/* Sums elements [begin, end) of the arrays rows[0..size) by the tree, in place; all rows hold the
 * sum afterwards. size is a power of two. */
void comm_tree_local(float *const *rows, int size, size_t begin, size_t end);
