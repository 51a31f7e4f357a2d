/* The fixed order of a sum over ranks, ((0+1)+(2+3))+((4+5)+(6+7)), on data in the memory of one
 * process. Neighbours are paired, then pairs, and so on; what has no other side goes up as it is,
 * so three are (0+1)+2, and seven ((0+1)+(2+3))+((4+5)+6). Every implementation of comm_tree_sum
 * adds with these functions. Addition commutes bit for bit, so it does not matter which side of a
 * node comes first. */
#pragma once

#include <stddef.h>

/* into[i] += other[i]: one node of the tree. */
void comm_tree_add(float *restrict into, const float *restrict other, size_t n);

/* Sums elements [begin, end) of the arrays rows[0..size) by the tree, in place; all rows hold the
 * sum afterwards. */
void comm_tree_local(float *const *rows, int size, size_t begin, size_t end);

/* A rank's part at distance 1, 2, 4, ... below size, after which it has the sum of the node above:
 * it adds the sum of rank `from`, and its own sum goes to the n_to ranks first_to, first_to +
 * step_to, ... Where the node has both sides whole, both are the same rank. */
struct comm_tree_turn {
    int from; /* -1: the node has no other side, and nothing is sent or added */
    int first_to, step_to, n_to;
};

struct comm_tree_turn comm_tree_turn_of(int rank, int size, int distance);
